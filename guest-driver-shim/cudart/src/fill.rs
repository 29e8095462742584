//! Fills (CUDA Runtime API, "Memory Management").

use causeway_cuda_abi::error::Answer;

use crate::context::answer;
use crate::driver::driver;
use crate::shapes::{Extent, Pitched, own};

/// The stream of a fill. Without one, it is in the common default stream.
type Stream = Option<usize>;

fn fill(address: usize, byte: u8, bytes: usize, stream: Stream) -> Answer {
    match stream {
        None => driver!(cuMemsetD8_v2(address, byte, bytes)),
        Some(stream) => driver!(cuMemsetD8Async(address, byte, bytes, stream)),
    }
}

fn fill_rows(
    address: usize,
    pitch: usize,
    byte: u8,
    width: usize,
    height: usize,
    stream: Stream,
) -> Answer {
    match stream {
        None => driver!(cuMemsetD2D8_v2(address, pitch, byte, width, height)),
        Some(stream) => {
            driver!(cuMemsetD2D8Async(
                address, pitch, byte, width, height, stream
            ))
        }
    }
}

fn fill_planes(of: Pitched, byte: u8, extent: Extent, stream: Stream) -> Answer {
    let Extent {
        width,
        height,
        depth,
    } = extent;
    if height == of.rows || depth == 1 {
        return fill_rows(of.address, of.pitch, byte, width, height * depth, stream);
    }
    let plane = of.pitch * of.rows;
    (0..depth).try_for_each(|z| {
        fill_rows(
            of.address + z * plane,
            of.pitch,
            byte,
            width,
            height,
            stream,
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset(address: usize, value: i32, bytes: usize) -> u32 {
    answer(|| fill(address, value as u8, bytes, None))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset_ptds(address: usize, value: i32, bytes: usize) -> u32 {
    cudaMemsetAsync(address, value, bytes, own(0))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemsetAsync(address: usize, value: i32, bytes: usize, stream: usize) -> u32 {
    answer(|| fill(address, value as u8, bytes, Some(stream)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemsetAsync_ptsz(address: usize, value: i32, bytes: usize, stream: usize) -> u32 {
    cudaMemsetAsync(address, value, bytes, own(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset2D(
    address: usize,
    pitch: usize,
    value: i32,
    width: usize,
    height: usize,
) -> u32 {
    answer(|| fill_rows(address, pitch, value as u8, width, height, None))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset2D_ptds(
    address: usize,
    pitch: usize,
    value: i32,
    width: usize,
    height: usize,
) -> u32 {
    cudaMemset2DAsync(address, pitch, value, width, height, own(0))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset2DAsync(
    address: usize,
    pitch: usize,
    value: i32,
    width: usize,
    height: usize,
    stream: usize,
) -> u32 {
    answer(|| fill_rows(address, pitch, value as u8, width, height, Some(stream)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset2DAsync_ptsz(
    address: usize,
    pitch: usize,
    value: i32,
    width: usize,
    height: usize,
    stream: usize,
) -> u32 {
    cudaMemset2DAsync(address, pitch, value, width, height, own(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset3D(of: Pitched, value: i32, extent: Extent) -> u32 {
    answer(|| fill_planes(of, value as u8, extent, None))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset3D_ptds(of: Pitched, value: i32, extent: Extent) -> u32 {
    cudaMemset3DAsync(of, value, extent, own(0))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset3DAsync(of: Pitched, value: i32, extent: Extent, stream: usize) -> u32 {
    answer(|| fill_planes(of, value as u8, extent, Some(stream)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemset3DAsync_ptsz(
    of: Pitched,
    value: i32,
    extent: Extent,
    stream: usize,
) -> u32 {
    cudaMemset3DAsync(of, value, extent, own(stream))
}
