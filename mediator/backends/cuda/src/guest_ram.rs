//! Guest RAM for the GPU: registered as a whole at its first use, so that every later registration is bookkeeping.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use causeway_mediator::backend::BackendError;
use causeway_memory::SharedMemory;
use causeway_protocol::Access;

use crate::driver::Registration;
use crate::gpu::Gpu;
use crate::host_memory::{View, check_support, register};

/// The registrations of RAM.
#[derive(Default)]
pub(crate) struct GuestRams {
    known: Mutex<Vec<GuestRam>>,
}

/// A RAM object that was seen.
struct GuestRam {
    object: Weak<SharedMemory>,
    /// None if the driver refused it.
    whole: Option<Arc<Registration>>,
}

impl GuestRams {
    /// The registration of a range: part of that of the whole, or else one of its own.
    pub(crate) fn view(
        &self,
        gpu: &Gpu,
        ram: &Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<View, BackendError> {
        check_support(gpu)?;
        if let Some(registration) = self.whole(gpu, ram) {
            return Ok(View {
                registration,
                offset,
            });
        }
        let registration = register(&gpu.home, ram, (offset, bytes), Access::ReadWrite)?;
        Ok(View {
            registration: Arc::new(registration),
            offset: 0,
        })
    }

    /// Lets go of RAM that no longer exists.
    pub(crate) fn forget_ended(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let ended: Vec<_> = known
            .extract_if(.., |ram| ram.object.strong_count() == 0)
            .collect();
        drop(known);
        // Takes a while, and is not to be waited for under the lock.
        drop(ended);
    }

    /// Held over the registration: two guests' CPUs that come at once must not register twice.
    fn whole(&self, gpu: &Gpu, ram: &Arc<SharedMemory>) -> Option<Arc<Registration>> {
        self.forget_ended();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known
            .iter()
            .find(|known| std::ptr::eq(known.object.as_ptr(), Arc::as_ptr(ram)));
        if let Some(found) = found {
            return found.whole.clone();
        }
        let whole = register(&gpu.home, ram, (0, ram.bytes()), Access::ReadWrite)
            .map(Arc::new)
            .inspect_err(|e| {
                log::warn!("guest RAM is registered piece by piece, which is slower: {e}");
            })
            .ok();
        known.push(GuestRam {
            object: Arc::downgrade(ram),
            whole: whole.clone(),
        });
        whole
    }
}
