//! Variables of the program on the device (CUDA Runtime API, "Memory Management": symbols).

use causeway_cuda_abi::boundary::Out;
use causeway_cuda_abi::error::{Answer, Code};

use crate::context::answer;
use crate::copy::{Direction, copy, copy_async, copy_own};
use crate::error::INVALID_DIRECTION;
use crate::registry;
use crate::shapes::own;

#[unsafe(no_mangle)]
extern "C" fn cudaGetSymbolAddress(address: Out<usize>, symbol: usize) -> u32 {
    answer(|| address.set(registry::variable(symbol)?.place()?.0))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetSymbolSize(bytes: Out<usize>, symbol: usize) -> u32 {
    answer(|| bytes.set(registry::variable(symbol)?.place()?.1))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyToSymbol(
    symbol: usize,
    from: usize,
    bytes: usize,
    offset: usize,
    kind: u32,
) -> u32 {
    answer(|| {
        let direction = to_device(kind)?;
        copy(part(symbol, offset, bytes)?, from, bytes, direction)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyToSymbolAsync(
    symbol: usize,
    from: usize,
    bytes: usize,
    offset: usize,
    kind: u32,
    stream: usize,
) -> u32 {
    answer(|| {
        let direction = to_device(kind)?;
        copy_async(part(symbol, offset, bytes)?, from, bytes, direction, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyFromSymbol(
    to: usize,
    symbol: usize,
    bytes: usize,
    offset: usize,
    kind: u32,
) -> u32 {
    answer(|| {
        let direction = from_device(kind)?;
        copy(to, part(symbol, offset, bytes)?, bytes, direction)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyFromSymbolAsync(
    to: usize,
    symbol: usize,
    bytes: usize,
    offset: usize,
    kind: u32,
    stream: usize,
) -> u32 {
    answer(|| {
        let direction = from_device(kind)?;
        copy_async(to, part(symbol, offset, bytes)?, bytes, direction, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyToSymbol_ptds(
    symbol: usize,
    from: usize,
    bytes: usize,
    offset: usize,
    kind: u32,
) -> u32 {
    answer(|| {
        let direction = to_device(kind)?;
        copy_own(part(symbol, offset, bytes)?, from, bytes, direction)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyFromSymbol_ptds(
    to: usize,
    symbol: usize,
    bytes: usize,
    offset: usize,
    kind: u32,
) -> u32 {
    answer(|| {
        let direction = from_device(kind)?;
        copy_own(to, part(symbol, offset, bytes)?, bytes, direction)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyToSymbolAsync_ptsz(
    symbol: usize,
    from: usize,
    bytes: usize,
    offset: usize,
    kind: u32,
    stream: usize,
) -> u32 {
    cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, own(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemcpyFromSymbolAsync_ptsz(
    to: usize,
    symbol: usize,
    bytes: usize,
    offset: usize,
    kind: u32,
    stream: usize,
) -> u32 {
    cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, own(stream))
}

/// Returns the address of a part of a variable, which must be inside it.
fn part(symbol: usize, offset: usize, bytes: usize) -> Answer<usize> {
    let (address, size) = registry::variable(symbol)?.place()?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(address + offset),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn to_device(kind: u32) -> Answer<Direction> {
    match Direction::of(kind)? {
        Direction::ToHost | Direction::OnHost => Err(INVALID_DIRECTION),
        direction => Ok(direction),
    }
}

fn from_device(kind: u32) -> Answer<Direction> {
    match Direction::of(kind)? {
        Direction::ToDevice | Direction::OnHost => Err(INVALID_DIRECTION),
        direction => Ok(direction),
    }
}
