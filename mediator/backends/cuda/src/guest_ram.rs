//! Guest RAM for the GPU: registered as a whole at its first use, so that every later registration
//! is bookkeeping.

use std::sync::{Arc, Weak};

use causeway_mediator::backend::BackendError;
use causeway_memory::SharedMemory;
use causeway_protocol::Access;
use parking_lot::Mutex;

use crate::driver::{Context, Registration};
use crate::host_registration::{HostView, register};

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
    /// Returns the registration of a range: part of that of the whole, or else one of its own.
    pub(crate) fn view(
        &self,
        context: &Arc<Context>,
        ram: &Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<HostView, BackendError> {
        if let Some(registration) = self.whole(context, ram) {
            return Ok(HostView {
                registration,
                offset,
            });
        }
        let registration = register(context, ram, (offset, bytes), Access::ReadWrite)?;
        Ok(HostView {
            registration: Arc::new(registration),
            offset: 0,
        })
    }

    /// Lets go of RAM that no longer exists.
    pub(crate) fn forget_ended(&self) {
        let mut known = self.known.lock();
        let ended: Vec<_> = known
            .extract_if(.., |ram| ram.object.strong_count() == 0)
            .collect();
        drop(known);
        // Takes a while, and is not to be waited for under the lock.
        drop(ended);
    }

    /// The lock is kept during the registration: two virtual CPUs at once must not register twice.
    fn whole(&self, context: &Arc<Context>, ram: &Arc<SharedMemory>) -> Option<Arc<Registration>> {
        self.forget_ended();
        let mut known = self.known.lock();
        let found = known
            .iter()
            .find(|known| std::ptr::eq(known.object.as_ptr(), Arc::as_ptr(ram)));
        if let Some(found) = found {
            return found.whole.clone();
        }
        let whole = register(context, ram, (0, ram.bytes()), Access::ReadWrite)
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
