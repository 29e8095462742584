//! Allocations: parts of the BAR.

use std::any::Any;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;

use causeway_cpu_queue::{Caching, HostHandle, MappedMemory};
use causeway_host_vfio::RegionIndex;
use causeway_mediator::backend::{BackendError, Exported, Memory};
use causeway_memory::{Backing, DeviceMemory};
use causeway_protocol::message::Status;

use crate::bar::Bar;
use crate::pool::{Piece, Pool};
use crate::scrubber;

/// A partition of the BAR. After its drop, it is filled with zeros before another guest gets it.
pub(crate) struct BarMemory {
    /// Address in this process, mapped as long as `bar` lives.
    base: NonZeroUsize,
    piece: Piece,
    pool: Arc<Pool>,
    bar: Arc<Bar>,
}

causeway_memory::debug_fields!(BarMemory { piece });

impl MappedMemory for BarMemory {
    fn base(&self) -> NonNull<u8> {
        NonNull::with_exposed_provenance(self.base)
    }

    fn bytes(&self) -> u64 {
        self.piece.bytes
    }

    fn caching(&self) -> Caching {
        Caching::Uncached
    }
}

impl Drop for BarMemory {
    fn drop(&mut self) {
        if !self.pool.take_back(self.piece) {
            // The back end was dropped before, and its thread with it.
            scrubber::scrub(&self.bar, self.piece);
        }
    }
}

/// An allocation of device memory: one partition, which all sessions that import it share.
pub(crate) struct BarHandle {
    memory: Arc<BarMemory>,
    /// The memory as apertures map it, if guests may access it by loads and stores.
    visible: Option<Arc<dyn DeviceMemory>>,
}

impl BarHandle {
    /// Returns `piece` of `bar`, which the caller has taken from `pool`, as an allocation. Dropping
    /// the allocation returns the piece to the pool. If `visible`, guests can map it in their
    /// apertures.
    ///
    /// # Errors
    /// `BackEnd` if the piece is not within the BAR, or the Linux kernel refuses a second mapping
    /// of it.
    pub fn share(
        bar: Arc<Bar>,
        pool: Arc<Pool>,
        piece: Piece,
        visible: bool,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let Piece { offset, bytes, .. } = piece;
        let failed = || {
            let context = format!("allocate {bytes} bytes at {offset:#x} of a BAR");
            BackendError::new(Status::BackEnd, context)
        };
        // A piece that is not within the BAR does not go back to the pool.
        let base = bar.at(offset, bytes).ok_or_else(failed)?;
        let memory = BarMemory {
            base: base.expose_provenance(),
            piece,
            pool,
            bar: Arc::clone(&bar),
        };
        let index = RegionIndex::Bar(bar.number());
        let show = || bar.device().memory(index, offset, bytes);
        let visible = visible.then(show).transpose();
        Ok(Arc::new(Self {
            visible: visible.map_err(|e| failed().because(e))?,
            memory: Arc::new(memory),
        }))
    }
}

impl Memory for BarHandle {
    fn bytes(&self) -> u64 {
        self.memory.piece.bytes
    }

    fn backing(&self) -> Option<Backing> {
        self.visible.clone().map(Backing::Device)
    }

    fn export(&self) -> Result<Exported, BackendError> {
        let context = "share memory of a VFIO device with another process: the device's descriptor \
                       gives access to all of its memory";
        Err(BackendError::new(Status::Unsupported, context))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the memory of an allocation of this back end, mapped in this process; `None` for an
/// allocation of another back end.
pub(crate) fn mapped_of(handle: &Arc<dyn Memory>) -> Option<Arc<dyn MappedMemory>> {
    match handle.as_any().downcast_ref::<BarHandle>() {
        Some(own) => Some(Arc::clone(&own.memory) as _),
        None => HostHandle::memory_of(handle).map(|memory| memory as _),
    }
}
