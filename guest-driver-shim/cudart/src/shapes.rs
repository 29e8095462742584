//! Structures of the runtime API (`vector_types.h`, `driver_types.h`), and the driver's for copies.

use causeway_cuda_abi::structures::{CopySide, CopySide2d};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// `dim3`: numbers of blocks or threads.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

impl Dim3 {
    /// One block or thread.
    pub const ONE: Self = Self { x: 1, y: 1, z: 1 };
}

/// `cudaExtent`: bytes (of arrays: elements) in a row, rows, planes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Extent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `cudaPos`: a place in a volume, like [`Extent`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Position {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// `cudaPitchedPtr`: memory in rows that begin `pitch` bytes behind each other, in planes of
/// `rows` rows.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Pitched {
    pub address: usize,
    pub pitch: usize,
    pub row_bytes: usize,
    pub rows: usize,
}

/// `cudaMemcpy3DParms`. The arrays are 0 for memory in rows.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Copy3dParameters {
    pub from_array: usize,
    pub from_place: Position,
    pub from: Pitched,
    pub to_array: usize,
    pub to_place: Position,
    pub to: Pitched,
    pub extent: Extent,
    pub kind: u32,
    pub padding: u32,
}

/// `cudaMemcpy3DPeerParms`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PeerCopyParameters {
    pub from_array: usize,
    pub from_place: Position,
    pub from: Pitched,
    pub from_device: i32,
    pub padding: u32,
    pub to_array: usize,
    pub to_place: Position,
    pub to: Pitched,
    pub to_device: i32,
    pub padding_behind: u32,
    pub extent: Extent,
}

/// `cudaLaunchConfig_t`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LaunchConfiguration {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared_bytes: usize,
    pub stream: usize,
    pub attributes: usize,
    pub attribute_count: u32,
    pub padding: u32,
}

/// `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`, which are the driver's.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IpcHandle {
    reserved: [u8; 64],
}

/// Of `enum CUmemorytype`.
pub const HOST: u32 = 1;
pub const ARRAY: u32 = 3;
/// The driver sees by the address whose memory it is.
const UNIFIED: u32 = 4;

/// One side of a copy of rows.
pub fn side_2d(address: usize, pitch: usize) -> CopySide2d {
    CopySide2d {
        memory_type: UNIFIED,
        device: address as u64,
        pitch: pitch as u64,
        ..CopySide2d::new_zeroed()
    }
}

/// One side of a copy of planes.
pub fn side_3d(of: Pitched, place: Position) -> CopySide {
    CopySide {
        x_bytes: place.x as u64,
        y: place.y as u64,
        z: place.z as u64,
        memory_type: UNIFIED,
        device: of.address as u64,
        pitch: of.pitch as u64,
        height: of.rows as u64,
        ..CopySide::new_zeroed()
    }
}

/// One side of a copy of rows in an array; `x` has bytes.
pub fn side_2d_of_array(array: usize, x: usize, y: usize) -> CopySide2d {
    CopySide2d {
        x_bytes: x as u64,
        y: y as u64,
        memory_type: ARRAY,
        array: array as u64,
        ..CopySide2d::new_zeroed()
    }
}

/// One side of a copy of planes in an array; `place` has bytes, rows and planes.
pub fn side_of_array(array: usize, place: Position) -> CopySide {
    CopySide {
        x_bytes: place.x as u64,
        y: place.y as u64,
        z: place.z as u64,
        memory_type: ARRAY,
        array: array as u64,
        ..CopySide::new_zeroed()
    }
}

/// The stream for a thread's own default stream in place of the common one (`--default-stream
/// per-thread`): `CU_STREAM_PER_THREAD` for 0.
pub fn own(stream: usize) -> usize {
    if stream == 0 { 2 } else { stream }
}
