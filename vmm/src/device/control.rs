//! What the registers need of a session.

use causeway_mediator::Session;
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

impl Control for Session {
    fn execute(&self, batch: &mut [u8]) -> Status {
        Self::execute(self, batch)
    }

    fn reset(&self) {
        Self::reset(self);
    }

    fn status_bits(&self) -> u32 {
        Self::status_bits(self)
    }
}
