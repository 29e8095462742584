//! Memory of the caller's that messages name: module images, logs, packets to record.
//!
//! A program that knows guest-physical addresses of its own memory needs none of this.

use causeway_protocol::message::{APERTURE_ADDRESS, MemoryKind};

use crate::buffer::MappedMemory;
use crate::device::Device;
use crate::error::AllocateError;
use crate::memory::{Allocation, CpuMapping};
use crate::module::RamRange;
use crate::window::Window;

/// Host memory in the aperture, named by its place there.
pub struct Staging<'d> {
    mapping: CpuMapping<'d>,
    /// Freed on drop, with the mapping.
    _memory: Allocation<'d>,
}

impl<'d> Staging<'d> {
    /// `bytes` bytes, rounded up to pages. One exit.
    ///
    /// # Errors
    /// [`AllocateError`].
    pub fn new(device: &'d Device<'d>, bytes: u64) -> Result<Self, AllocateError> {
        let mapped = MappedMemory::new(device, MemoryKind::Host, bytes, None, true)?;
        let Some(mapping) = mapped.cpu else {
            unreachable!("the mapping was asked for")
        };
        Ok(Self {
            mapping,
            _memory: mapped.allocation,
        })
    }

    /// The memory.
    #[must_use]
    pub const fn window(&self) -> &Window {
        self.mapping.window()
    }

    /// All of it, as messages name it.
    #[must_use]
    pub fn range(&self) -> RamRange {
        RamRange {
            address: APERTURE_ADDRESS | self.mapping.aperture_offset(),
            bytes: self.window().bytes() as u64,
        }
    }
}
