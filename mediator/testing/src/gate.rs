//! A gate at which calls of a back end wait until the test opens it.

use parking_lot::{Condvar, Mutex};

/// Open until a test closes it.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    waiting: usize,
}

impl Gate {
    /// Closes the gate, or opens it for all that wait.
    pub fn close(&self, closed: bool) {
        self.state.lock().closed = closed;
        self.changed.notify_all();
    }

    /// Waits until the gate is open.
    pub fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.wait_while(&mut state, |state| state.closed);
        state.waiting -= 1;
    }

    /// Returns the number of calls that wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}
