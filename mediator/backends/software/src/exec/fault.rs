//! Why a kernel cannot go on, and how its fault is described to the guest.

use causeway_mediator::backend::Fault;
use causeway_protocol::message::Status;

/// Why an access is refused whose address is no multiple of its size.
pub(super) const NOT_ALIGNED: &str = "not aligned";

/// Results of the CUDA driver API (`CUresult` in `cuda.h`).
const ILLEGAL_ADDRESS: u32 = 700;
const MISALIGNED_ADDRESS: u32 = 716;
const ASSERT: u32 = 710;
const LAUNCH_FAILED: u32 = 719;

/// Why a kernel cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// An access that is not allowed.
    Access {
        /// Lane of the warp.
        lane: u32,
        /// Address as the kernel gave it.
        address: u64,
        /// Bytes of the access.
        bytes: u64,
        /// Kind of the access.
        kind: AccessKind,
        /// Why it is refused.
        reason: &'static str,
    },
    /// `trap`.
    Trap,
    /// A failed assertion (`__assertfail`).
    Assertion {
        /// Lane of the warp.
        lane: u32,
        /// File, line, function, block, thread and message, as CUDA prints them.
        text: String,
    },
    /// An object that is no texture or surface, or not one that the instruction can access.
    Texture {
        /// Lane of the warp.
        lane: u32,
        /// What is wrong.
        text: String,
    },
    /// An access to a surface at a place that it does not have.
    Surface {
        /// Lane of the warp.
        lane: u32,
        /// Whether the place is a multiple of the size of the access.
        is_aligned: bool,
        /// What is accessed where.
        text: String,
    },
    /// Calls are nested deeper than there is memory for.
    CallDepth,
    /// All threads wait for others.
    Deadlock(String),
}

impl Trouble {
    /// Returns what the CUDA driver API answers after such an end of a kernel.
    fn cuda_result(&self) -> u32 {
        match self {
            Self::Access { reason, .. } if *reason == NOT_ALIGNED => MISALIGNED_ADDRESS,
            Self::Surface {
                is_aligned: false, ..
            } => MISALIGNED_ADDRESS,
            Self::Access { .. } | Self::Surface { .. } => ILLEGAL_ADDRESS,
            Self::Assertion { .. } => ASSERT,
            Self::Trap | Self::CallDepth | Self::Deadlock(_) | Self::Texture { .. } => {
                LAUNCH_FAILED
            }
        }
    }
}

/// What an access does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Load,
    Store,
    Atomic,
}

impl AccessKind {
    /// The word for it in messages.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Atomic => "atomic operation",
        }
    }
}

/// What went wrong in a block, and where.
#[derive(Debug)]
pub(super) struct BlockFault {
    /// Position of the block in the grid.
    pub(super) block: [u32; 3],
    /// Number of the thread in the block, if the fault is that of one thread.
    pub(super) thread: Option<u32>,
    /// Position of the operation in the program.
    pub(super) pc: u32,
    /// Why the kernel cannot continue.
    pub(super) trouble: Trouble,
}

impl BlockFault {
    /// Describes the fault of `kernel`, whose blocks have `threads` threads in x, y and z and which
    /// was at `line` of its source.
    pub(super) fn describe(&self, kernel: &str, line: u32, threads: [u32; 3]) -> Fault {
        let [bx, by, bz] = self.block;
        let mut place = format!("kernel `{kernel}`, block ({bx},{by},{bz})");
        if let Some(thread) = self.thread {
            let [x, y, _] = threads;
            let (tx, ty, tz) = (thread % x, thread / x % y, thread / x / y);
            place += &format!(", thread ({tx},{ty},{tz})");
        }
        let (status, what) = match &self.trouble {
            Trouble::Access {
                address,
                bytes,
                kind,
                reason,
                ..
            } => (
                Status::MemoryFault,
                format!("{} of {bytes} bytes at {address:#x}: {reason}", kind.text()),
            ),
            Trouble::Trap => (Status::KernelFault, String::from("trap")),
            Trouble::CallDepth => (
                Status::KernelFault,
                String::from("calls are nested too deep for their memory"),
            ),
            Trouble::Deadlock(text)
            | Trouble::Assertion { text, .. }
            | Trouble::Texture { text, .. } => (Status::KernelFault, text.clone()),
            Trouble::Surface { text, .. } => (Status::MemoryFault, text.clone()),
        };
        Fault::new(status, format!("{place}, line {line}: {what}"))
            .with_cuda_result(self.trouble.cuda_result())
    }
}
