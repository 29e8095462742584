//! What queues execute, and how that can end.

use std::fmt;
use std::sync::Arc;

use causeway_protocol::message::Status;
use causeway_protocol::packet::LaunchShape;

use super::{Function, Recording};

/// Most blocks in x, y and z (CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability").
const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Most threads of a block in x, y and z (as above).
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];

/// One piece of validated work.
#[derive(Clone, Copy)]
pub enum Work<'a> {
    /// Run a kernel of a module of the queue's address space.
    Launch(Launch<'a>),
    /// Write memory without a kernel.
    Memory(MemoryWork),
    /// Do all of a recording, in order.
    Replay {
        /// What [`Space::record`](super::Space::record) of the queue's address space returned.
        recording: &'a Arc<dyn Recording>,
    },
}

/// Work that writes memory without a kernel. Addresses are GPU virtual addresses and not validated:
/// back ends check them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryWork {
    /// Copy bytes between ranges that do not overlap.
    Copy {
        /// First byte that is written.
        destination: u64,
        /// First byte that is read.
        source: u64,
        /// Bytes, not zero.
        bytes: u64,
    },
    /// Fill with a pattern; destination and length are multiples of its width.
    Fill {
        /// First byte that is written.
        destination: u64,
        /// Bytes, not zero.
        bytes: u64,
        /// Pattern in the low `width` bytes.
        pattern: u32,
        /// Bytes of the pattern: 1, 2 or 4.
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
        /// First byte that is written.
        address: u64,
    },
}

impl MemoryWork {
    /// Returns the number of bytes to copy or to fill; zero for what stores one word.
    pub fn moved_bytes(&self) -> u64 {
        match *self {
            Self::Copy { bytes, .. } | Self::Fill { bytes, .. } => bytes,
            Self::Release { .. } | Self::Timestamp { .. } => 0,
        }
    }

    /// Returns the range that is written: its first address and its length in bytes.
    pub fn written(&self) -> (u64, u64) {
        match *self {
            Self::Copy {
                destination, bytes, ..
            }
            | Self::Fill {
                destination, bytes, ..
            } => (destination, bytes),
            Self::Release { address, .. } | Self::Timestamp { address } => (address, 8),
        }
    }

    /// Returns the range that is read, if one is.
    pub fn read(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Copy { source, bytes, .. } => Some((source, bytes)),
            _ => None,
        }
    }
}

impl fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Launch(launch) => launch.fmt(f),
            Self::Memory(work) => work.fmt(f),
            Self::Replay { .. } => f.write_str("Replay"),
        }
    }
}

/// A launch within the limits of its kernel: [`Self::new`] is the one place that checks them.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    kernel: &'a Arc<dyn Function>,
    shape: LaunchShape,
    parameters: &'a [u8],
}

impl<'a> Launch<'a> {
    /// Checks a launch of `kernel`.
    ///
    /// # Errors
    /// `BadParameters` if `parameters` is not as long as the kernel's parameter block; `BadLaunch`
    /// if grid, block or shared memory exceed the limits of CUDA or of the kernel.
    pub fn new(
        kernel: &'a Arc<dyn Function>,
        shape: LaunchShape,
        parameters: &'a [u8],
    ) -> Result<Self, Fault> {
        let fault = |status, text| Err(Fault { status, text });
        let (bytes, wanted) = (parameters.len(), kernel.parameter_bytes());
        if bytes != wanted as usize {
            let text = format!("{bytes} bytes of parameters: the kernel has {wanted}");
            return fault(Status::BadParameters, text);
        }
        match check_shape(&**kernel, &shape) {
            Ok(()) => Ok(Self {
                kernel,
                shape,
                parameters,
            }),
            Err(text) => fault(Status::BadLaunch, text),
        }
    }

    /// The kernel.
    pub fn kernel(&self) -> &'a Arc<dyn Function> {
        self.kernel
    }

    /// Grid, block and dynamic shared memory.
    pub fn shape(&self) -> LaunchShape {
        self.shape
    }

    /// The parameter block, exactly as long as the kernel's.
    pub fn parameters(&self) -> &'a [u8] {
        self.parameters
    }
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Launch").field(&self.shape).finish()
    }
}

fn check_shape(kernel: &dyn Function, shape: &LaunchShape) -> Result<(), String> {
    let exceeds = |given: [u32; 3], max: [u32; 3]| {
        given.contains(&0) || given.iter().zip(max).any(|(given, max)| *given > max)
    };
    if exceeds(shape.grid, GRID_MAX) {
        return Err(format!("grid {:?}: 1 to {GRID_MAX:?}", shape.grid));
    }
    if exceeds(shape.block, BLOCK_MAX) {
        return Err(format!("block {:?}: 1 to {BLOCK_MAX:?}", shape.block));
    }
    // Within the limits above, the product fits 32 bits.
    let threads: u32 = shape.block.iter().product();
    let threads_max = kernel.block_threads_max();
    if threads > threads_max {
        return Err(format!("block of {threads} threads: at most {threads_max}"));
    }
    let dynamic_max = kernel.dynamic_shared_bytes_max();
    if shape.shared_bytes > dynamic_max {
        let own = u64::from(kernel.shared_bytes());
        let (all, max) = (
            own + u64::from(shape.shared_bytes),
            own + u64::from(dynamic_max),
        );
        return Err(format!("{all} bytes of shared memory: at most {max}"));
    }
    kernel.check_shape(shape)
}

/// One piece of work of a [`Recording`]: as [`Work`], but it owns what it needs.
#[derive(Clone)]
pub enum Recorded {
    /// See [`Work::Launch`].
    Launch(RecordedLaunch),
    /// See [`Work::Memory`].
    Memory(MemoryWork),
}

/// A [`Launch`] that owns its kernel and its parameters.
#[derive(Clone)]
pub struct RecordedLaunch {
    kernel: Arc<dyn Function>,
    shape: LaunchShape,
    parameters: Box<[u8]>,
}

impl RecordedLaunch {
    /// The kernel.
    pub fn kernel(&self) -> &Arc<dyn Function> {
        &self.kernel
    }
}

impl Recorded {
    /// The same, to be submitted by itself.
    pub fn as_work(&self) -> Work<'_> {
        match self {
            Self::Launch(launch) => Work::Launch(Launch {
                kernel: &launch.kernel,
                shape: launch.shape,
                parameters: &launch.parameters,
            }),
            Self::Memory(work) => Work::Memory(*work),
        }
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_work().fmt(f)
    }
}

impl fmt::Debug for RecordedLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecordedLaunch").field(&self.shape).finish()
    }
}

impl From<Launch<'_>> for Recorded {
    fn from(launch: Launch<'_>) -> Self {
        Self::Launch(RecordedLaunch {
            kernel: Arc::clone(launch.kernel),
            shape: launch.shape,
            parameters: launch.parameters.into(),
        })
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
    /// `MemoryFault` or `KernelFault` end the session; `BadLaunch`, `BadParameters` stop the
    /// command buffer.
    pub status: Status,
    /// Kernel, block and thread, address: whatever is known.
    pub text: String,
}

impl Fault {
    /// Returns the fault that `text` describes.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.text(), self.text)
    }
}
