//! Why operations fail. Each operation has an error type of its own, with the values in it.

use core::fmt;

use causeway_protocol::message::{MemoryKind, Opcode, Status};
use causeway_protocol::{Access, VERSION_MAJOR, VERSION_MINOR};

use crate::window::AccessError;

/// A message that the device refused to execute, or a batch that it did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the Causeway device refused {message}: {reason} (status {number}, detail {detail})",
    message = .opcode.map_or("the batch", Opcode::name),
    reason = .status.text(),
    number = *.status as u32
)]
pub struct Refusal {
    /// Operation of the refused message; `None` if the batch as a whole was refused.
    pub opcode: Option<Opcode>,
    /// Why the device refused the operation.
    pub status: Status,
    /// A number with more detail; the documentation of each [`Status`] says what it means.
    pub detail: u32,
}

impl Refusal {
    /// Returns a refusal of `operation`, by this driver or by the device.
    pub(crate) const fn new(operation: Opcode, status: Status, detail: u32) -> Self {
        let opcode = Some(operation);
        Self {
            opcode,
            status,
            detail,
        }
    }

    /// Decodes a refusal of the device. A status that this driver does not know becomes `BackEnd`,
    /// with the status as the detail.
    pub(crate) fn from_wire(opcode: Option<Opcode>, status: u32, detail: u32) -> Self {
        let known = Status::from_wire(status);
        Self {
            opcode,
            status: known.unwrap_or(Status::BackEnd),
            detail: if known.is_some() { detail } else { status },
        }
    }
}

/// Why a device could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The function's magic register does not have Causeway's value.
    #[error(
        "the opened device is not a Causeway device, because its magic register contains \
         {magic:#x}: open a device that `causeway` provides"
    )]
    NotCauseway {
        /// Value of the magic register.
        magic: u32,
    },
    /// The host speaks another major version of the protocol.
    #[error(
        "the host speaks protocol version {major}.{minor}, but this driver speaks \
         {VERSION_MAJOR}.{VERSION_MINOR}: use a driver with the host's major version",
        major = .host >> 16,
        minor = .host & 0xffff
    )]
    Version {
        /// The host's version register: major in the upper half, minor in the lower half.
        host: u32,
    },
    /// The transport's control area is not aligned to 8 bytes, or is smaller than 4096 bytes.
    #[error(
        "invalid control area (buffer for messages) of {bytes} bytes at {address:#x}: the \
         transport must give it at least 4096 bytes and align it to 8 bytes"
    )]
    ControlArea {
        /// Guest-physical address of the area.
        address: u64,
        /// Size of the area in bytes.
        bytes: usize,
    },
    /// The transport maps an aperture of another size than the device has.
    #[error(
        "the transport maps {mapped_bytes:#x} bytes of the Causeway device's aperture, but must \
         map all of it ({device_bytes:#x} bytes)"
    )]
    Aperture {
        /// Size that the device reports, in bytes.
        device_bytes: u64,
        /// Size that the transport maps, in bytes.
        mapped_bytes: usize,
    },
    /// The device does not answer: its registers read as all ones.
    #[error(
        "cannot open the Causeway device, because it does not answer any more: the server that \
         provides it has ended, or the device was removed"
    )]
    Gone,
    /// The device refused `hello`, the first message.
    #[error("cannot open the Causeway device: {0}")]
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
            /// Why the device refused the operation.
            pub refusal: Refusal,
        }

        impl $name {
            /// Returns the status with which the device refused the operation.
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
        /// Size of the allocation in bytes.
        bytes: u64,
        /// Kind of the memory.
        kind: MemoryKind,
    } "cannot allocate {bytes} bytes of {kind:?} memory: {refusal}";
    /// Why an allocation could not be freed.
    FreeError {
        /// Handle of the allocation.
        handle: u32,
    } "cannot free allocation {handle:#x}: {refusal}";
    /// Why a range could not be mapped for the GPU or into the aperture.
    MapError {
        /// Offset of the range in the allocation, in bytes.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// Access rights that were requested.
        access: Access,
    } "cannot map {bytes:#x} bytes at offset {offset:#x} with access {access:?}: {refusal}";
    /// Why a mapping could not be ended, or its access rights could not be changed.
    RemapError {
        /// First GPU virtual address of the mapping, or its offset in the aperture.
        address: u64,
    } "cannot end or change the mapping at {address:#x}: {refusal}";
    /// Why an allocation could not be exported, or an export could not be revoked.
    ExportError {} "cannot export an allocation or revoke an export: {refusal}";
    /// Why an export could not be imported.
    ImportError {
        /// Access rights that were requested.
        access: Access,
    } "cannot import an allocation with access {access:?}: {refusal}";
    /// Why guest RAM could not be registered.
    RegisterError {
        /// First guest-physical address.
        address: u64,
        /// Length of the range in bytes.
        bytes: u64,
    } "cannot register {bytes:#x} bytes of guest RAM at {address:#x}: {refusal}";
    /// Why a module could not be loaded or unloaded.
    ModuleError {
        /// Line of the module image with the mistake, or zero if the line is unknown.
        line: u32,
        /// Number of bytes that the device has written to the log of the refused module.
        log_bytes: u32,
    } "cannot load or unload the module (line {line}, log of {log_bytes} bytes): {refusal}";
    /// Why a kernel could not be looked up in a module.
    KernelError {
        /// Name of the kernel, cut if it is long.
        name: KernelName,
        /// Handle of the module.
        module: u32,
    } "cannot look up kernel `{name}` in module {module:#x}: {refusal}";
    /// Why a variable could not be looked up in a module.
    VariableError {
        /// Name of the variable, cut if it is long.
        name: KernelName,
        /// Handle of the module.
        module: u32,
    } "cannot look up variable `{name}` in module {module:#x}: {refusal}";
    /// Why a kernel could not be looked up by its index, or its name could not be asked for.
    KernelIndexError {
        /// Index of the kernel, from 0.
        index: u32,
        /// Handle of the module.
        module: u32,
    } "cannot look up kernel number {index} in module {module:#x}: {refusal}";
    /// Why a recording could not be created or destroyed. If a packet was refused, the refusal's
    /// detail is the packet's offset in bytes.
    RecordingError {
        /// Size of all packets in bytes.
        bytes: u64,
    } "cannot create or destroy a recording of {bytes} bytes: {refusal}";
    /// Why an array could not be created or destroyed.
    ArrayError {} "cannot create or destroy an array: {refusal}";
    /// Why a texture or a surface could not be created or destroyed.
    TextureError {} "cannot create or destroy a texture or surface: {refusal}";
    /// Why a command buffer could not be created or destroyed.
    CommandBufferError {
        /// Size of the ring in units.
        units: u64,
    } "cannot create or destroy a command buffer of {units} units: {refusal}";
}

/// The name of a kernel or of a variable in an error: its first 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KernelName {
    bytes: [u8; Self::BYTES_MAX],
    used: usize,
    is_cut: bool,
}

impl KernelName {
    const BYTES_MAX: usize = 64;

    /// Keeps as much of `name` as fits.
    pub(crate) fn new(name: &str) -> Self {
        let used = name.floor_char_boundary(Self::BYTES_MAX);
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..used].copy_from_slice(&name.as_bytes()[..used]);
        let is_cut = used < name.len();
        Self {
            bytes,
            used,
            is_cut,
        }
    }

    /// Returns the name, or its beginning if it is long.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // It was cut at a boundary of characters.
        str::from_utf8(&self.bytes[..self.used]).unwrap_or_default()
    }
}

impl fmt::Display for KernelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        if self.is_cut {
            f.write_str("…")
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for KernelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a packet could not be written to a command buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A fault has stopped the command buffer, so the device takes no more packets from it.
    #[error(
        "cannot write packets to the command buffer: the host stopped it at the packet at position \
         {position} (in units of 64 bytes): {reason}",
        reason = .status.text()
    )]
    Stopped {
        /// Kind of the fault that stopped the command buffer.
        status: Status,
        /// Position of the packet that caused the fault, in units.
        position: u64,
    },
    /// The ring is full, and the device has made no room for some time. A
    /// [`crate::CommandBuffer`] then asks whether the device is lost, and goes on if it is not.
    #[error("cannot write packets to the command buffer: the device makes no room in its ring")]
    Full,
    /// The ring is too small for the packet.
    #[error(
        "cannot write a packet of {units} units: the ring takes packets of up to {units_max} units, \
         which is half its size; create the command buffer with more units"
    )]
    TooLong {
        /// Length of the packet in units.
        units: u64,
        /// Length of the longest packet that the ring takes, in units.
        units_max: u64,
    },
    /// The parameters of a launch are not all set.
    #[error(
        "cannot launch the kernel: its parameter {index}, counted from 0, is not set; set it \
         before the launch"
    )]
    ParameterMissing {
        /// Index of the first parameter that is not set, from 0.
        index: usize,
    },
}

/// Why a wait ended before the fence reached its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The fence did not reach the value before the time-out.
    #[error("the fence did not reach value {wanted} in time: its value is {found}")]
    TimedOut {
        /// Value that the fence should have reached.
        wanted: u64,
        /// Value that the fence has.
        found: u64,
    },
    /// A fault has stopped the command buffer that should store the value to the fence.
    #[error(
        "the fence cannot reach its value: the host stopped the command buffer at the packet at \
         position {position} (in units of 64 bytes): {reason}",
        reason = .status.text()
    )]
    Stopped {
        /// Kind of the fault that stopped the command buffer.
        status: Status,
        /// Position of the packet that caused the fault, in units.
        position: u64,
    },
    /// The device refused to wait, for example because the session is lost.
    #[error("cannot wait for the fence: {0}")]
    Refused(Refusal),
}

/// Why a kernel parameter could not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The kernel has no parameter with this index.
    #[error("the kernel has no parameter {index}: it has {count} parameters, counted from 0")]
    NoSuchParameter {
        /// Index that was given.
        index: usize,
        /// Number of parameters of the kernel.
        count: usize,
    },
    /// The value does not have the size of the parameter.
    #[error(
        "the value for kernel parameter {index} has {bytes} bytes, but the parameter has \
         {wanted_bytes}: pass a value of that size"
    )]
    WrongSize {
        /// Index of the parameter, from 0.
        index: usize,
        /// Size of the value in bytes.
        bytes: usize,
        /// Size of the parameter in bytes.
        wanted_bytes: usize,
    },
    /// The kernel's parameters need more room than the [`crate::Parameters`] have.
    #[error(
        "the kernel's parameters have {bytes} bytes, but the parameter block has only \
         {room_bytes} bytes for them: create the block with more units of 64 bytes"
    )]
    BlockTooLarge {
        /// Size of the kernel's parameters in bytes.
        bytes: usize,
        /// Number of bytes for which the parameter block has room.
        room_bytes: usize,
    },
}

/// Why a fence cannot be placed at an offset of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot place a fence, which needs 8 bytes: {access}")]
pub struct FencePlaceError {
    /// The access to the fence's 8 bytes that failed: it lies outside the mapping, or is
    /// misaligned.
    pub access: AccessError,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_kernel_that_is_not_found_is_named() {
        let refusal = Refusal::new(Opcode::GetKernel, Status::NoKernel, 0);
        let message = |name: &str| {
            let (name, module) = (KernelName::new(name), 7);
            KernelError {
                name,
                module,
                refusal,
            }
            .to_string()
        };
        assert!(message("saxpi").starts_with("cannot look up kernel `saxpi` in module 0x7: "));
        let long = message(&"ä".repeat(100));
        assert!(long.contains(&("ä".repeat(32) + "…`")), "{long}");
    }
}
