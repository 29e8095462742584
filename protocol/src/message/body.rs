//! Structures of messages, except those about code.

use super::{DEVICE_ATTRIBUTES, FABRIC_HANDLE_BYTES, GPU_RANKS, TOKEN_BYTES};
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
        /// Most urgent priority of a command buffer, negative, if the session has the feature
        /// [`crate::registers::features::PRIORITIES`] and uses version 1.4 or later; else zero.
        pub greatest_priority: i32,
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
        /// Handle of the memory: an allocation, an import or registered RAM. A mapping of memory of
        /// a GPU that cannot be a peer ([`GpusReply::copies`]) is for copy packets between it and
        /// memory of the session's own GPU. Anything else that uses it is a memory fault: kernels,
        /// fills, fences, timestamps, and copies of recordings.
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
        /// The GPUs whose sessions can import the allocation, by their numbers: bit `n` stands for
        /// GPU `n`. Zero stands for the GPU of this session (since 1.4). What those that cannot be
        /// its peers reach by copies only ([`GpusReply::copies`]) is memory of the device; they use
        /// host memory like the GPU of this session.
        pub gpus: u64,
    } = 16

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

    /// A handle by which other machines of the NVLink fabric can import memory.
    pub struct FabricHandle {
        /// The handle as the GPU's driver made it (`CUmemFabricHandle`).
        pub handle: [u8; FABRIC_HANDLE_BYTES],
    } = 64

    /// Names memory by its fabric handle.
    pub struct ImportFabric {
        /// The handle, as its owner's driver made it.
        pub handle: [u8; FABRIC_HANDLE_BYTES],
        /// Size of the memory in bytes, which its owner knows: a multiple of the granularity of
        /// allocations. Another one is refused (`BadMemory`). Zero imports nothing, and only asks
        /// whether memory has this handle now: handle, rights and size of the reply are zero then.
        pub size: u64,
    } = 72

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

    /// Memory in which to create a command buffer, and the priority of its work.
    pub struct CreatePriorityCommandBuffer {
        /// Handle of the address space to which the GPU virtual addresses in the packets belong.
        pub space: u32,
        /// Handle of the memory, as in [`crate::message::CreateCommandBuffer`].
        pub allocation: u32,
        /// Offset of the command buffer in the memory, in bytes; page-aligned.
        pub offset: u64,
        /// Length in bytes, as in [`crate::message::CreateCommandBuffer`].
        pub length: u64,
        /// Priority as CUDA counts it: 0 is the least urgent, which other command buffers have,
        /// and a smaller number is more urgent, down to
        /// [`crate::message::HelloReply::greatest_priority`]. The device brings other numbers into
        /// this range.
        pub priority: i32,
        /// Reserved: zero.
        pub reserved: u32,
    } = 32

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

    /// The GPUs of a run, as one of them sees them.
    pub struct GpusReply {
        /// Number of the session's own GPU, from 0.
        pub gpu: u32,
        /// Number of GPUs of the run, at most [`crate::message::GPUS_MAX`]. A guest has a function
        /// for each of its GPUs, in the order of their numbers; it need not have all of them.
        pub gpus: u32,
        /// The GPUs that can be peers of the own one: their kernels can reach its memory, and its
        /// kernels theirs, where an export allows it. Bit `n` stands for GPU `n`; the bit of the
        /// own GPU is 0.
        pub peers: u64,
        /// The GPUs that cannot be peers of the own one. Where an export allows it, copies of
        /// theirs reach its memory, and copies of the own GPU theirs, through memory of the host;
        /// kernels do not. Bits as in `peers`.
        pub copies: u64,
        /// The peers with which atomic operations of kernels work across the link in both
        /// directions, as over NVLink, and not over PCI Express. Bits as in `peers`.
        pub atomics: u64,
        /// Ranks of the ways from the own GPU to memory of each peer, by their performance: 0 is
        /// the best rank, which several can have. [`crate::message::UNKNOWN_RANK`] if it is not
        /// known, or the GPU is no peer. Byte `n` stands for GPU `n`.
        pub ranks: [u8; GPU_RANKS],
    } = 96

    /// How long a session has had work under way. The share of an interval comes from two replies.
    pub struct BusyReply {
        /// The host's clock, in nanoseconds from an arbitrary moment.
        pub clock_ns: u64,
        /// Time until then in which the session had kernels, copies or fills under way on the GPU,
        /// in nanoseconds. All clients of the session count.
        pub busy_ns: u64,
    } = 16
}
