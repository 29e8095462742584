//! Why operations fail. Each operation has an error type of its own, with the values in it.

use causeway_protocol::message::{MemoryKind, Opcode, Status};
use causeway_protocol::{Access, VERSION_MAJOR, VERSION_MINOR};

use crate::window::AccessError;

/// A message that the device refused, or a batch that it did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: {} (status {}, detail {detail})",
    .opcode.map_or("batch", Opcode::name), .status.text(), *.status as u32
)]
pub struct Refusal {
    /// The operation; `None` if the batch as a whole was not taken.
    pub opcode: Option<Opcode>,
    /// Why.
    pub status: Status,
    /// A number that goes with the status (see [`Status`]).
    pub detail: u32,
}

/// A batch that does not fit the control area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a batch of {wanted_bytes} bytes does not fit the control area of {area_bytes} bytes: run it \
     in parts"
)]
pub struct BatchFull {
    /// Bytes that the batch would have with the message.
    pub wanted_bytes: usize,
    /// Bytes of the control area.
    pub area_bytes: usize,
}

/// Why a device could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The magic register says that this is something else.
    #[error("not a Causeway device: magic is {magic:#x}")]
    NotCauseway {
        /// What it holds.
        magic: u32,
    },
    /// The host speaks another major version.
    #[error(
        "the host speaks protocol {}.{}, this driver {VERSION_MAJOR}.{VERSION_MINOR}: use a driver \
         of the host's major version",
        .host >> 16, .host & 0xffff
    )]
    Version {
        /// Its version register: major in the upper, minor in the lower half.
        host: u32,
    },
    /// The control area is misaligned or too small.
    #[error("the control area at {address:#x} of {bytes} bytes is misaligned or too small")]
    ControlArea {
        /// Its guest-physical address.
        address: u64,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The device reports more aperture than the transport has mapped.
    #[error("the aperture has {device_bytes:#x} bytes, the transport maps {mapped_bytes:#x}")]
    Aperture {
        /// Bytes the device has.
        device_bytes: u64,
        /// Bytes the transport has.
        mapped_bytes: usize,
    },
    /// Hello was refused.
    #[error("cannot open the device: {0}")]
    Refused(Refusal),
}

macro_rules! operation_errors {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* } $text:literal;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
        #[error($text)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
            /// The device's reason.
            pub refusal: Refusal,
        }

        impl $name {
            /// The device's status.
            #[must_use]
            pub const fn status(&self) -> Status {
                self.refusal.status
            }
        }
    )*};
}

operation_errors! {
    /// Why the device's attributes, or the fault of the session, could not be read.
    QueryError {} "cannot query the device: {refusal}";
    /// Why an address space could not be created or destroyed.
    SpaceError {} "cannot create or destroy an address space: {refusal}";
    /// Why memory could not be allocated.
    AllocateError {
        /// Bytes asked for.
        bytes: u64,
        /// Kind asked for.
        kind: MemoryKind,
    } "cannot allocate {bytes} bytes of {kind:?} memory: {refusal}";
    /// Why an allocation could not be freed.
    FreeError {
        /// Its handle.
        handle: u32,
    } "cannot free allocation {handle:#x}: {refusal}";
    /// Why a range could not be mapped for the GPU or into the aperture.
    MapError {
        /// Offset into the allocation in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// Rights asked for.
        access: Access,
    } "cannot map {bytes:#x} bytes at offset {offset:#x} with access {access:?}: {refusal}";
    /// Why a mapping could not be ended or changed.
    RemapError {
        /// First address of the mapping.
        address: u64,
    } "cannot end or change the mapping at {address:#x}: {refusal}";
    /// Why an allocation could not be exported, or an export not be revoked.
    ExportError {} "cannot export or revoke: {refusal}";
    /// Why an export could not be imported.
    ImportError {
        /// Rights asked for.
        access: Access,
    } "cannot import with access {access:?}: {refusal}";
    /// Why guest RAM could not be registered.
    RegisterError {
        /// First guest-physical address.
        address: u64,
        /// Bytes.
        bytes: u64,
    } "cannot register guest RAM {address:#x}+{bytes:#x}: {refusal}";
    /// Why a module could not be loaded or unloaded.
    ModuleError {
        /// Line of the image that is at fault, or zero.
        line: u32,
        /// Bytes of the log that was written.
        log_bytes: u32,
    } "cannot load or unload the module (line {line}, log of {log_bytes} bytes): {refusal}";
    /// Why a kernel was not found in its module.
    KernelError {
        /// Handle of the module.
        module: u32,
    } "no such kernel in module {module:#x}: {refusal}";
    /// Why a recording could not be created or destroyed. If a packet is at fault, the refusal's
    /// detail is its offset in bytes.
    RecordingError {
        /// Bytes of its packets.
        bytes: u64,
    } "cannot create or destroy a recording of {bytes} bytes: {refusal}";
    /// Why a command buffer could not be created or destroyed.
    CommandBufferError {
        /// Units of the ring.
        units: u64,
    } "cannot create or destroy a command buffer of {units} units: {refusal}";
}

/// Why a packet could not be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The device has stopped taking packets from this command buffer.
    #[error("the command buffer stopped at position {position}: {}", .status.text())]
    Stopped {
        /// Why.
        status: Status,
        /// Position of the packet at which it stopped.
        position: u64,
    },
    /// A launch whose parameters are not all set.
    #[error("kernel parameter {index} is not set")]
    ParameterMissing {
        /// Number of the first that is missing.
        index: usize,
    },
}

/// Why a wait ended without the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// Time ran out.
    #[error("the fence is at {found} and did not reach {wanted} in time")]
    TimedOut {
        /// Value waited for.
        wanted: u64,
        /// Value the fence has.
        found: u64,
    },
    /// The command buffer that should release the fence has stopped.
    #[error("the command buffer stopped at position {position}: {}", .status.text())]
    Stopped {
        /// Why.
        status: Status,
        /// Position of the packet at which it stopped.
        position: u64,
    },
    /// The device refused to wait.
    #[error("cannot wait for the fence: {0}")]
    Refused(Refusal),
}

/// Why a kernel parameter could not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The kernel has fewer parameters.
    #[error("no kernel parameter {index}: the kernel has {count}")]
    NoSuchParameter {
        /// Number asked for.
        index: usize,
        /// Number of parameters.
        count: usize,
    },
    /// The value has another size.
    #[error("kernel parameter {index} has {wanted_bytes} bytes, the value {bytes}")]
    WrongSize {
        /// Number of the parameter.
        index: usize,
        /// Bytes of the value.
        bytes: usize,
        /// Bytes of the parameter.
        wanted_bytes: usize,
    },
    /// The parameter block is larger than the packer's room.
    #[error("the parameter block has {bytes} bytes, the packer has room for {room_bytes}")]
    BlockTooLarge {
        /// Bytes of the block.
        bytes: usize,
        /// Bytes of room.
        room_bytes: usize,
    },
}

/// Why a fence could not be placed at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no place for a fence: {access}")]
pub struct FencePlaceError {
    /// What is wrong with the offset.
    pub access: AccessError,
}
