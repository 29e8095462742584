//! Structures of the API, as `cuda.h` lays them out. Enumerations are plain numbers: a caller may
//! write any.

mod arrays;

use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use arrays::{
    ArrayDescription, ArrayDescription3d, ArrayMemory, LinearResource, ResourceDescription,
    ResourceView, RowsResource, TextureDescription,
};

/// `CUmemLocation`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Location {
    pub kind: i32,
    pub id: i32,
}

/// `CUmemAllocationProp`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct AllocationProperties {
    pub kind: i32,
    pub handle_types: u32,
    pub location: Location,
    pub windows: u64,
    /// Compression type, RDMA capability, usage (16 bits), reserved.
    pub flags: [u8; 8],
}

/// `CUmemAccessDesc`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct AccessDescription {
    pub location: Location,
    pub flags: i32,
}

/// `CUstreamBatchMemOpParams`: waits and writes have the same layout.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct BatchOperation {
    pub operation: u32,
    pub padding: u32,
    pub address: u64,
    pub value: u64,
    pub flags: u32,
    pub padding_behind: u32,
    pub alias: u64,
    pub rest: u64,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct BatchNode {
    pub context: usize,
    pub count: u32,
    pub padding: u32,
    pub operations: usize,
    pub flags: u32,
    pub padding_behind: u32,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct KernelNode {
    pub function: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub padding: u32,
    pub parameters: usize,
    pub extra: usize,
    pub kernel: usize,
    pub context: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`: what CUDA 11 has of [`KernelNode`].
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct FirstKernelNode {
    pub function: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub padding: u32,
    pub parameters: usize,
    pub extra: usize,
}

/// `CUDA_HOST_NODE_PARAMS`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct HostNode {
    pub function: usize,
    pub argument: usize,
}

/// `CUgraphNodeParams`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct NodeParameters {
    pub kind: u32,
    pub reserved: [u32; 3],
    /// A union: what is in it depends on `kind`.
    pub content: [u64; 29],
    pub reserved_behind: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct CopyNode {
    pub flags: u32,
    pub reserved: u32,
    pub context: usize,
    pub copy: Copy3d,
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`, as of CUDA 12.9. Before, the ownership was unused.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct ChildNode {
    pub graph: usize,
    pub ownership: u32,
    pub padding: u32,
}

/// `CUDA_CONDITIONAL_NODE_PARAMS`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct ConditionalNode {
    pub handle: u64,
    pub kind: u32,
    pub size: u32,
    pub bodies: usize,
    pub context: usize,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct InstantiateParameters {
    pub flags: u64,
    pub upload_stream: usize,
    pub error_node: usize,
    pub result: u32,
    pub padding: u32,
}

/// `CUgraphExecUpdateResultInfo`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct UpdateResult {
    pub result: u32,
    pub padding: u32,
    pub error_node: usize,
    pub error_from_node: usize,
}

/// `CUgraphEdgeData`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct EdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub kind: u8,
    pub reserved: [u8; 5],
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct FillNode {
    pub destination: u64,
    pub pitch: u64,
    pub value: u32,
    pub element_bytes: u32,
    pub width: u64,
    pub height: u64,
}

/// One side of a `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct CopySide {
    pub x_bytes: u64,
    pub y: u64,
    pub z: u64,
    pub lod: u64,
    pub memory_type: u32,
    pub padding: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub reserved: u64,
    pub pitch: u64,
    pub height: u64,
}

/// One side of a `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct CopySide2d {
    pub x_bytes: u64,
    pub y: u64,
    pub memory_type: u32,
    pub padding: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub pitch: u64,
}

/// `CUDA_MEMCPY2D`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct Copy2d {
    pub source: CopySide2d,
    pub destination: CopySide2d,
    pub width_bytes: u64,
    pub height: u64,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct AllocationNode {
    pub pool: PoolProperties,
    pub accesses: usize,
    pub access_count: usize,
    pub bytes: usize,
    pub address: u64,
}

impl Default for AllocationNode {
    fn default() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }
}

/// `CUmemPoolProps`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct PoolProperties {
    pub kind: i32,
    pub handle_types: u32,
    pub location: Location,
    pub windows: u64,
    pub bytes_max: u64,
    pub usage: u16,
    pub rest: [u8; 54],
}

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`, which has contexts where the other has reserved
/// words.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct Copy3d {
    pub source: CopySide,
    pub destination: CopySide,
    pub width_bytes: u64,
    pub height: u64,
    pub depth: u64,
}

/// `CUlaunchConfig`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct LaunchConfiguration {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub padding: u32,
    pub stream: usize,
    pub attributes: usize,
    pub attributes_count: u32,
    pub padding_behind: u32,
}

/// `CUlaunchAttribute`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct LaunchAttribute {
    pub kind: u32,
    pub padding: u32,
    /// A union: what is in it depends on `kind`.
    pub value: [u32; 16],
}

/// `CUdevResource`, as of CUDA 13.0. What the API calls internal padding says which multiprocessors
/// these are.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Resource {
    pub kind: u32,
    pub mark: u32,
    pub device: u32,
    pub first: u32,
    pub padding: [u8; 80],
    pub multiprocessors: u32,
    pub partition_min: u32,
    pub alignment: u32,
    pub rest: [u8; 36],
}

/// `CUctxCreateParams`
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub struct ContextParameters {
    pub affinities: usize,
    pub affinities_count: i32,
    pub padding: u32,
    pub graphics: usize,
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
            FirstKernelNode = sys::CUDA_KERNEL_NODE_PARAMS_st;
            HostNode = sys::CUDA_HOST_NODE_PARAMS;
            NodeParameters = sys::CUgraphNodeParams;
            CopyNode = sys::CUDA_MEMCPY_NODE_PARAMS;
            ChildNode = sys::CUDA_CHILD_GRAPH_NODE_PARAMS;
            ConditionalNode = sys::CUDA_CONDITIONAL_NODE_PARAMS;
            InstantiateParameters = sys::CUDA_GRAPH_INSTANTIATE_PARAMS;
            UpdateResult = sys::CUgraphExecUpdateResultInfo;
            EdgeData = sys::CUgraphEdgeData;
            FillNode = sys::CUDA_MEMSET_NODE_PARAMS;
            Copy2d = sys::CUDA_MEMCPY2D;
            PoolProperties = sys::CUmemPoolProps;
            AllocationNode = sys::CUDA_MEM_ALLOC_NODE_PARAMS;
            Copy3d = sys::CUDA_MEMCPY3D;
            Copy3d = sys::CUDA_MEMCPY3D_PEER;
            LaunchConfiguration = sys::CUlaunchConfig;
            LaunchAttribute = sys::CUlaunchAttribute;
            Resource = sys::CUdevResource;
            ContextParameters = sys::CUctxCreateParams;
        }
        assert_eq!(
            offset_of!(AllocationProperties, flags),
            offset_of!(sys::CUmemAllocationProp, allocFlags)
        );
        assert_eq!(
            offset_of!(NodeParameters, content),
            offset_of!(sys::CUgraphNodeParams, __bindgen_anon_1)
        );
        assert_eq!(
            offset_of!(ConditionalNode, bodies),
            offset_of!(sys::CUDA_CONDITIONAL_NODE_PARAMS, phGraph_out)
        );
        assert_eq!(
            offset_of!(CopyNode, copy),
            offset_of!(sys::CUDA_MEMCPY_NODE_PARAMS, copyParams)
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
            offset_of!(Copy2d, destination),
            offset_of!(sys::CUDA_MEMCPY2D, dstXInBytes)
        );
        assert_eq!(
            offset_of!(PoolProperties, bytes_max),
            offset_of!(sys::CUmemPoolProps, maxSize)
        );
        assert_eq!(
            offset_of!(LaunchConfiguration, stream),
            offset_of!(sys::CUlaunchConfig, hStream)
        );
        assert_eq!(
            offset_of!(LaunchAttribute, value),
            offset_of!(sys::CUlaunchAttribute, value)
        );
        assert_eq!(
            offset_of!(Resource, multiprocessors),
            offset_of!(sys::CUdevResource, __bindgen_anon_1)
        );
    }
}
