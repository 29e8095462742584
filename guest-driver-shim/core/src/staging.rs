//! Memory for what messages name by its address: module images, logs, packets to record.
//!
//! A program that knows guest-physical addresses of its own memory needs none of this.

use causeway_protocol::message::{APERTURE_ADDRESS, MemoryKind};

use crate::buffer::MappedMemory;
use crate::device::Device;
use crate::error::AllocateError;
use crate::memory::{Allocation, CpuMapping};
use crate::module::RamRange;
use crate::window::Window;

/// Host memory, mapped into the aperture, in which the guest passes module images and packets to
/// the device and receives logs. Messages refer to this memory by its offset in the aperture, so
/// that the guest need not know any guest-physical address.
#[derive(Debug)]
pub struct Staging<'d> {
    mapping: CpuMapping<'d>,
    /// Freed on drop, with the mapping.
    _memory: Allocation<'d>,
}

impl<'d> Staging<'d> {
    /// Allocates `bytes` bytes of host memory, rounded up to pages, and maps it into the aperture.
    /// One exit.
    ///
    /// # Errors
    /// [`AllocateError`] if the device refuses to allocate or to map the memory.
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

    /// Returns a window over the memory, for loads and stores by the CPU.
    #[must_use]
    pub const fn window(&self) -> &Window {
        self.mapping.window()
    }

    /// Returns the address and length of the memory, in the form in which messages refer to it.
    #[must_use]
    pub fn range(&self) -> RamRange {
        RamRange {
            address: APERTURE_ADDRESS | self.mapping.aperture_offset(),
            bytes: self.window().bytes() as u64,
        }
    }
}
