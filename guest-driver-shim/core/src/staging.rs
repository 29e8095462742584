//! Memory of the caller's that messages name: module images, logs, packets to record.
//!
//! A program that knows guest-physical addresses of its own memory needs none of this.

use causeway_protocol::Access;
use causeway_protocol::message::{self, APERTURE_ADDRESS, MemoryKind, PREVIOUS, operation};

use crate::device::Device;
use crate::error::AllocateError;
use crate::memory::{Allocation, CpuMapping, PAGE_BYTES};
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
        let kind = MemoryKind::Host;
        let length = bytes.next_multiple_of(PAGE_BYTES);
        let mut batch = device.batch();
        let allocate = batch.push::<operation::Allocate>(&message::Allocate {
            size: length,
            kind: kind as u32,
            flags: 0,
        });
        let map = batch.push::<operation::MapCpu>(&message::MapCpu {
            allocation: PREVIOUS,
            access: Access::ReadWrite.wire(),
            offset: 0,
            length,
        });
        let replies = batch.execute();
        let (allocated, mapped) = (replies.require(allocate), replies.require(map));
        drop(replies); // A drop of the allocation needs the control area.
        let failed = |refusal| AllocateError {
            bytes,
            kind,
            refusal,
        };
        let memory = Allocation::from_reply(device, &allocated.map_err(failed)?);
        let offset = mapped.map_err(failed)?.address;
        Ok(Self {
            mapping: CpuMapping::at(device, offset, length).map_err(failed)?,
            _memory: memory,
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
