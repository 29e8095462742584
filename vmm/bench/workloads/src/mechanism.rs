//! Mechanisms to reach a GPU.

use crate::Kernel;

/// A way to reach a GPU, with the number that samples use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum MechanismKind {
    /// Causeway: memory in an aperture, commands in a ring, fences in memory.
    Mediated = 0,
    /// A device whose memory and registers are emulated: each access is an exit.
    Trap = 1,
    /// A device to which the guest sends calls with their data, several in one exit.
    Forward = 2,
    /// A PCI device of the host that only the guest uses: loads and stores to its memory.
    Passthrough = 3,
    /// No VM: the host runs the workload itself, on the same back end.
    Native = 4,
    /// No VM: the host runs the workload itself, on the memory of the passed-through device.
    NativeBar = 5,
}

/// All mechanisms, in the order of their numbers.
pub const MECHANISMS: [MechanismKind; 6] = [
    MechanismKind::Mediated,
    MechanismKind::Trap,
    MechanismKind::Forward,
    MechanismKind::Passthrough,
    MechanismKind::Native,
    MechanismKind::NativeBar,
];

impl MechanismKind {
    /// Returns the mechanism's name in arguments and tables.
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

    /// Returns whether the mechanism needs a PCI device that is passed through to the guest.
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

    /// Returns the mechanism with this name, or `None` if no mechanism has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        MECHANISMS.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the mechanism with this number, or `None` if no mechanism has it.
    #[must_use]
    pub fn from_wire(number: u64) -> Option<Self> {
        MECHANISMS.get(usize::try_from(number).ok()?).copied()
    }
}

/// Bytes of the smallest pages.
const PAGE_BYTES: usize = 4096;

/// Grid and block of a launch in two dimensions. No workload needs a third one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of blocks in x and y.
    pub grid: [u32; 2],
    /// Number of threads of a block in x and y.
    pub block: [u32; 2],
}

/// The GPU operations that workloads use; each mechanism implements them. Operations take effect in
/// the order of the calls, as on a single CUDA stream. An operation that fails does not return: the
/// program panics.
pub trait Mechanism {
    /// An allocation that kernels, copies, loads and stores can use.
    type Memory;

    /// Allocates `bytes` bytes of GPU memory.
    fn allocate(&mut self, bytes: usize) -> Self::Memory;

    /// Frees memory that [`Self::allocate`] returned.
    fn free(&mut self, memory: Self::Memory);

    /// Touches all pages of newly allocated memory of `bytes` bytes, for CPU and GPU. The memory
    /// contains zeros afterwards.
    fn touch(&mut self, memory: &Self::Memory, bytes: usize) {
        for page in (0..bytes).step_by(PAGE_BYTES) {
            self.copy_in(memory, page, &[0; 8]);
        }
        self.synchronize();
    }

    /// Returns the address at which kernels find the memory.
    fn address(&self, memory: &Self::Memory) -> u64;

    /// Stores to the first `words` 64-bit words of the memory, `passes` times, with the loop
    /// [`causeway_kernels::loops::store`]. `words` is a multiple of 8.
    fn store_words(&mut self, memory: &Self::Memory, words: usize, passes: u32);

    /// Loads the first `words` 64-bit words of the memory, `passes` times, with the loop
    /// [`causeway_kernels::loops::load`], and returns their sum.
    fn load_words(&mut self, memory: &Self::Memory, words: usize, passes: u32) -> u64;

    /// Copies `from` to the memory at `offset`. Offset and length are multiples of 8 bytes.
    fn copy_in(&mut self, memory: &Self::Memory, offset: usize, from: &[u8]);

    /// Copies from the memory at `offset` to `into`. Offset and length are multiples of 8 bytes.
    fn copy_out(&mut self, memory: &Self::Memory, offset: usize, into: &mut [u8]);

    /// Launches a kernel and does not wait for its end. Arguments are addresses and numbers, in the
    /// order of the kernel's parameters.
    fn launch(&mut self, kernel: Kernel, shape: Shape, arguments: &[u64]);

    /// Waits until all copies, stores and launches have ended.
    fn synchronize(&mut self);

    /// Prepares a timed part that launches kernels. Called before exits are counted.
    fn get_ready(&mut self) {}

    /// Returns the number of doorbells rung so far. The host's Linux kernel handles each of these
    /// exits without the VMM.
    fn doorbells(&self) -> u64 {
        0
    }

    /// Wakes the device after [`Self::get_ready`]. Exits in this call are counted, but its time is
    /// not.
    fn wake(&mut self) {}
}
