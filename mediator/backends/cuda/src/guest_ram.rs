//! Guest RAM for the GPU: registered as a whole at its first use, so that later requests need no
//! call of the driver.

use std::sync::{Arc, Weak};

use causeway_mediator::backend::BackendError;
use causeway_memory::SharedMemory;
use causeway_protocol::Access;
use parking_lot::Mutex;

use crate::driver::Context;
use crate::host_registration::{HostView, Registrar, register, register_again};

/// Remembers which guest RAM is registered with the GPU.
#[derive(Default)]
pub(crate) struct GuestRams {
    known: Mutex<Vec<GuestRam>>,
}

/// A RAM object of which some range was asked for.
struct GuestRam {
    object: Weak<SharedMemory>,
    /// The registration of the whole object; `None` if the driver refused it.
    whole: Option<HostView>,
}

impl GuestRams {
    /// Returns `bytes` bytes of `ram` from `offset` as registered memory: part of the registration
    /// of the whole object, or a registration of its own if the driver refuses the whole.
    ///
    /// # Errors
    /// `NoMemory` if the driver cannot lock the pages of this range either, or the guest has too
    /// many such registrations.
    pub(crate) fn view(
        &self,
        registrar: Registrar<'_>,
        ram: &Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<HostView, BackendError> {
        match self.whole(registrar.context, ram) {
            Some(whole) => Ok(whole.offset_by(offset)),
            None => register_again(registrar, ram, (offset, bytes), Access::ReadWrite),
        }
    }

    /// Ends the registrations of RAM objects that no longer exist.
    pub(crate) fn forget_ended(&self) {
        let mut known = self.known.lock();
        let ended: Vec<_> = known
            .extract_if(.., |ram| ram.object.strong_count() == 0)
            .collect();
        drop(known);
        // This takes a while, so it is done without the lock.
        drop(ended);
    }

    /// The lock is kept during the registration: two virtual CPUs at once must not register twice.
    fn whole(&self, context: &Arc<Context>, ram: &Arc<SharedMemory>) -> Option<HostView> {
        self.forget_ended();
        let mut known = self.known.lock();
        let found = known
            .iter()
            .find(|known| std::ptr::eq(known.object.as_ptr(), Arc::as_ptr(ram)));
        if let Some(found) = found {
            return found.whole.clone();
        }
        let whole = register(context, ram, (0, ram.bytes()), Access::ReadWrite)
            .inspect_err(|e| {
                log::warn!(
                    "cannot register all {bytes} bytes of a guest's RAM with the GPU at once; each \
                     range is registered when the guest uses it, which is slower: {e}",
                    bytes = ram.bytes()
                );
            })
            .ok();
        known.push(GuestRam {
            object: Arc::downgrade(ram),
            whole: whole.clone(),
        });
        whole
    }
}
