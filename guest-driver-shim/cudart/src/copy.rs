//! Copies (CUDA Runtime API, "Memory Management").

use causeway_cuda_abi::boundary::In;
use causeway_cuda_abi::error::{Answer, Code};
use causeway_cuda_abi::structures::Copy2d;

use crate::context::primary;
use crate::driver::driver;
use crate::error::{INVALID_DIRECTION, INVALID_PITCH};
use crate::planes::{planes, planes_of_peers};
use crate::shapes::{Copy3dParameters, PeerCopyParameters, own, side_2d};
use crate::table::calls;

/// `enum cudaMemcpyKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    OnHost,
    ToDevice,
    ToHost,
    OnDevice,
    /// As the addresses say.
    ByAddress,
}

impl Direction {
    /// `cudaMemcpyDefault`.
    pub const BY_ADDRESS: u32 = 4;

    /// The direction of a number from a program.
    pub fn of(kind: u32) -> Answer<Self> {
        Ok(match kind {
            0 => Self::OnHost,
            1 => Self::ToDevice,
            2 => Self::ToHost,
            3 => Self::OnDevice,
            Self::BY_ADDRESS => Self::ByAddress,
            _ => return Err(INVALID_DIRECTION),
        })
    }
}

/// Copies, and waits for the end as the API says for each direction.
pub fn copy(to: usize, from: usize, bytes: usize, direction: Direction) -> Answer {
    match direction {
        Direction::ToDevice => driver!(cuMemcpyHtoD_v2(to, from, bytes)),
        Direction::ToHost => driver!(cuMemcpyDtoH_v2(to, from, bytes)),
        Direction::OnDevice => driver!(cuMemcpyDtoD_v2(to, from, bytes)),
        Direction::OnHost | Direction::ByAddress => driver!(cuMemcpy(to, from, bytes)),
    }
}

/// Copies in the thread's own default stream, and waits for the end.
pub fn copy_own(to: usize, from: usize, bytes: usize, direction: Direction) -> Answer {
    copy_async(to, from, bytes, direction, own(0))?;
    driver!(cuStreamSynchronize(own(0)))
}

/// Copies in a stream.
pub fn copy_async(
    to: usize,
    from: usize,
    bytes: usize,
    direction: Direction,
    stream: usize,
) -> Answer {
    match direction {
        Direction::ToDevice => driver!(cuMemcpyHtoDAsync_v2(to, from, bytes, stream)),
        Direction::ToHost => driver!(cuMemcpyDtoHAsync_v2(to, from, bytes, stream)),
        Direction::OnDevice => driver!(cuMemcpyDtoDAsync_v2(to, from, bytes, stream)),
        Direction::OnHost | Direction::ByAddress => {
            driver!(cuMemcpyAsync(to, from, bytes, stream))
        }
    }
}

calls! {
    fn cudaMemcpy(to: usize, from: usize, bytes: usize, kind: u32)
        => copy(to, from, bytes, Direction::of(kind)?);
    fn cudaMemcpy_ptds(to: usize, from: usize, bytes: usize, kind: u32)
        => copy_own(to, from, bytes, Direction::of(kind)?);
    fn cudaMemcpyAsync(to: usize, from: usize, bytes: usize, kind: u32, stream: usize)
        / cudaMemcpyAsync_ptsz(to, from, bytes, kind, own(stream))
        => copy_async(to, from, bytes, Direction::of(kind)?, stream);
    fn cudaMemcpyPeer(to: usize, to_device: i32, from: usize, from_device: i32, bytes: usize) => {
        let (to_context, from_context) = (primary(to_device)?, primary(from_device)?);
        driver!(cuMemcpyPeer(to, to_context, from, from_context, bytes))
    };
    fn cudaMemcpyPeerAsync(to: usize, to_device: i32, from: usize, from_device: i32, bytes: usize,
                           stream: usize) => {
        let (to_context, from_context) = (primary(to_device)?, primary(from_device)?);
        driver!(cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream))
    };
    fn cudaMemcpy2D(to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize,
                    height: usize, kind: u32) => {
        let copy = rows(to, to_pitch, from, from_pitch, width, height, kind)?;
        driver!(cuMemcpy2DUnaligned_v2(&raw const copy))
    };
    fn cudaMemcpy2D_ptds(to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize,
                         height: usize, kind: u32) => {
        let copy = rows(to, to_pitch, from, from_pitch, width, height, kind)?;
        driver!(cuMemcpy2DAsync_v2(&raw const copy, own(0)))?;
        driver!(cuStreamSynchronize(own(0)))
    };
    fn cudaMemcpy2DAsync(to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize,
                         height: usize, kind: u32, stream: usize)
        / cudaMemcpy2DAsync_ptsz(to, to_pitch, from, from_pitch, width, height, kind, own(stream))
        => {
        let copy = rows(to, to_pitch, from, from_pitch, width, height, kind)?;
        driver!(cuMemcpy2DAsync_v2(&raw const copy, stream))
    };
    fn cudaMemcpy3D(parameters: In<Copy3dParameters>) => {
        let copy = planes(parameters.get()?)?;
        driver!(cuMemcpy3D_v2(&raw const copy))
    };
    fn cudaMemcpy3D_ptds(parameters: In<Copy3dParameters>) => {
        let copy = planes(parameters.get()?)?;
        driver!(cuMemcpy3DAsync_v2(&raw const copy, own(0)))?;
        driver!(cuStreamSynchronize(own(0)))
    };
    fn cudaMemcpy3DAsync(parameters: In<Copy3dParameters>, stream: usize)
        / cudaMemcpy3DAsync_ptsz(parameters, own(stream)) => {
        let copy = planes(parameters.get()?)?;
        driver!(cuMemcpy3DAsync_v2(&raw const copy, stream))
    };
    fn cudaMemcpy3DPeer(parameters: In<PeerCopyParameters>) => {
        let copy = planes_of_peers(parameters.get()?)?;
        driver!(cuMemcpy3DPeer(&raw const copy))
    };
    fn cudaMemcpy3DPeer_ptds(parameters: In<PeerCopyParameters>) => {
        let copy = planes_of_peers(parameters.get()?)?;
        driver!(cuMemcpy3DPeerAsync(&raw const copy, own(0)))?;
        driver!(cuStreamSynchronize(own(0)))
    };
    fn cudaMemcpy3DPeerAsync(parameters: In<PeerCopyParameters>, stream: usize)
        / cudaMemcpy3DPeerAsync_ptsz(parameters, own(stream)) => {
        let copy = planes_of_peers(parameters.get()?)?;
        driver!(cuMemcpy3DPeerAsync(&raw const copy, stream))
    };
}

/// A copy of rows for the driver, which finds the direction by the addresses.
fn rows(
    to: usize,
    to_pitch: usize,
    from: usize,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: u32,
) -> Answer<Copy2d> {
    Direction::of(kind)?;
    check_pitch(to_pitch.min(from_pitch), width, height)?;
    Ok(Copy2d {
        source: side_2d(from, from_pitch),
        destination: side_2d(to, to_pitch),
        width_bytes: width as u64,
        height: height as u64,
    })
}

/// Checks that rows of `width` bytes do not overlap, with the errors of NVIDIA's.
pub fn check_pitch(pitch: usize, width: usize, height: usize) -> Answer {
    match height {
        _ if width <= pitch => Ok(()),
        0 => Ok(()),
        1 => Err(Code::INVALID_VALUE),
        _ => Err(INVALID_PITCH),
    }
}
