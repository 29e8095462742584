//! Control messages.
//!
//! A batch is a sequence of messages in the control area. Each message is a [`Header`] and a body of
//! the fixed size that belongs to its opcode: the request, overwritten by the reply (the body is as
//! large as the larger of the two; the rest is zero). Messages are executed in order. The first that
//! fails ends the batch; those behind it get [`Status::NotRun`].
//!
//! A handle of [`PREVIOUS`] stands for the handle that the most recent message in the same batch
//! returned: allocate, map for the GPU and map for the CPU is one batch, hence one exit.

use crate::wire::{Value, structures};

/// Handle that stands for the one which the latest creating message of the same batch returned.
pub const PREVIOUS: u32 = u32::MAX;
/// Largest module image in bytes.
pub const MODULE_BYTES_MAX: u64 = 16 << 20;
/// Longest function name in bytes.
pub const FUNCTION_NAME_MAX: usize = 512;
/// Most parameters of a function that its layout lists.
pub const PARAMETERS_MAX: usize = 128;
/// Length of an export token in bytes.
pub const TOKEN_BYTES: usize = 32;

macro_rules! opcodes {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal, $request:ident => $reply:ident;)*) => {
        /// What a message asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Opcode { $($(#[doc = $doc])* $name = $value,)* }

        /// Every opcode, for tables and tests.
        pub const OPCODES: &[Opcode] = &[$(Opcode::$name,)*];

        /// The opcodes with their meaning, for the documentation.
        pub const OPCODE_VALUES: &[Value] =
            &[$(Value { name: stringify!($name), doc: concat!($($doc,)*), value: $value },)*];

        impl Opcode {
            /// Decodes the wire value.
            pub const fn from_wire(value: u16) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }

            /// Short name, as reports, logs and the documentation print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Bytes of a request body.
            pub const fn request_bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$request>(),)* }
            }

            /// Bytes of a reply body.
            pub const fn reply_bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$reply>(),)* }
            }

            /// Names of the request and reply structures, for the documentation.
            pub const fn structures(self) -> (&'static str, &'static str) {
                match self { $(Self::$name => (stringify!($request), stringify!($reply)),)* }
            }
        }

        $(const _: () = {
            assert!(size_of::<$request>().is_multiple_of(8));
            assert!(size_of::<$reply>().is_multiple_of(8));
        };)*
    };
}

opcodes! {
    /// First message of a session: agree on a version.
    Hello = 1, "hello", Hello => HelloReply;
    /// What the device is, and what this session may use.
    QueryAttributes = 2, "query_attributes", Empty => Attributes;
    /// What ended the session.
    QueryFault = 3, "query_fault", Empty => FaultReport;
    /// New GPU address space.
    CreateSpace = 4, "create_space", Empty => HandleReply;
    /// End an address space, its mappings, modules and command buffers.
    DestroySpace = 5, "destroy_space", HandleRequest => Empty;
    /// New allocation, zeroed.
    Allocate = 6, "allocate", Allocate => AllocateReply;
    /// Give an allocation up, with every mapping of it in this session.
    Free = 7, "free", HandleRequest => Empty;
    /// Map (a part of) an allocation at a GPU virtual address.
    MapGpu = 8, "map_gpu", MapGpu => AddressReply;
    /// End a GPU mapping.
    UnmapGpu = 9, "unmap_gpu", SpaceAddress => Empty;
    /// Map (a part of) an allocation into the aperture.
    MapCpu = 10, "map_cpu", MapCpu => AddressReply;
    /// End an aperture mapping.
    UnmapCpu = 11, "unmap_cpu", SpaceAddress => Empty;
    /// Change the access rights of a GPU or an aperture mapping.
    SetAccess = 12, "set_access", SetAccess => Empty;
    /// Make a token with which another session can import an allocation.
    Export = 13, "export", Export => Token;
    /// Allocation of another session, by token.
    Import = 14, "import", Import => AllocateReply;
    /// Take an export back, with every import made from it.
    Revoke = 15, "revoke", Token => Empty;
    /// Load a module into an address space.
    LoadModule = 16, "load_module", LoadModule => LoadModuleReply;
    /// Unload a module.
    UnloadModule = 17, "unload_module", HandleRequest => Empty;
    /// Look a kernel up by name; gives its parameter layout.
    GetFunction = 18, "get_function", GetFunction => FunctionReply;
    /// Make a command buffer out of host memory that the guest can write.
    CreateCommandBuffer = 19, "create_command_buffer", CreateCommandBuffer => CommandBufferReply;
    /// End a command buffer; packets not yet executed are dropped.
    DestroyCommandBuffer = 20, "destroy_command_buffer", HandleRequest => Empty;
    /// Register guest RAM, so that it can be mapped for the GPU like an allocation.
    RegisterRam = 21, "register_ram", RegisterRam => AllocateReply;
    /// Sleep until a fence reaches a value.
    Wait = 22, "wait", Wait => Empty;
}

/// Bytes of a whole message of this opcode: head and body.
pub const fn message_bytes(opcode: Opcode) -> usize {
    let (request, reply) = (opcode.request_bytes(), opcode.reply_bytes());
    size_of::<Header>() + if request > reply { request } else { reply }
}

macro_rules! statuses {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal;)*) => {
        /// How a message, a batch, or a command buffer ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Status { $($(#[doc = $doc])* $name = $value,)* }

        /// Every status, for tables and tests.
        pub const STATUSES: &[Status] = &[$(Status::$name,)*];

        /// The statuses with their meaning, for the documentation.
        pub const STATUS_VALUES: &[Value] =
            &[$(Value { name: stringify!($name), doc: concat!($($doc,)*), value: $value },)*];

        impl Status {
            /// Decodes the wire value.
            pub const fn from_wire(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }

            /// One clause in plain words.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

statuses! {
    /// Done.
    Ok = 0, "done";
    /// An earlier message of the batch failed. Detail: its index.
    NotRun = 1, "not run: an earlier message of the batch failed";
    /// The length of the batch or message is not what it must be. Detail: the length wanted.
    BadLength = 2, "length of the message is wrong";
    /// No such opcode.
    BadOpcode = 3, "no such operation";
    /// A reserved field is not zero. Detail: the offset of the first byte in the message.
    ReservedNotZero = 4, "a reserved field is not zero";
    /// The guest speaks another major version. Detail: major (upper half) and minor of the host.
    BadVersion = 5, "the host speaks another major version";
    /// The first message must be hello.
    NoHello = 6, "the session has not been opened with hello";
    /// No such handle, or one of another kind. Detail: the handle.
    BadHandle = 7, "no such handle of this kind in the session";
    /// Offset and length do not lie within the object.
    BadRange = 8, "range is outside the object";
    /// An address, an offset or a length is not aligned. Detail: the alignment wanted in bytes.
    BadAlignment = 9, "address, offset or length is not aligned";
    /// Not an access value, or one that means nothing here.
    BadAccess = 10, "not a valid access right";
    /// The holder's rights do not reach that far.
    AccessDenied = 11, "the rights held do not allow this";
    /// More GPU memory than the session may have. Detail: MiB still free.
    QuotaBytes = 12, "the session's memory quota is exhausted";
    /// More allocations than the session may have. Detail: the limit.
    QuotaAllocations = 13, "the session's allocation quota is exhausted";
    /// More command buffers than the session may have. Detail: the limit.
    QuotaCommandBuffers = 14, "the session's command buffer quota is exhausted";
    /// More address spaces, mappings, modules or exports than the session may have. Detail: the limit.
    QuotaObjects = 15, "the session's quota of other objects is exhausted";
    /// The host or the GPU has no memory left, or the aperture no room.
    NoMemory = 16, "out of memory or of address space";
    /// The GPU address asked for is taken or outside the address space.
    AddressInUse = 17, "the address is taken or outside the address space";
    /// No export has this token.
    BadToken = 18, "no such export token";
    /// The export behind this handle was taken back.
    Revoked = 19, "the export was revoked by its owner";
    /// The module image was refused; the log says where and why. Detail: the line, if there is one.
    BadModule = 20, "the module was refused";
    /// The module has no kernel of this name.
    NoFunction = 21, "the module has no kernel of this name";
    /// The memory cannot be used for this (kind, size or missing CPU mapping).
    BadMemory = 22, "this kind of memory cannot be used for that";
    /// The object is in use.
    Busy = 23, "the object is in use";
    /// The session was lost; reset it.
    DeviceLost = 24, "the device is lost: reset the session";
    /// The back end cannot do this.
    Unsupported = 25, "the back end cannot do this";
    /// The fence did not reach the value in time.
    TimedOut = 26, "timed out";
    /// A packet is malformed. Detail in the ring: its position.
    BadPacket = 27, "a packet is malformed";
    /// The producer position is behind the consumer or too far ahead of it.
    BadPosition = 28, "the producer position is impossible";
    /// A kernel's parameters have another size than the kernel wants.
    BadParameters = 29, "the kernel wants parameters of another size";
    /// Grid, block or shared memory beyond what the device can do.
    BadLaunch = 30, "the launch exceeds the device's limits";
    /// A GPU access outside the session's mappings, or against their rights.
    MemoryFault = 31, "the GPU touched memory that is not mapped for it";
    /// A kernel ended in a trap, a deadlock, or an instruction the back end refuses.
    KernelFault = 32, "the kernel faulted";
    /// The back end failed in a way that is not the guest's fault.
    BackEnd = 33, "the back end failed";
}

/// Kinds of memory a guest can allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum MemoryKind {
    /// On the device; the guest CPU does not see it.
    Device = 0,
    /// On the device and visible to the guest CPU (write-combining on real hardware).
    DeviceVisible = 1,
    /// Host memory, cached, registered with the GPU: rings, fences, staging.
    Host = 2,
}

impl MemoryKind {
    /// Decodes the wire value.
    pub const fn from_wire(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::Device),
            1 => Some(Self::DeviceVisible),
            2 => Some(Self::Host),
            _ => None,
        }
    }
}

structures! {
    /// Head of every message.
    pub struct Header {
        /// [`Opcode`].
        pub opcode: u16,
        /// Zero.
        pub reserved: u16,
        /// Bytes of the whole message, head included; what the opcode wants, exactly.
        pub length: u32,
        /// Zero in a request; [`Status`] in a reply.
        pub status: u32,
        /// Zero in a request; a number that goes with the status in a reply (see [`Status`]).
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
        /// [`Status`]; `Ok` if the session is alive.
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
        /// [`MemoryKind`].
        pub kind: u32,
        /// Zero.
        pub reserved: u32,
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
        /// First GPU virtual address, or offset into the aperture, as the mapping message returned it.
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

    /// A module image in guest RAM.
    pub struct LoadModule {
        /// Address space it will run in.
        pub space: u32,
        /// Room for a log in bytes; may be zero.
        pub log_bytes: u32,
        /// Guest-physical address of the image.
        pub image_address: u64,
        /// Bytes of the image, at most [`MODULE_BYTES_MAX`].
        pub image_bytes: u64,
        /// Guest-physical address for the log (UTF-8, not terminated).
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_values_are_distinct_and_survive_a_round_trip() {
        for (i, opcode) in OPCODES.iter().enumerate() {
            assert_eq!(Opcode::from_wire(*opcode as u16), Some(*opcode));
            assert!(
                OPCODES[i + 1..]
                    .iter()
                    .all(|other| other.name() != opcode.name())
            );
            assert!(message_bytes(*opcode).is_multiple_of(8));
        }
        for status in STATUSES {
            assert_eq!(Status::from_wire(*status as u32), Some(*status));
        }
        assert_eq!(Opcode::from_wire(0), None);
        assert_eq!(Status::from_wire(9999), None);
    }
}
