//! Why operations fail. Each operation has an error type of its own, with the values in it.

use core::fmt;

use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Opcode, Status};

use crate::window::AccessError;

/// A message that the device refused, or a batch that it did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The operation; `None` if the batch as a whole was not taken.
    pub opcode: Option<Opcode>,
    /// Why.
    pub status: Status,
    /// A number that goes with the status (see [`Status`]).
    pub detail: u32,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.opcode.map_or("batch", Opcode::name);
        write!(
            f,
            "{name}: {} (status {}, detail {})",
            self.status.text(),
            self.status as u32,
            self.detail
        )
    }
}

impl core::error::Error for Refusal {}

/// A batch that does not fit the control area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFull {
    /// Bytes that the batch would have with the message.
    pub wanted_bytes: usize,
    /// Bytes of the control area.
    pub area_bytes: usize,
}

impl fmt::Display for BatchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            wanted_bytes,
            area_bytes,
        } = self;
        write!(
            f,
            "a batch of {wanted_bytes} bytes does not fit the control area of {area_bytes}: run it in parts"
        )
    }
}

impl core::error::Error for BatchFull {}

/// Why a device could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The magic register says that this is something else.
    NotCauseway {
        /// What it holds.
        magic: u32,
    },
    /// The host speaks another major version.
    Version {
        /// Its version register: major in the upper, minor in the lower half.
        host: u32,
    },
    /// The control area is misaligned or too small.
    ControlArea {
        /// Its guest-physical address.
        address: u64,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The device reports more aperture than the transport has mapped.
    Aperture {
        /// Bytes the device has.
        device_bytes: u64,
        /// Bytes the transport has.
        mapped_bytes: usize,
    },
    /// Hello was refused.
    Refused(Refusal),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCauseway { magic } => write!(f, "not a Causeway device: magic is {magic:#x}"),
            Self::Version { host } => write!(
                f,
                "the host speaks protocol {}.{}, this driver {}.{}: use a driver of the host's major version",
                host >> 16,
                host & 0xffff,
                causeway_protocol::VERSION_MAJOR,
                causeway_protocol::VERSION_MINOR
            ),
            Self::ControlArea { address, bytes } => {
                write!(
                    f,
                    "the control area at {address:#x} of {bytes} bytes is misaligned or too small"
                )
            }
            Self::Aperture {
                device_bytes,
                mapped_bytes,
            } => write!(
                f,
                "the aperture has {device_bytes:#x} bytes but only {mapped_bytes:#x} can be reached"
            ),
            Self::Refused(refusal) => write!(f, "the device could not be opened: {refusal}"),
        }
    }
}

impl core::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

macro_rules! operation_errors {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* } $text:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
            /// What the device said.
            pub refusal: Refusal,
        }

        impl $name {
            /// The status the device gave.
            #[must_use]
            pub const fn status(&self) -> Status {
                self.refusal.status
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Self { $($field,)* refusal } = self;
                write!(f, concat!($text, ": {refusal}"), $($field = $field,)* refusal = refusal)
            }
        }

        impl core::error::Error for $name {
            fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
                Some(&self.refusal)
            }
        }
    )*};
}

operation_errors! {
    /// Attributes could not be read.
    QueryError {} "cannot query the device";
    /// No address space could be made, or one not ended.
    SpaceError {} "cannot create or destroy an address space";
    /// Memory could not be had.
    AllocateError {
        /// Bytes asked for.
        bytes: u64,
        /// Kind asked for.
        kind: MemoryKind,
    } "cannot allocate {bytes} bytes of {kind:?} memory";
    /// Memory could not be given back.
    FreeError {
        /// Its handle.
        handle: u32,
    } "cannot free allocation {handle:#x}";
    /// A range could not be mapped for the GPU or into the aperture.
    MapError {
        /// Offset into the allocation in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// Rights asked for.
        access: Access,
    } "cannot map {bytes:#x} bytes at offset {offset:#x} with access {access:?}";
    /// A mapping could not be ended or changed.
    RemapError {
        /// First address of the mapping.
        address: u64,
    } "cannot end or change the mapping at {address:#x}";
    /// An allocation could not be exported, or an export taken back.
    ExportError {} "cannot export or revoke";
    /// An export could not be imported.
    ImportError {
        /// Rights asked for.
        access: Access,
    } "cannot import with access {access:?}";
    /// Guest RAM could not be registered.
    RegisterError {
        /// First guest-physical address.
        address: u64,
        /// Bytes.
        bytes: u64,
    } "cannot register guest RAM {address:#x}+{bytes:#x}";
    /// A module was refused, or could not be unloaded.
    ModuleError {
        /// Line of the image that is at fault, or zero.
        line: u32,
        /// Bytes of the log that was written.
        log_bytes: u32,
    } "cannot load or unload the module (line {line}, log of {log_bytes} bytes)";
    /// A kernel was not found.
    FunctionError {
        /// Handle of the module.
        module: u32,
    } "no such kernel in module {module:#x}";
    /// A recording could not be made or ended. If a packet is at fault, its offset in bytes is the refusal's detail.
    RecordingError {
        /// Bytes of its packets.
        bytes: u64,
    } "cannot create or destroy a recording of {bytes} bytes";
    /// No command buffer could be made, or one not ended.
    CommandBufferError {
        /// Units of the ring.
        units: u64,
    } "cannot create or destroy a command buffer of {units} units";
}

/// Why a packet could not be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The device has stopped taking packets from this command buffer.
    Stopped {
        /// Why.
        status: Status,
        /// Position of the packet at which it stopped.
        position: u64,
    },
    /// A launch whose parameters are not all set.
    ParameterMissing {
        /// Number of the first that is missing.
        index: usize,
    },
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped { status, position } => {
                write!(
                    f,
                    "the command buffer stopped at position {position}: {}",
                    status.text()
                )
            }
            Self::ParameterMissing { index } => {
                write!(f, "kernel parameter {index} has not been set")
            }
        }
    }
}

impl core::error::Error for SubmitError {}

/// Why a wait ended without the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// Time ran out.
    TimedOut {
        /// Value waited for.
        wanted: u64,
        /// Value the fence has.
        found: u64,
    },
    /// The command buffer that should release the fence has stopped.
    Stopped {
        /// Why.
        status: Status,
        /// Position of the packet at which it stopped.
        position: u64,
    },
    /// The device refused to wait.
    Refused(Refusal),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { wanted, found } => {
                write!(
                    f,
                    "the fence is at {found} and did not reach {wanted} in time"
                )
            }
            Self::Stopped { status, position } => {
                write!(
                    f,
                    "the command buffer stopped at position {position}: {}",
                    status.text()
                )
            }
            Self::Refused(refusal) => write!(f, "cannot wait for the fence: {refusal}"),
        }
    }
}

impl core::error::Error for WaitError {}

/// Why a kernel parameter could not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// The kernel has fewer parameters.
    NoSuchParameter {
        /// Number asked for.
        index: usize,
        /// Number of parameters.
        count: usize,
    },
    /// The value has another size.
    WrongSize {
        /// Number of the parameter.
        index: usize,
        /// Bytes of the value.
        bytes: usize,
        /// Bytes of the parameter.
        wanted_bytes: usize,
    },
    /// The parameter block is larger than the packer's room.
    BlockTooLarge {
        /// Bytes of the block.
        bytes: usize,
        /// Bytes of room.
        room_bytes: usize,
    },
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchParameter { index, count } => {
                write!(
                    f,
                    "the kernel has {count} parameters, there is no number {index}"
                )
            }
            Self::WrongSize {
                index,
                bytes,
                wanted_bytes,
            } => {
                write!(
                    f,
                    "kernel parameter {index} has {wanted_bytes} bytes, the value {bytes}"
                )
            }
            Self::BlockTooLarge { bytes, room_bytes } => {
                write!(
                    f,
                    "the parameter block has {bytes} bytes, the packer room for {room_bytes}"
                )
            }
        }
    }
}

impl core::error::Error for ParameterError {}

/// Why a fence could not be placed at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencePlaceError {
    /// What is wrong with the offset.
    pub access: AccessError,
}

impl fmt::Display for FencePlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no place for a fence: {}", self.access)
    }
}

impl core::error::Error for FencePlaceError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.access)
    }
}
