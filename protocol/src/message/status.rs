//! How messages, batches and command buffers end.

use crate::wire::wire_enum;

macro_rules! statuses {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal;)*) => {
        wire_enum! {
            /// How a message, a batch, or a command buffer ended.
            pub enum Status: u32 { $($(#[doc = $doc])* $name = $value,)* }
        }

        impl Status {
            /// One clause in plain words.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

/// Every status, for tables and tests.
pub const STATUSES: &[Status] = Status::ALL;

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
    /// No such handle, or one of another kind or of another client. Detail: the handle.
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
    /// More address spaces, mappings, modules, exports or interrupts to wait for than the session
    /// may have. Detail: the limit.
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
