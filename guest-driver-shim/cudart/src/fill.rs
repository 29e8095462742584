//! Fills (CUDA Runtime API, "Memory Management").

use causeway_cuda_abi::error::{Answer, Code};

use crate::driver::driver;
use crate::shapes::{Extent, Pitched, own};
use crate::table::calls;

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
    let too_large = Code::INVALID_VALUE;
    if height == of.rows || depth == 1 {
        let rows = height.checked_mul(depth).ok_or(too_large)?;
        return fill_rows(of.address, of.pitch, byte, width, rows, stream);
    }
    let plane = of.pitch.checked_mul(of.rows).ok_or(too_large)?;
    (0..depth).try_for_each(|z| {
        let offset = z.checked_mul(plane).ok_or(too_large)?;
        let address = of.address.checked_add(offset).ok_or(too_large)?;
        fill_rows(address, of.pitch, byte, width, height, stream)
    })
}

calls! {
    fn cudaMemset(address: usize, value: i32, bytes: usize)
        => fill(address, value as u8, bytes, None);
    fn cudaMemset_ptds(address: usize, value: i32, bytes: usize)
        => fill(address, value as u8, bytes, Some(own(0)));
    fn cudaMemsetAsync(address: usize, value: i32, bytes: usize, stream: usize)
        / cudaMemsetAsync_ptsz(address, value, bytes, own(stream))
        => fill(address, value as u8, bytes, Some(stream));
    fn cudaMemset2D(address: usize, pitch: usize, value: i32, width: usize, height: usize)
        => fill_rows(address, pitch, value as u8, width, height, None);
    fn cudaMemset2D_ptds(address: usize, pitch: usize, value: i32, width: usize, height: usize)
        => fill_rows(address, pitch, value as u8, width, height, Some(own(0)));
    fn cudaMemset2DAsync(address: usize, pitch: usize, value: i32, width: usize, height: usize,
                         stream: usize)
        / cudaMemset2DAsync_ptsz(address, pitch, value, width, height, own(stream))
        => fill_rows(address, pitch, value as u8, width, height, Some(stream));
    fn cudaMemset3D(of: Pitched, value: i32, extent: Extent)
        => fill_planes(of, value as u8, extent, None);
    fn cudaMemset3D_ptds(of: Pitched, value: i32, extent: Extent)
        => fill_planes(of, value as u8, extent, Some(own(0)));
    fn cudaMemset3DAsync(of: Pitched, value: i32, extent: Extent, stream: usize)
        / cudaMemset3DAsync_ptsz(of, value, extent, own(stream))
        => fill_planes(of, value as u8, extent, Some(stream));
}
