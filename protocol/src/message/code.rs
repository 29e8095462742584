//! Structures of messages about code: modules, kernels, what kernels print, and tensors.

use super::{
    KERNEL_ATTRIBUTES, KERNEL_NAME_MAX, OUTPUT_BYTES, PARAMETERS_MAX, TENSOR_MAP_BYTES,
    TENSOR_RANK_MAX,
};
use crate::wire::structures;

structures! {
    /// Where the module image is, and where the host writes its log: in guest RAM or in the
    /// aperture.
    pub struct LoadModule {
        /// Handle of the address space in which the module's kernels run.
        pub space: u32,
        /// Size of the memory for the log in bytes; may be zero.
        pub log_bytes: u32,
        /// Guest-physical address of the image, or an offset into the aperture (see
        /// [`crate::message::APERTURE_ADDRESS`]).
        pub image_address: u64,
        /// Size of the image in bytes, at most [`crate::message::MODULE_BYTES_MAX`].
        pub image_bytes: u64,
        /// Address to which the host writes the log (in UTF-8, without a zero at the end):
        /// guest-physical, or an offset into the aperture (see
        /// [`crate::message::APERTURE_ADDRESS`]).
        pub log_address: u64,
    } = 32

    /// Handle of the new module; or, if the module was refused, the length of the log that says
    /// why.
    pub struct LoadModuleReply {
        /// Handle of the module; zero if the module was refused.
        pub handle: u32,
        /// Number of bytes that the host has written to the log.
        pub log_bytes: u32,
    } = 8

    /// Names a kernel of a module.
    pub struct GetKernel {
        /// Handle of the module.
        pub module: u32,
        /// Number of bytes of `name` that are in use.
        pub name_bytes: u32,
        /// Name of the kernel in UTF-8, padded with zeros.
        pub name: [u8; KERNEL_NAME_MAX],
    } = 520

    /// Handle of a kernel, its limits, and the layout of its parameters.
    pub struct KernelReply {
        /// Handle of the kernel, for launch packets; never zero.
        pub handle: u32,
        /// Number of parameters of the kernel. As many entries of `layout` are in use.
        pub parameters: u32,
        /// Size in bytes of the parameter block that a launch must have.
        pub parameter_bytes: u32,
        /// Maximum number of threads in a block of this kernel.
        pub block_threads_max: u32,
        /// Size in bytes of the static shared memory that each block of the kernel uses.
        pub shared_bytes: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// Offset and size of each parameter, in the order in which the kernel declares the
        /// parameters.
        pub layout: [Parameter; PARAMETERS_MAX],
    } = 536

    /// Position of a kernel parameter in the parameter block.
    pub struct Parameter {
        /// Offset of the parameter in the block, in bytes.
        pub offset: u16,
        /// Size of the parameter in bytes.
        pub size: u16,
    } = 4

    /// Names a variable of a module.
    pub struct GetVariable {
        /// Handle of the module.
        pub module: u32,
        /// Number of bytes of `name` that are in use.
        pub name_bytes: u32,
        /// Name of the variable in UTF-8, padded with zeros.
        pub name: [u8; KERNEL_NAME_MAX],
    } = 520

    /// Where a variable is.
    pub struct VariableReply {
        /// GPU virtual address of the variable.
        pub address: u64,
        /// Size of the variable in bytes.
        pub bytes: u64,
    } = 16

    /// The CUDA attributes of a kernel.
    pub struct KernelFacts {
        /// Values of the function attributes (`CUfunction_attribute`) from number 0 on, or
        /// [`crate::message::UNKNOWN_ATTRIBUTE`].
        pub attributes: [i32; KERNEL_ATTRIBUTES],
        /// Bit set of [`crate::message::kernel_flags`].
        pub flags: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 72

    /// Names a kernel of a module by its index, and a part of its name.
    pub struct KernelNameAt {
        /// Handle of the module.
        pub module: u32,
        /// Index of the kernel, from 0.
        pub index: u32,
        /// Offset of the first byte of the name that is wanted.
        pub offset: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 16

    /// A part of the name of a kernel.
    pub struct KernelNameReply {
        /// Number of kernels of the module.
        pub kernels: u32,
        /// Length of the whole name in bytes.
        pub name_bytes: u32,
        /// The name from the requested offset on, padded with zeros.
        pub name: [u8; KERNEL_NAME_MAX],
    } = 520

    /// Names a kernel of a module by its index.
    pub struct GetKernelAt {
        /// Handle of the module.
        pub module: u32,
        /// Index of the kernel, from 0.
        pub index: u32,
    } = 8

    /// Text that kernels have printed.
    pub struct OutputReply {
        /// Number of bytes of `text` that are in use. If all are, there may be more text.
        pub text_bytes: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// The oldest text that no earlier message returned, padded with zeros.
        pub text: [u8; OUTPUT_BYTES],
    } = 2048

    /// A tensor to describe. Enumerations are those of the CUDA driver API. All words that the kind
    /// does not name are zero.
    pub struct EncodeTensorMap {
        /// Handle of the address space.
        pub space: u32,
        /// What to do, a [`crate::message::TensorMapKind`].
        pub kind: u32,
        /// GPU virtual address of the tensor, which is mapped, or zero.
        pub address: u64,
        /// Type of the elements (`CUtensorMapDataType`).
        pub data_type: u32,
        /// Number of dimensions, at most 5.
        pub rank: u32,
        /// Layout of the elements (`CUtensorMapInterleave`).
        pub interleave: u32,
        /// Order of banks in shared memory (`CUtensorMapSwizzle`).
        pub swizzle: u32,
        /// What the L2 cache fetches (`CUtensorMapL2promotion`).
        pub promotion: u32,
        /// What elements outside of the tensor are (`CUtensorMapFloatOOBfill`).
        pub fill: u32,
        /// Elements in each dimension.
        pub dimensions: [u64; TENSOR_RANK_MAX],
        /// Bytes from one element to the next, in each dimension but the first.
        pub strides: [u64; TENSOR_RANK_MAX - 1],
        /// Steps in each dimension, in elements.
        pub element_strides: [u32; TENSOR_RANK_MAX],
        /// Tiled: elements of a box in each dimension.
        pub box_elements: [u32; TENSOR_RANK_MAX],
        /// Im2col: the lower corner of the box of pixels, in two's complement.
        pub lower_corner: [u32; TENSOR_RANK_MAX - 2],
        /// Im2col: the upper corner of the box of pixels, in two's complement.
        pub upper_corner: [u32; TENSOR_RANK_MAX - 2],
        /// Im2col: channels of each pixel.
        pub channels: u32,
        /// Im2col: pixels of each column.
        pub pixels: u32,
        /// Replace: the description.
        pub map: [u8; TENSOR_MAP_BYTES],
    } = 312

    /// The description of a tensor.
    pub struct TensorMapReply {
        /// Result of the CUDA driver (`CUresult`): zero if there is a description.
        pub cuda_result: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// The description.
        pub map: [u8; TENSOR_MAP_BYTES],
    } = 136
}
