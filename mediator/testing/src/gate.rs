//! A gate at which calls of a back end wait until the test opens it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How often a call that waits asks whether it shall give up.
const LOOK: Duration = Duration::from_millis(1);

/// Open until a test closes it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
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
        self.pass_unless(&|| false);
    }

    /// Waits until the gate is open. Returns false as soon as `gives_up` returns true.
    pub fn pass_unless(&self, gives_up: &dyn Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.closed && !gives_up() {
            self.changed.wait_for(&mut state, LOOK);
        }
        state.waiting -= 1;
        !state.closed
    }

    /// Returns the number of calls that wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}
