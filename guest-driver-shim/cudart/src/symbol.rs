//! Variables of the program on the device (CUDA Runtime API, "Memory Management": symbols).

use causeway_cuda_abi::boundary::Out;
use causeway_cuda_abi::error::{Answer, Code};

use crate::copy::{Direction, copy, copy_async, copy_own};
use crate::error::INVALID_DIRECTION;
use crate::registry;
use crate::shapes::own;
use crate::table::calls;

calls! {
    fn cudaGetSymbolAddress(address: Out<usize>, symbol: usize)
        => address.set(registry::variable(symbol)?.place()?.0);
    fn cudaGetSymbolSize(bytes: Out<usize>, symbol: usize)
        => bytes.set(registry::variable(symbol)?.place()?.1);
    fn cudaMemcpyToSymbol(symbol: usize, from: usize, bytes: usize, offset: usize, kind: u32)
        => copy(part(symbol, offset, bytes)?, from, bytes, to_device(kind)?);
    fn cudaMemcpyToSymbol_ptds(symbol: usize, from: usize, bytes: usize, offset: usize, kind: u32)
        => copy_own(part(symbol, offset, bytes)?, from, bytes, to_device(kind)?);
    fn cudaMemcpyToSymbolAsync(symbol: usize, from: usize, bytes: usize, offset: usize, kind: u32,
                               stream: usize)
        / cudaMemcpyToSymbolAsync_ptsz(symbol, from, bytes, offset, kind, own(stream))
        => copy_async(part(symbol, offset, bytes)?, from, bytes, to_device(kind)?, stream);
    fn cudaMemcpyFromSymbol(to: usize, symbol: usize, bytes: usize, offset: usize, kind: u32)
        => copy(to, part(symbol, offset, bytes)?, bytes, from_device(kind)?);
    fn cudaMemcpyFromSymbol_ptds(to: usize, symbol: usize, bytes: usize, offset: usize, kind: u32)
        => copy_own(to, part(symbol, offset, bytes)?, bytes, from_device(kind)?);
    fn cudaMemcpyFromSymbolAsync(to: usize, symbol: usize, bytes: usize, offset: usize, kind: u32,
                                 stream: usize)
        / cudaMemcpyFromSymbolAsync_ptsz(to, symbol, bytes, offset, kind, own(stream))
        => copy_async(to, part(symbol, offset, bytes)?, bytes, from_device(kind)?, stream);
}

/// Returns the address of a part of a variable, which must be inside it.
pub fn part(symbol: usize, offset: usize, bytes: usize) -> Answer<usize> {
    let (address, size) = registry::variable(symbol)?.place()?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(address + offset),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// The direction of a copy to a variable or an array.
pub fn to_device(kind: u32) -> Answer<Direction> {
    match Direction::of(kind)? {
        Direction::ToHost | Direction::OnHost => Err(INVALID_DIRECTION),
        direction => Ok(direction),
    }
}

/// The direction of a copy from a variable or an array.
pub fn from_device(kind: u32) -> Answer<Direction> {
    match Direction::of(kind)? {
        Direction::ToDevice | Direction::OnHost => Err(INVALID_DIRECTION),
        direction => Ok(direction),
    }
}
