//! What the registers need of a session.

use std::sync::Arc;

use causeway_mediator::{Client, GuestSession};
use causeway_protocol::message::Status;

/// A session, as the control registers see it. Methods come from several vCPU threads at once.
pub trait Control: Send + Sync {
    /// Executes a client's batch in place. `Ok`, or why the batch as a whole was not taken; it is then unchanged.
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status;
    /// Ends all that the guest owns and opens a fresh session.
    fn reset(&self);
    /// Ends all that a client owns.
    fn reset_client(&self, client: Client);
    /// The clients that own something, as [`Client::bit`] has them.
    fn owners(&self) -> u64;
    /// Bit set of [`causeway_protocol::registers::status`], as far as it is the same for all clients.
    fn status_bits(&self) -> u32;
}

impl<S: GuestSession + ?Sized> Control for Arc<S> {
    fn execute(&self, client: Client, batch: &mut [u8]) -> Status {
        GuestSession::execute(&**self, client, batch)
    }

    fn reset(&self) {
        GuestSession::reset(&**self);
    }

    fn reset_client(&self, client: Client) {
        GuestSession::reset_client(&**self, client);
    }

    fn owners(&self) -> u64 {
        GuestSession::owners(&**self)
    }

    fn status_bits(&self) -> u32 {
        GuestSession::status_bits(&**self)
    }
}
