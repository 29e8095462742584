//! Copies of bytes that follow each other from and to arrays of one row (`cuMemcpy…A…`). In arrays
//! of more rows they are within the first.

use zerocopy::FromZeros;

use super::rectangle::copy_given;
use crate::structures::{Copy3d, CopySide};

/// `CUmemorytype`
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

fn host(address: u64) -> CopySide {
    CopySide {
        memory_type: HOST,
        host: address,
        ..CopySide::new_zeroed()
    }
}

fn device(address: u64) -> CopySide {
    CopySide {
        memory_type: DEVICE,
        device: address,
        ..CopySide::new_zeroed()
    }
}

fn array((array, offset): (u64, usize)) -> CopySide {
    CopySide {
        memory_type: ARRAY,
        array,
        x_bytes: offset as u64,
        ..CopySide::new_zeroed()
    }
}

fn copy(destination: CopySide, source: CopySide, bytes: usize, stream: Option<usize>) -> u32 {
    let given = Copy3d {
        source,
        destination,
        width_bytes: bytes as u64,
        height: 1,
        depth: 1,
    };
    copy_given(given, stream.unwrap_or(0), stream.is_none())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoA_v2(to: u64, offset: usize, from: u64, bytes: usize) -> u32 {
    copy(array((to, offset)), host(from), bytes, None)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAtoH_v2(to: u64, from: u64, offset: usize, bytes: usize) -> u32 {
    copy(host(to), array((from, offset)), bytes, None)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoA_v2(to: u64, offset: usize, from: u64, bytes: usize) -> u32 {
    copy(array((to, offset)), device(from), bytes, None)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAtoD_v2(to: u64, from: u64, offset: usize, bytes: usize) -> u32 {
    copy(device(to), array((from, offset)), bytes, None)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAtoA_v2(
    to: u64,
    to_offset: usize,
    from: u64,
    from_offset: usize,
    bytes: usize,
) -> u32 {
    let (to, from) = (array((to, to_offset)), array((from, from_offset)));
    copy(to, from, bytes, None)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoAAsync_v2(
    to: u64,
    offset: usize,
    from: u64,
    bytes: usize,
    stream: usize,
) -> u32 {
    copy(array((to, offset)), host(from), bytes, Some(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyAtoHAsync_v2(
    to: u64,
    from: u64,
    offset: usize,
    bytes: usize,
    stream: usize,
) -> u32 {
    copy(host(to), array((from, offset)), bytes, Some(stream))
}
