//! What ends a server: a signal, or the owner of a private one.

use std::os::fd::AsRawFd;

use causeway_vmm::signals::Signals;
use vmm_sys_util::eventfd::EventFd;

/// A descriptor that becomes readable when the server may have to end.
pub trait Stop: AsRawFd {
    /// Returns whether the server has to end, and resets the descriptor.
    fn has_come(&mut self) -> bool;
}

impl Stop for Signals {
    fn has_come(&mut self) -> bool {
        self.take().is_some()
    }
}

impl Stop for EventFd {
    fn has_come(&mut self) -> bool {
        self.read().is_ok()
    }
}
