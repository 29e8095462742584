//! Structures of the API, as `cuda.h` lays them out. Enumerations are plain numbers: a caller may
//! write any.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `CUmemLocation`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CUmemAllocationProp`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    pub(crate) windows: u64,
    /// Compression type, RDMA capability, usage (16 bits), reserved.
    pub(crate) flags: [u8; 8],
}

/// `CUmemAccessDesc`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location: Location,
    pub(crate) flags: i32,
}

/// `CUstreamBatchMemOpParams`: waits and writes have the same layout.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct BatchOperation {
    pub(crate) operation: u32,
    pub(crate) padding: u32,
    pub(crate) address: u64,
    pub(crate) value: u64,
    pub(crate) flags: u32,
    pub(crate) padding_behind: u32,
    pub(crate) alias: u64,
    pub(crate) rest: u64,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct BatchNode {
    pub(crate) context: usize,
    pub(crate) count: u32,
    pub(crate) padding: u32,
    pub(crate) operations: usize,
    pub(crate) flags: u32,
    pub(crate) padding_behind: u32,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) padding: u32,
    pub(crate) parameters: usize,
    pub(crate) extra: usize,
    pub(crate) kernel: usize,
    pub(crate) context: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct FillNode {
    pub(crate) destination: u64,
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    pub(crate) element_bytes: u32,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// One side of a `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct CopySide {
    pub(crate) x_bytes: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    pub(crate) lod: u64,
    pub(crate) memory_type: u32,
    pub(crate) padding: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) reserved: u64,
    pub(crate) pitch: u64,
    pub(crate) height: u64,
}

/// `CUDA_MEMCPY3D`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct Copy3d {
    pub(crate) source: CopySide,
    pub(crate) destination: CopySide,
    pub(crate) width_bytes: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// `CUlaunchConfig`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct LaunchConfiguration {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) padding: u32,
    pub(crate) stream: usize,
    pub(crate) attributes: usize,
    pub(crate) attributes_count: u32,
    pub(crate) padding_behind: u32,
}

/// `CUdevResource`, as of CUDA 13.0. What the API calls internal padding says which multiprocessors
/// these are.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Resource {
    pub(crate) kind: u32,
    pub(crate) mark: u32,
    pub(crate) device: u32,
    pub(crate) first: u32,
    pub(crate) padding: [u8; 80],
    pub(crate) multiprocessors: u32,
    pub(crate) partition_min: u32,
    pub(crate) alignment: u32,
    pub(crate) rest: [u8; 36],
}

/// `CUctxCreateParams`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct ContextParameters {
    pub(crate) affinities: usize,
    pub(crate) affinities_count: i32,
    pub(crate) padding: u32,
    pub(crate) graphics: usize,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys;

    use super::*;

    #[test]
    fn structures_are_those_of_the_header() {
        macro_rules! same_size {
            ($($own:ty = $theirs:ty;)*) => {
                $(assert_eq!(size_of::<$own>(), size_of::<$theirs>(), stringify!($own));)*
            };
        }
        same_size! {
            Location = sys::CUmemLocation;
            AllocationProperties = sys::CUmemAllocationProp;
            AccessDescription = sys::CUmemAccessDesc;
            BatchOperation = sys::CUstreamBatchMemOpParams;
            BatchNode = sys::CUDA_BATCH_MEM_OP_NODE_PARAMS;
            KernelNode = sys::CUDA_KERNEL_NODE_PARAMS;
            FillNode = sys::CUDA_MEMSET_NODE_PARAMS;
            Copy3d = sys::CUDA_MEMCPY3D;
            LaunchConfiguration = sys::CUlaunchConfig;
            Resource = sys::CUdevResource;
            ContextParameters = sys::CUctxCreateParams;
        }
        assert_eq!(
            offset_of!(AllocationProperties, flags),
            offset_of!(sys::CUmemAllocationProp, allocFlags)
        );
        assert_eq!(
            offset_of!(KernelNode, parameters),
            offset_of!(sys::CUDA_KERNEL_NODE_PARAMS, kernelParams)
        );
        assert_eq!(
            offset_of!(Copy3d, destination),
            offset_of!(sys::CUDA_MEMCPY3D, dstXInBytes)
        );
        assert_eq!(
            offset_of!(LaunchConfiguration, stream),
            offset_of!(sys::CUlaunchConfig, hStream)
        );
        assert_eq!(
            offset_of!(Resource, multiprocessors),
            offset_of!(sys::CUdevResource, __bindgen_anon_1)
        );
    }
}
