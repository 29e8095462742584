//! Mechanisms to reach a GPU.

use crate::Kernel;

/// A way to reach a GPU, by its number in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum MechanismKind {
    /// This project: memory in an aperture, commands in a ring, fences in memory.
    Mediated = 0,
    /// A device whose memory and registers all trap, as emulated devices do.
    Trap = 1,
    /// A device to which calls are sent with their data, several at a time.
    Forward = 2,
    /// A host device for the guest alone: its memory, by loads and stores.
    Passthrough = 3,
    /// No VM: the same by the host, on the same back end.
    Native = 4,
    /// No VM: the same by the host, on the memory of the device that is passed through.
    NativeBar = 5,
}

/// All of them, by number.
pub const MECHANISMS: [MechanismKind; 6] = [
    MechanismKind::Mediated,
    MechanismKind::Trap,
    MechanismKind::Forward,
    MechanismKind::Passthrough,
    MechanismKind::Native,
    MechanismKind::NativeBar,
];

impl MechanismKind {
    /// Returns the mechanism's name in tables and arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mediated => "mediated",
            Self::Trap => "trap",
            Self::Forward => "forward",
            Self::Passthrough => "passthrough",
            Self::Native => "native",
            Self::NativeBar => "native-bar",
        }
    }

    /// Returns whether the host runs the workload itself, without a guest.
    #[must_use]
    pub const fn is_native(self) -> bool {
        matches!(self, Self::Native | Self::NativeBar)
    }

    /// Returns whether the mechanism needs a device that is passed through to the guest.
    #[must_use]
    pub const fn is_of_device(self) -> bool {
        matches!(self, Self::Passthrough | Self::NativeBar)
    }

    /// Returns the mechanism by which the host repeats this mechanism's operations for comparison,
    /// on memory of the same kind.
    #[must_use]
    pub const fn counterpart(self) -> Self {
        match self {
            Self::Mediated | Self::Trap | Self::Forward | Self::Native => Self::Native,
            Self::Passthrough | Self::NativeBar => Self::NativeBar,
        }
    }

    /// Returns the member with a name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        MECHANISMS.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the member with a number; `None` if there is none.
    #[must_use]
    pub fn from_wire(number: u64) -> Option<Self> {
        MECHANISMS.get(usize::try_from(number).ok()?).copied()
    }
}

/// Bytes of the smallest pages.
const PAGE_BYTES: usize = 4096;

/// Grid and block of a launch. What workloads launch needs no third dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks in x and y.
    pub grid: [u32; 2],
    /// Threads of a block in x and y.
    pub block: [u32; 2],
}

/// The operations that workloads use. Copies, loads and stores take place after all earlier
/// launches, as on a single stream. A failed operation ends the program.
pub trait Mechanism {
    /// An allocation that kernels and [`Self::copy_in`] reach.
    type Memory;

    /// Allocates `bytes` bytes.
    fn allocate(&mut self, bytes: usize) -> Self::Memory;

    /// Frees memory.
    fn free(&mut self, memory: Self::Memory);

    /// Touches all pages of `bytes` bytes of fresh memory, for CPU and GPU. They contain zeros
    /// afterwards.
    fn touch(&mut self, memory: &Self::Memory, bytes: usize) {
        for page in (0..bytes).step_by(PAGE_BYTES) {
            self.copy_in(memory, page, &[0; 8]);
        }
        self.synchronize();
    }

    /// Returns the address of memory for kernels.
    fn address(&self, memory: &Self::Memory) -> u64;

    /// Stores to the first `words` words, `passes` times, each as the program does it when it has a
    /// pointer: as [`causeway_kernels::loops::store`] says. `words` is a multiple of 8.
    fn store_words(&mut self, memory: &Self::Memory, words: usize, passes: u32);

    /// Loads the words as [`causeway_kernels::loops::load`] says, and returns their sum.
    fn load_words(&mut self, memory: &Self::Memory, words: usize, passes: u32) -> u64;

    /// Copies to `offset`. Both are multiples of 8 bytes.
    fn copy_in(&mut self, memory: &Self::Memory, offset: usize, from: &[u8]);

    /// Copies from `offset`. Both are multiples of 8 bytes.
    fn copy_out(&mut self, memory: &Self::Memory, offset: usize, into: &mut [u8]);

    /// Launches a kernel, without waiting. Arguments are addresses and numbers, in order.
    fn launch(&mut self, kernel: Kernel, shape: Shape, arguments: &[u64]);

    /// Waits until all work is done.
    fn synchronize(&mut self);

    /// Prepares a timed part with launches, before exits are counted.
    fn get_ready(&mut self) {}

    /// Returns doorbells rung so far that the host's kernel takes: exits that do not reach the VMM.
    fn doorbells(&self) -> u64 {
        0
    }

    /// Ends the preparation of [`Self::get_ready`] and wakes the device. Exits in this call are
    /// counted, but its time is not.
    fn wake(&mut self) {}
}
