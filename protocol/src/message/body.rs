//! Structures of messages.

use super::{
    DEVICE_ATTRIBUTES, KERNEL_ATTRIBUTES, KERNEL_NAME_MAX, OUTPUT_BYTES, PARAMETERS_MAX,
    TENSOR_MAP_BYTES, TENSOR_RANK_MAX, TOKEN_BYTES,
};
use crate::wire::structures;

structures! {
    /// Header at the beginning of every message.
    pub struct Header {
        /// Operation of the message: a [`crate::message::Opcode`].
        pub opcode: u16,
        /// Reserved: zero.
        pub reserved: u16,
        /// Length of the whole message in bytes: the header, and the larger of the operation's
        /// request and reply structures.
        pub length: u32,
        /// Zero in a request; a [`crate::message::Status`] in a reply.
        pub status: u32,
        /// Zero in a request. In a reply, a number that explains the status (see
        /// [`crate::message::Status`]).
        pub detail: u32,
    } = 16

    /// Version of the protocol that the guest speaks.
    pub struct Hello {
        /// Major version; must equal the host's.
        pub major: u16,
        /// Minor version. The session uses the smaller of the guest's and the host's.
        pub minor: u16,
        /// Reserved: zero.
        pub reserved: u32,
    } = 8

    /// Version of the protocol that the session uses, and its features.
    pub struct HelloReply {
        /// Major version, which is the same for guest and host.
        pub major: u16,
        /// Minor version: the smaller of the guest's and the host's.
        pub minor: u16,
        /// Reserved: zero.
        pub reserved: u32,
        /// Features of the session, a bit set of [`crate::registers::features`].
        pub features: u64,
        /// Number that identifies this session in the mediator's logs.
        pub session: u64,
    } = 24

    /// What the device is and what the session may use.
    pub struct Attributes {
        /// Name of back end and device, in UTF-8, padded with zeros.
        pub name: [u8; 64],
        /// Maximum GPU memory that the session may have, in bytes.
        pub memory_bytes: u64,
        /// GPU memory that the session has allocated now, in bytes.
        pub memory_used_bytes: u64,
        /// Granularity of allocations in bytes: the size of an allocation is rounded up to a
        /// multiple of it.
        pub granularity_bytes: u64,
        /// Lowest GPU virtual address of an address space.
        pub va_base: u64,
        /// Size of an address space in bytes.
        pub va_bytes: u64,
        /// Maximum number of allocations of the session.
        pub allocations_max: u32,
        /// Maximum number of command buffers of the session.
        pub command_buffers_max: u32,
        /// Number of multiprocessors of the GPU, or of CPU cores of the software back end.
        pub compute_units: u32,
        /// Number of threads in a warp.
        pub warp_threads: u32,
        /// Maximum number of threads in a block.
        pub block_threads_max: u32,
        /// Maximum shared memory of a block in bytes.
        pub shared_bytes_max: u32,
    } = 128

    /// The fault that caused the session to be lost.
    pub struct FaultReport {
        /// Kind of the fault, a [`crate::message::Status`]; `Ok` if the session is not lost.
        pub status: u32,
        /// Number of bytes of `text` that are in use.
        pub text_bytes: u32,
        /// What is known about the fault, such as kernel, thread and address, in UTF-8.
        pub text: [u8; 232],
        /// The fault as a result of the CUDA driver API (`CUresult`), such as 700; zero if it is
        /// unknown (since 1.3; the bytes of the rest are text before).
        pub cuda_result: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 248

    /// No content: the request or the reply is only a header.
    pub struct Empty {
    } = 0

    /// Names the object on which the operation acts.
    pub struct HandleRequest {
        /// Handle of the object.
        pub handle: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 8

    /// Handle of the object that the operation has created.
    pub struct HandleReply {
        /// Handle of the new object; never zero.
        pub handle: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 8

    /// Size and kind of the memory to allocate.
    pub struct Allocate {
        /// Size in bytes, not zero. The device rounds it up to the granularity of allocations.
        pub size: u64,
        /// Kind of the memory, a [`crate::message::MemoryKind`].
        pub kind: u32,
        /// Bit set of [`crate::message::allocate_flags`]; all other bits are zero.
        pub flags: u32,
    } = 16

    /// Handle of memory that was allocated, imported or registered.
    pub struct AllocateReply {
        /// Handle of the memory; never zero.
        pub handle: u32,
        /// Maximum access rights of mappings of this memory, an [`crate::Access`].
        pub access: u32,
        /// Size of the memory in bytes, rounded up to the granularity of allocations.
        pub size: u64,
    } = 16

    /// Range of an allocation to map at a GPU virtual address.
    pub struct MapGpu {
        /// Handle of the address space.
        pub space: u32,
        /// Handle of the memory: an allocation, an import or registered RAM.
        pub allocation: u32,
        /// Offset of the range in the memory, in bytes; page-aligned.
        pub offset: u64,
        /// Length of the range in bytes; page-aligned, not zero.
        pub length: u64,
        /// GPU virtual address, page-aligned; zero lets the host choose one.
        pub address: u64,
        /// Access rights of the mapping, an [`crate::Access`].
        pub access: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 40

    /// Address of the new mapping.
    pub struct AddressReply {
        /// First GPU virtual address of the mapping, or its offset in the aperture.
        pub address: u64,
    } = 8

    /// Names a mapping by its first address.
    pub struct SpaceAddress {
        /// Handle of the address space; zero for a mapping in the aperture.
        pub space: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// First GPU virtual address of the mapping, or its offset in the aperture: the address
        /// that the message which created the mapping returned.
        pub address: u64,
    } = 16

    /// Range of an allocation to map into the aperture.
    pub struct MapCpu {
        /// Handle of the memory: an allocation or an import.
        pub allocation: u32,
        /// Access rights of the mapping, an [`crate::Access`].
        pub access: u32,
        /// Offset of the range in the memory, in bytes; page-aligned.
        pub offset: u64,
        /// Length of the range in bytes; page-aligned, not zero.
        pub length: u64,
    } = 24

    /// Names a mapping, and its new access rights.
    pub struct SetAccess {
        /// Handle of the address space; zero for a mapping in the aperture.
        pub space: u32,
        /// New access rights of the mapping, an [`crate::Access`].
        pub access: u32,
        /// First GPU virtual address of the mapping, or its offset in the aperture.
        pub address: u64,
    } = 16

    /// Names an allocation to export, and the rights to grant.
    pub struct Export {
        /// Handle of an allocation of this session.
        pub allocation: u32,
        /// Maximum access rights of an import of this export, an [`crate::Access`]; not `None`.
        pub access: u32,
    } = 8

    /// The secret token of an export.
    pub struct Token {
        /// Random bytes that are the token.
        pub token: [u8; TOKEN_BYTES],
    } = 32

    /// Names another session's export, and the access rights that the importer wants.
    pub struct Import {
        /// Token of the export.
        pub token: [u8; TOKEN_BYTES],
        /// Access rights that the importer wants, an [`crate::Access`]; not `None`.
        pub access: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 40

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

    /// Memory in which to create a command buffer.
    pub struct CreateCommandBuffer {
        /// Handle of the address space to which the GPU virtual addresses in the packets belong.
        pub space: u32,
        /// Handle of the memory: an allocation of host kind of this session (not an import), or
        /// registered RAM.
        pub allocation: u32,
        /// Offset of the command buffer in the memory, in bytes; page-aligned.
        pub offset: u64,
        /// Length in bytes: that of a header page and a ring whose number of units is a power of
        /// two (see [`crate::ring`]).
        pub length: u64,
    } = 24

    /// Handle and doorbell of the new command buffer.
    pub struct CommandBufferReply {
        /// Handle of the command buffer; never zero.
        pub handle: u32,
        /// Number of the command buffer's doorbell in BAR 4.
        pub doorbell: u32,
    } = 8

    /// Range of guest RAM to register.
    pub struct RegisterRam {
        /// First guest-physical address; page-aligned.
        pub address: u64,
        /// Length of the range in bytes; page-aligned, not zero.
        pub length: u64,
    } = 16

    /// Packets in guest RAM or in the aperture, of which the device makes a recording.
    pub struct CreateRecording {
        /// Handle of the address space to which the GPU virtual addresses in the packets belong.
        pub space: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// Guest-physical address of the first packet, or an offset into the aperture (see
        /// [`crate::message::APERTURE_ADDRESS`]).
        pub address: u64,
        /// Size of all packets in bytes: a multiple of 64, not zero, at most
        /// [`crate::message::RECORDING_BYTES_MAX`].
        pub bytes: u64,
    } = 24

    /// Names a fence and the value to wait for.
    pub struct Wait {
        /// Handle of the address space in which the fence's address is.
        pub space: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// GPU virtual address of the fence; a multiple of 8.
        pub address: u64,
        /// Value that the fence must reach.
        pub value: u64,
        /// Maximum time to wait, in nanoseconds.
        pub timeout_ns: u64,
    } = 32

    /// Names a fence and the value at which to raise an interrupt.
    pub struct Notify {
        /// Handle of the address space in which the fence's address is.
        pub space: u32,
        /// Reserved: zero.
        pub reserved: u32,
        /// GPU virtual address of the fence; a multiple of 8.
        pub address: u64,
        /// Value that the fence must reach.
        pub value: u64,
    } = 24

    /// Whether the device will raise the interrupt.
    pub struct NotifyReply {
        /// 1 if the fence has already reached the value, so that no interrupt will be raised;
        /// otherwise 0.
        pub reached: u32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 8

    /// What identifies the device, and its CUDA device attributes.
    pub struct DeviceFacts {
        /// Name of the device alone, in UTF-8, padded with zeros.
        pub name: [u8; 128],
        /// UUID of the device.
        pub uuid: [u8; 16],
        /// Memory that the session can use at most, in bytes.
        pub memory_bytes: u64,
        /// Domain of the device's PCI address; zero if the device is no PCI function.
        pub pci_domain: u32,
        /// Bus of the device's PCI address.
        pub pci_bus: u32,
        /// Device number of the device's PCI address.
        pub pci_device: u32,
        /// Major number of the compute capability: 9 for `sm_90`; zero without kernels.
        pub capability_major: u32,
        /// Minor number of the compute capability.
        pub capability_minor: u32,
        /// Newest version of CUDA that the back end supports, as 1000 times the major number plus
        /// 10 times the minor number; zero without kernels.
        pub cuda_version: u32,
        /// Values of the CUDA device attributes (`CUdevice_attribute`) from number 1 on, or
        /// [`crate::message::UNKNOWN_ATTRIBUTE`].
        pub attributes: [i32; DEVICE_ATTRIBUTES],
    } = 816

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
    /// How long a session has had work under way. The share of an interval comes from two replies.
    pub struct BusyReply {
        /// The host's clock, in nanoseconds from an arbitrary moment.
        pub clock_ns: u64,
        /// Time until then in which the session had kernels, copies or fills under way on the GPU,
        /// in nanoseconds. All clients of the session count.
        pub busy_ns: u64,
    } = 16
}
