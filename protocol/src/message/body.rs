//! Structures of messages.

use super::{FUNCTION_NAME_MAX, PARAMETERS_MAX, TOKEN_BYTES};
use crate::wire::structures;

structures! {
    /// Head of every message.
    pub struct Header {
        /// [`crate::message::Opcode`].
        pub opcode: u16,
        /// Zero.
        pub reserved: u16,
        /// Bytes of the whole message, head included; what the opcode wants, exactly.
        pub length: u32,
        /// Zero in a request; [`crate::message::Status`] in a reply.
        pub status: u32,
        /// Zero in a request; a number that goes with the status in a reply (see
        /// [`crate::message::Status`]).
        pub detail: u32,
    } = 16

    /// Version the guest speaks.
    pub struct Hello {
        /// Must equal the host's.
        pub major: u16,
        /// Any; both sides then use the smaller.
        pub minor: u16,
        /// Zero.
        pub reserved: u32,
    } = 8

    /// Version the session speaks.
    pub struct HelloReply {
        /// Major version.
        pub major: u16,
        /// The smaller of the two minors.
        pub minor: u16,
        /// Zero.
        pub reserved: u32,
        /// Bit set of [`crate::registers::features`].
        pub features: u64,
        /// Number of this session in its mediator, for logs.
        pub session: u64,
    } = 24

    /// What the device is and what the session may use.
    pub struct Attributes {
        /// Name of the back end and device, UTF-8, zero-padded.
        pub name: [u8; 64],
        /// GPU memory the session may have, in bytes.
        pub memory_bytes: u64,
        /// GPU memory it has now, in bytes.
        pub memory_used_bytes: u64,
        /// Sizes of allocations are rounded up to this, in bytes.
        pub granularity_bytes: u64,
        /// Lowest GPU virtual address of an address space.
        pub va_base: u64,
        /// Size of an address space in bytes.
        pub va_bytes: u64,
        /// Allocations the session may have.
        pub allocations_max: u32,
        /// Command buffers the session may have.
        pub command_buffers_max: u32,
        /// Multiprocessors, or CPU cores of the software back end.
        pub compute_units: u32,
        /// Threads in a warp.
        pub warp_threads: u32,
        /// Threads in a block, at most.
        pub block_threads_max: u32,
        /// Shared memory of a block in bytes, at most.
        pub shared_bytes_max: u32,
    } = 128

    /// What ended the session.
    pub struct FaultReport {
        /// [`crate::message::Status`]; `Ok` if the session is alive.
        pub status: u32,
        /// Bytes of `text` in use.
        pub text_bytes: u32,
        /// Kernel, thread and address, or whatever is known, UTF-8.
        pub text: [u8; 240],
    } = 248

    /// Nothing.
    pub struct Empty {
    } = 0

    /// One handle.
    pub struct HandleRequest {
        /// The handle.
        pub handle: u32,
        /// Zero.
        pub reserved: u32,
    } = 8

    /// The handle of something new.
    pub struct HandleReply {
        /// The handle; never zero.
        pub handle: u32,
        /// Zero.
        pub reserved: u32,
    } = 8

    /// A new allocation.
    pub struct Allocate {
        /// Size in bytes; not zero; rounded up to the granularity.
        pub size: u64,
        /// [`crate::message::MemoryKind`].
        pub kind: u32,
        /// Bit set of [`crate::message::allocate_flags`]; bits without a meaning are zero.
        pub flags: u32,
    } = 16

    /// A new handle to memory.
    pub struct AllocateReply {
        /// The handle; never zero.
        pub handle: u32,
        /// [`crate::Access`] the handle gives.
        pub access: u32,
        /// Size in bytes after rounding.
        pub size: u64,
    } = 16

    /// A range of an allocation at a GPU virtual address.
    pub struct MapGpu {
        /// Address space.
        pub space: u32,
        /// Allocation, import or registered RAM.
        pub allocation: u32,
        /// Offset into it in bytes; page-aligned.
        pub offset: u64,
        /// Length in bytes; page-aligned, not zero.
        pub length: u64,
        /// Address wanted, or zero for any; page-aligned.
        pub address: u64,
        /// [`crate::Access`].
        pub access: u32,
        /// Zero.
        pub reserved: u32,
    } = 40

    /// Where something was mapped: a GPU virtual address, or an offset into the aperture.
    pub struct AddressReply {
        /// The address.
        pub address: u64,
    } = 8

    /// A mapping, by its first address.
    pub struct SpaceAddress {
        /// Address space; zero for the aperture.
        pub space: u32,
        /// Zero.
        pub reserved: u32,
        /// First GPU virtual address, or offset into the aperture, as the mapping message returned
        /// it.
        pub address: u64,
    } = 16

    /// A range of an allocation in the aperture.
    pub struct MapCpu {
        /// Allocation or import.
        pub allocation: u32,
        /// [`crate::Access`].
        pub access: u32,
        /// Offset into it in bytes; page-aligned.
        pub offset: u64,
        /// Length in bytes; page-aligned, not zero.
        pub length: u64,
    } = 24

    /// New access rights of a mapping.
    pub struct SetAccess {
        /// Address space; zero for the aperture.
        pub space: u32,
        /// [`crate::Access`].
        pub access: u32,
        /// First address of the mapping.
        pub address: u64,
    } = 16

    /// An allocation to be shared.
    pub struct Export {
        /// Allocation of this session.
        pub allocation: u32,
        /// [`crate::Access`] that importers get at most; not none.
        pub access: u32,
    } = 8

    /// An unguessable name of an export.
    pub struct Token {
        /// Random bytes.
        pub token: [u8; TOKEN_BYTES],
    } = 32

    /// An allocation of another session.
    pub struct Import {
        /// The export's token.
        pub token: [u8; TOKEN_BYTES],
        /// [`crate::Access`] wanted; not none.
        pub access: u32,
        /// Zero.
        pub reserved: u32,
    } = 40

    /// A module image in guest RAM, or in the aperture.
    pub struct LoadModule {
        /// Address space it will run in.
        pub space: u32,
        /// Room for a log in bytes; may be zero.
        pub log_bytes: u32,
        /// Guest-physical address of the image, or an offset into the aperture (see
        /// [`crate::message::APERTURE_ADDRESS`]).
        pub image_address: u64,
        /// Bytes of the image, at most [`crate::message::MODULE_BYTES_MAX`].
        pub image_bytes: u64,
        /// Address for the log (UTF-8, not terminated), as for the image.
        pub log_address: u64,
    } = 32

    /// A module, or the log of why there is none.
    pub struct LoadModuleReply {
        /// The handle; zero if the module was refused.
        pub handle: u32,
        /// Bytes written to the log.
        pub log_bytes: u32,
    } = 8

    /// A kernel's name.
    pub struct GetFunction {
        /// Module.
        pub module: u32,
        /// Bytes of `name` in use.
        pub name_bytes: u32,
        /// The name; bytes not in use are zero.
        pub name: [u8; FUNCTION_NAME_MAX],
    } = 520

    /// A kernel and how its parameters lie.
    pub struct FunctionReply {
        /// The handle, for launch packets; never zero.
        pub handle: u32,
        /// Number of parameters.
        pub parameters: u32,
        /// Bytes of the parameter block that a launch must bring.
        pub parameter_bytes: u32,
        /// Threads in a block at most, for this kernel.
        pub block_threads_max: u32,
        /// Static shared memory in bytes.
        pub shared_bytes: u32,
        /// Zero.
        pub reserved: u32,
        /// Offset and size of each parameter, in order.
        pub layout: [Parameter; PARAMETERS_MAX],
    } = 536

    /// Where one kernel parameter lies in the parameter block.
    pub struct Parameter {
        /// Offset in bytes.
        pub offset: u16,
        /// Size in bytes.
        pub size: u16,
    } = 4

    /// Memory that becomes a command buffer.
    pub struct CreateCommandBuffer {
        /// Address space its packets work in.
        pub space: u32,
        /// Allocation of host kind of this session (not an import), or registered RAM.
        pub allocation: u32,
        /// Offset into it in bytes; page-aligned.
        pub offset: u64,
        /// Length in bytes: one header page and a power-of-two number of units
        /// (see [`crate::ring`]).
        pub length: u64,
    } = 24

    /// A command buffer.
    pub struct CommandBufferReply {
        /// The handle; never zero.
        pub handle: u32,
        /// Number of its doorbell in BAR 4.
        pub doorbell: u32,
    } = 8

    /// A range of guest RAM.
    pub struct RegisterRam {
        /// Guest-physical address; page-aligned.
        pub address: u64,
        /// Length in bytes; page-aligned, not zero.
        pub length: u64,
    } = 16

    /// Packets in guest RAM, or in the aperture, that become a recording.
    pub struct CreateRecording {
        /// Address space in which the packets of this ring work.
        pub space: u32,
        /// Zero.
        pub reserved: u32,
        /// Guest-physical address of the first packet, or an offset into the aperture (see
        /// [`crate::message::APERTURE_ADDRESS`]).
        pub address: u64,
        /// Bytes of all packets: a multiple of the unit, not zero, at most
        /// [`crate::message::RECORDING_BYTES_MAX`].
        pub bytes: u64,
    } = 24

    /// A fence and the value to wait for.
    pub struct Wait {
        /// Address space of the fence.
        pub space: u32,
        /// Zero.
        pub reserved: u32,
        /// GPU virtual address of the fence; 8-byte aligned.
        pub address: u64,
        /// Value it must reach.
        pub value: u64,
        /// How long to sleep at most, in nanoseconds.
        pub timeout_ns: u64,
    } = 32

    /// A fence and the value at which an interrupt is wanted.
    pub struct Notify {
        /// Address space of the fence.
        pub space: u32,
        /// Zero.
        pub reserved: u32,
        /// GPU virtual address of the fence; 8-byte aligned.
        pub address: u64,
        /// Value it must reach.
        pub value: u64,
    } = 24

    /// Whether there will be an interrupt.
    pub struct NotifyReply {
        /// 1 if the fence has reached the value already: then there will be none. Else 0.
        pub reached: u32,
        /// Zero.
        pub reserved: u32,
    } = 8
}
