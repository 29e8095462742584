//! What a device reaches of others.

use std::collections::BTreeMap;

use causeway_shim_linux::shim::{Allocation, ChunkPlace, Device, ExportToken};

use crate::driver::Driver;
use crate::rings::Marks;

/// What contexts of a device have access to, and what is mapped for that.
#[derive(Default)]
pub(super) struct Peers {
    /// Handles of a context and of one of another device whose memory it may use; twice that of a
    /// memory pool of another device, which all contexts may use.
    pub(super) enabled: Vec<(usize, usize)>,
    /// By the number of the owner's device and of the chunk.
    pub(super) mapped: BTreeMap<(usize, u64), Mapped>,
}

/// A chunk of another device. A drop ends the mapping; its export ends once the device's work has
/// that was under way, since the owner would not wait long for it.
pub(super) struct Mapped {
    pub(super) place: ChunkPlace,
    memory: Option<Allocation<'static>>,
    driver: &'static Driver,
    export: Export,
}

/// An export of a chunk: the device of its owner, and its token.
pub(super) type Export = (&'static Device<'static>, ExportToken);

/// Exports whose mappings have ended, each with the last submissions that may use the memory.
pub(super) type Ended = Vec<(Marks, Export)>;

impl Mapped {
    /// Keeps what was imported and mapped for the device of `driver`.
    pub(super) const fn new(
        place: ChunkPlace,
        memory: Allocation<'static>,
        driver: &'static Driver,
        export: Export,
    ) -> Self {
        Self {
            place,
            memory: Some(memory),
            driver,
            export,
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        drop(self.memory.take());
        let (driver, (owner, token)) = (self.driver, &self.export);
        let marks = driver.rings.marks();
        driver.rings.ask(driver, &marks);
        let mut ended = driver.memory.ended_exports.lock();
        ended.push((marks, (*owner, *token)));
        ended.retain(|(marks, (owner, token))| {
            let is_over = driver.rings.are_reached(marks);
            if is_over {
                // It has ended with the chunk, if that is gone.
                let _ = owner.revoke(token);
            }
            !is_over
        });
    }
}
