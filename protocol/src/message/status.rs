//! How messages, batches and command buffers end.

use crate::wire::wire_enum;

macro_rules! statuses {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal;)*) => {
        wire_enum! {
            /// Outcome of a message or a batch, or the kind of fault that stopped a command buffer
            /// or caused a session to be lost.
            pub enum Status: u32 { $($(#[doc = $doc])* $name = $value,)* }
        }

        impl Status {
            /// Returns the meaning of the status as a phrase, for use in error messages.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

impl Status {
    /// Returns whether the status says that a limit is reached or memory is exhausted: then the
    /// refused operation may succeed after the session has freed something.
    pub const fn is_shortage(self) -> bool {
        matches!(
            self,
            Self::QuotaBytes
                | Self::QuotaAllocations
                | Self::QuotaCommandBuffers
                | Self::QuotaObjects
                | Self::NoMemory
        )
    }
}

/// All statuses, for tables and tests.
pub const STATUSES: &[Status] = Status::ALL;

statuses! {
    /// The operation was successful.
    Ok = 0, "done";
    /// The message was not executed, because an earlier message of the batch failed. Detail: the
    /// index of that message.
    NotRun = 1, "not run: an earlier message of the batch failed";
    /// A batch or a message has the wrong length. Detail: the length that it should have.
    BadLength = 2, "length of the message is wrong";
    /// The operation does not exist.
    BadOpcode = 3, "no such operation";
    /// A reserved field is not zero. Detail: the offset of the first such byte in the message.
    ReservedNotZero = 4, "a reserved field is not zero";
    /// The guest speaks another major version. Detail: the host's major (upper half) and minor
    /// version.
    BadVersion = 5, "the host speaks another major version";
    /// The session has not been opened: its first message must be `hello`.
    NoHello = 6, "the session has not been opened with hello";
    /// No object has this handle, or the object is of another kind or belongs to another client.
    /// Detail: the handle.
    BadHandle = 7, "no such handle of this kind in the session";
    /// Offset and length do not lie within the object.
    BadRange = 8, "range is outside the object";
    /// An address, an offset or a length is not aligned. Detail: the required alignment in bytes.
    BadAlignment = 9, "address, offset or length is not aligned";
    /// The number does not stand for access rights, or the operation does not accept these rights.
    BadAccess = 10, "not a valid access right";
    /// The operation needs rights that the handle does not give.
    AccessDenied = 11, "the rights held do not allow this";
    /// The session would have more GPU memory than its limit allows. Detail: how many MiB of the
    /// limit are still free.
    QuotaBytes = 12, "the session's memory quota is exhausted";
    /// The session would have more allocations and arrays than its limit allows.
    /// Detail: the limit.
    QuotaAllocations = 13, "the session's quota of allocations and arrays is exhausted";
    /// The session would have more command buffers than its limit allows. Detail: the limit.
    QuotaCommandBuffers = 14, "the session's command buffer quota is exhausted";
    /// The session would have more address spaces, mappings, modules, exports, arrays, textures or
    /// requested interrupts than its limit allows. Detail: the limit.
    QuotaObjects = 15, "the session's quota of other objects is exhausted";
    /// Host or GPU have no memory left, or the aperture has no room.
    NoMemory = 16, "out of memory or of address space";
    /// The GPU virtual address is in use or outside the address space.
    AddressInUse = 17, "the address is taken or outside the address space";
    /// No export has this token, or no memory that the device reaches has this fabric handle.
    BadToken = 18, "no such export token or fabric handle";
    /// The handle is an import, and the owner of the memory has revoked the export.
    Revoked = 19, "the export was revoked by its owner";
    /// The back end refused the module image; the log says where and why. Detail: the line of the
    /// mistake in the image, or zero if it is unknown.
    BadModule = 20, "the module was refused";
    /// The module has no kernel of this name.
    NoKernel = 21, "the module has no kernel of this name";
    /// Memory of this kind, of this size or without a CPU mapping cannot be used for the operation.
    BadMemory = 22, "this kind of memory cannot be used for that";
    /// The object is still in use.
    Busy = 23, "the object is in use";
    /// The session is lost until it is reset.
    DeviceLost = 24, "the device is lost: reset the session";
    /// The back end does not support the operation.
    Unsupported = 25, "the back end cannot do this";
    /// The fence did not reach the value in time.
    TimedOut = 26, "timed out";
    /// A packet is malformed. The position of the packet is in the ring's header page.
    BadPacket = 27, "a packet is malformed";
    /// The producer position is behind the consumer position, or too far ahead of it.
    BadPosition = 28, "the producer position is impossible";
    /// The parameters of a launch do not have the size that the kernel needs.
    BadParameters = 29, "the kernel wants parameters of another size";
    /// Grid, block or shared memory of a launch exceed the limits of the device.
    BadLaunch = 30, "the launch exceeds the device's limits";
    /// A kernel accessed memory outside the session's mappings, or without the access rights that
    /// it needs.
    MemoryFault = 31, "the GPU touched memory that is not mapped for it";
    /// A kernel ended by a trap or a deadlock, or has an instruction that the back end does not
    /// support.
    KernelFault = 32, "the kernel faulted";
    /// The back end failed, and the guest did not cause it.
    BackEnd = 33, "the back end failed";
    /// The module has no variable of this name, or no kernel of this index (since 1.3).
    NotInModule = 34, "the module has no such variable or kernel";
    /// A kernel, a copy or a replay took longer than the session's limit (since 1.3).
    Overdue = 35, "work took longer than the session's limit";
    /// The run has no GPU with this number. Detail: the number.
    BadGpu = 36, "no such GPU";
}
