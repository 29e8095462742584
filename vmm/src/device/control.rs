//! What the registers need of a session.

use std::sync::Arc;

use causeway_mediator::GuestSession;
use causeway_protocol::message::Status;

/// A session, as the control registers see it. Methods come from several vCPU threads at once.
pub trait Control: Send + Sync {
    /// Executes a batch in place. `Ok`, or why the batch as a whole was not taken; it is then unchanged.
    fn execute(&self, batch: &mut [u8]) -> Status;
    /// Ends all that the guest owns and opens a fresh session.
    fn reset(&self);
    /// Bit set of [`causeway_protocol::registers::status`].
    fn status_bits(&self) -> u32;
}

impl<S: GuestSession + ?Sized> Control for Arc<S> {
    fn execute(&self, batch: &mut [u8]) -> Status {
        GuestSession::execute(&**self, batch)
    }

    fn reset(&self) {
        GuestSession::reset(&**self);
    }

    fn status_bits(&self) -> u32 {
        GuestSession::status_bits(&**self)
    }
}
