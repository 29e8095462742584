//! What a module takes of its session's quota, reserved while the module is loaded.

use std::sync::Arc;

use super::ModuleError;
use crate::quota::{Account, Charge, Quota, Resource};
use crate::refusal::Refusal;

/// The part of a session's quota that a module takes. A back end reserves here what it is about to
/// take for a module, so that a module beyond the quota is refused before it takes anything from
/// others. What is reserved counts at once, also for other loads of the same session. When the
/// module is loaded, the mediator corrects the memory to [`super::Module::memory_bytes`].
#[derive(Debug)]
pub struct Reservation {
    memory: Charge,
    allocations: Charge,
    refusal: Option<Refusal>,
}

impl Reservation {
    pub(crate) fn new(account: &Arc<Account>) -> Self {
        Self {
            memory: Charge::nothing(account, Resource::MemoryBytes),
            allocations: Charge::nothing(account, Resource::Allocations),
            refusal: None,
        }
    }

    /// Returns a reservation of a session that has the limits `quota` and uses nothing yet, for
    /// programs that use a back end without a mediator.
    pub fn within(quota: Quota) -> Self {
        Self::new(&Account::new(quota))
    }

    /// Returns a reservation that refuses nothing, for programs as above.
    pub fn unlimited() -> Self {
        Self::within(Quota::from_limits([u64::MAX; Quota::LIMITS]))
    }

    /// Reserves `bytes` bytes of memory, in addition to what is reserved already. `what` begins the
    /// message of the error: "the module's variables take".
    ///
    /// # Errors
    /// [`ModuleError`] if the session has fewer bytes left. The load must then fail with it.
    pub fn memory(&mut self, bytes: u64, what: &str) -> Result<(), ModuleError> {
        let left = self.memory.left();
        self.memory.grow(bytes).map_err(|refusal| {
            self.refusal = Some(refusal);
            let limit = self.memory.limit();
            let reason = format!(
                "{what} {bytes} bytes of memory, and {left} of {limit} bytes are left to the \
                 session: free memory, unload modules, or allow it more (`memory=`)"
            );
            ModuleError::new(0, reason)
        })
    }

    /// Reserves one allocation, for an object of the host's memory: such an object takes a file
    /// descriptor and mappings, of which all sessions of a process have a limited number. `what`
    /// begins the message of the error: "the module's variables take".
    ///
    /// # Errors
    /// [`ModuleError`] if the session has no allocation left. The load must then fail with it.
    pub fn allocation(&mut self, what: &str) -> Result<(), ModuleError> {
        self.allocations.grow(1).map_err(|refusal| {
            self.refusal = Some(refusal);
            let limit = self.allocations.limit();
            let reason = format!(
                "{what} an allocation, and the session has all the {limit} that it may have: free \
                 memory, unload modules, or allow it more (`allocations=`)"
            );
            ModuleError::new(0, reason)
        })
    }

    /// Returns why the quota refused the module; `None` if it did not.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Returns the charges of a module that is loaded and takes `memory_bytes` bytes of memory.
    /// Fails with `QuotaBytes` if these are more than were reserved and more than the session has.
    pub(crate) fn settle(mut self, memory_bytes: u64) -> Result<[Charge; 2], Refusal> {
        self.memory.resize(memory_bytes)?;
        Ok([self.memory, self.allocations])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_protocol::message::Status;

    #[test]
    fn a_reservation_beyond_the_quota_names_what_is_wanted_and_what_is_left() {
        let account = Account::new(Quota {
            memory_bytes: 1000,
            allocations: 1,
            ..Quota::default()
        });
        let mut reservation = Reservation::new(&account);
        reservation.memory(600, "code takes").unwrap();
        let error = reservation.memory(401, "code takes").unwrap_err();
        let text = "code takes 401 bytes of memory, and 400 of 1000 bytes are left";
        assert!(error.reason.starts_with(text), "{error}");
        let refusal = reservation.refusal().unwrap();
        assert_eq!(refusal.status, Status::QuotaBytes);
        reservation.allocation("code takes").unwrap();
        let error = reservation.allocation("code takes").unwrap_err();
        assert!(error.reason.contains("all the 1 that it may"), "{error}");
        let refusal = reservation.refusal().unwrap();
        assert_eq!(refusal.status, Status::QuotaAllocations);
        let charges = reservation.settle(1000).unwrap();
        assert_eq!(account.used(Resource::MemoryBytes), 1000);
        drop(charges);
        assert_eq!(account.used(Resource::Allocations), 0);
    }
}
