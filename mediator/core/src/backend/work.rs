//! What queues execute, and how that can end.

use std::fmt;
use std::sync::Arc;

use causeway_protocol::message::Status;
use causeway_protocol::packet::LaunchShape;

use super::{Function, Recording};

/// One piece of validated work. Addresses are GPU virtual addresses and not validated.
pub enum Work<'a> {
    /// Run a kernel with a parameter block of exactly the size it wants.
    Launch {
        /// The kernel; belongs to a module of the queue's address space.
        function: &'a Arc<dyn Function>,
        /// Dimensions.
        shape: LaunchShape,
        /// The parameter block.
        parameters: &'a [u8],
    },
    /// Copy bytes between ranges that do not overlap.
    Copy {
        /// To.
        destination: u64,
        /// From.
        source: u64,
        /// Bytes, not zero.
        bytes: u64,
    },
    /// Fill with a pattern; destination and length are multiples of its width.
    Fill {
        /// To.
        destination: u64,
        /// Bytes, not zero.
        bytes: u64,
        /// Pattern in the low `width` bytes.
        pattern: u32,
        /// 1, 2 or 4.
        width: u32,
    },
    /// Store `value` at `address` (8-byte aligned) with release ordering, once all before is done.
    Release {
        /// Fence.
        address: u64,
        /// Value.
        value: u64,
    },
    /// Store the time in nanoseconds at `address` (8-byte aligned), once all before is done.
    Timestamp {
        /// Where.
        address: u64,
    },
    /// Do all of a recording, in order.
    Replay {
        /// What [`Space::record`](super::Space::record) of the queue's address space made.
        recording: &'a Arc<dyn Recording>,
    },
}

/// One piece of work of a [`Recording`]: as [`Work`], but its own.
#[derive(Clone)]
pub enum Recorded {
    /// See [`Work::Launch`].
    Launch {
        /// The kernel; belongs to a module of the space.
        function: Arc<dyn Function>,
        /// Dimensions.
        shape: LaunchShape,
        /// The parameter block.
        parameters: Box<[u8]>,
    },
    /// See [`Work::Copy`].
    Copy {
        /// To.
        destination: u64,
        /// From.
        source: u64,
        /// Bytes, not zero.
        bytes: u64,
    },
    /// See [`Work::Fill`].
    Fill {
        /// To.
        destination: u64,
        /// Bytes, not zero.
        bytes: u64,
        /// Pattern in the low `width` bytes.
        pattern: u32,
        /// 1, 2 or 4.
        width: u32,
    },
    /// See [`Work::Release`].
    Release {
        /// Fence.
        address: u64,
        /// Value.
        value: u64,
    },
    /// See [`Work::Timestamp`].
    Timestamp {
        /// Where.
        address: u64,
    },
}

impl Recorded {
    /// The same, to be submitted by itself.
    pub fn as_work(&self) -> Work<'_> {
        match *self {
            Self::Launch {
                ref function,
                shape,
                ref parameters,
            } => Work::Launch {
                function,
                shape,
                parameters,
            },
            Self::Copy {
                destination,
                source,
                bytes,
            } => Work::Copy {
                destination,
                source,
                bytes,
            },
            Self::Fill {
                destination,
                bytes,
                pattern,
                width,
            } => Work::Fill {
                destination,
                bytes,
                pattern,
                width,
            },
            Self::Release { address, value } => Work::Release { address, value },
            Self::Timestamp { address } => Work::Timestamp { address },
        }
    }
}

/// How far a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything submitted is done.
    Idle,
    /// Work is under way.
    Busy,
}

/// Work that went wrong while it was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `MemoryFault` or `KernelFault` end the session; `BadLaunch`, `BadParameters` stop the command buffer.
    pub status: Status,
    /// Kernel, block and thread, address: whatever is known.
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.text(), self.text)
    }
}
