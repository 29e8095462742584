//! Kernels of the fake back end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_mediator::backend::{Fault, LaunchOptions, LaunchShape};

use crate::memory::SpaceMemory;

type Run = dyn Fn(&FakeLaunch<'_>) -> Result<(), Fault> + Send + Sync;

/// A kernel: a closure that gets parameters and memory, and may fault.
#[derive(Clone)]
pub struct FakeKernel {
    pub(crate) parameter_bytes: u32,
    pub(crate) run: Arc<Run>,
}

/// A kernel's view of its launch.
pub struct FakeLaunch<'a> {
    /// Dimensions.
    pub shape: LaunchShape,
    /// How the blocks stand to each other.
    pub options: LaunchOptions,
    /// The parameter block.
    pub parameters: &'a [u8],
    pub(crate) memory: &'a SpaceMemory,
}

impl fmt::Debug for FakeKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeKernel")
            .field("parameter_bytes", &self.parameter_bytes)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FakeLaunch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeLaunch")
            .field("shape", &self.shape)
            .field("options", &self.options)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

impl FakeLaunch<'_> {
    /// Returns the 64-bit parameter at byte `offset`; zero if there is none.
    pub fn parameter(&self, offset: usize) -> u64 {
        let bytes = self.parameters.get(offset..offset + 8);
        bytes.map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
    }

    /// Stores a 64-bit word at a GPU address.
    ///
    /// # Errors
    /// `MemoryFault` if the address is not mapped for this access.
    pub fn store(&self, va: u64, value: u64) -> Result<(), Fault> {
        self.memory.write(va, &value.to_le_bytes())
    }

    /// Loads a 64-bit word from a GPU address.
    ///
    /// # Errors
    /// `MemoryFault` if the address is not mapped for this access.
    pub fn load(&self, va: u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.memory.read(va, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Whether work is to return soon.
    pub fn stopped(&self) -> bool {
        self.memory.stop.load(Ordering::Relaxed)
    }
}
