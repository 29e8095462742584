//! The worker process that waits to take the place of one that is lost.
//!
//! A reset of a GPU with an endless kernel under way costs the worker process. Its end takes the
//! driver time, and so does the start of the next one, each more the busier the GPU is. So the next
//! one starts before the last one ends; and where starts are slow, a session that was reset in this
//! way has one ready for the next time. There is at most one, since it takes memory of the GPU that
//! no quota counts.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;

use super::shared::{Order, Shared};
use super::spare::Fresh;

/// A session that waits this long for a start makes starts slow.
const SLOW: Duration = Duration::from_millis(100);

/// The worker that waits to take the place of one that is lost.
#[derive(Default)]
pub(super) struct Successor(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whether a session has waited that long for a start.
    is_wanted: bool,
    /// The number of the partition for which it was started, and the process.
    waiting: Option<(u32, Fresh)>,
}

impl State {
    /// Takes the process that waits for the session of `order`.
    fn take(&mut self, order: &Order) -> Option<Fresh> {
        let taken = self
            .waiting
            .take_if(|(partition, _)| *partition == order.partition);
        taken.map(|(_, fresh)| fresh)
    }

    /// Forgets a process that has ended, so that another can take its place.
    fn drop_dead(&mut self) {
        let has_ended = |(_, fresh): &mut (u32, Fresh)| fresh.process.wait(Duration::ZERO);
        drop(self.waiting.take_if(has_ended));
    }
}

impl Successor {
    /// Returns the process ID of the process that waits.
    #[cfg(test)]
    pub fn id(&self) -> Option<u32> {
        let state = self.0.lock();
        state.waiting.as_ref().map(|(_, fresh)| fresh.process.id())
    }

    /// Returns a process for the session of `order`, which creates its back end already.
    pub fn take(&self, shared: &Shared, order: &Order) -> io::Result<Fresh> {
        let waiting = self.0.lock().take(order);
        match waiting.filter(|fresh| !fresh.process.wait(Duration::ZERO)) {
            Some(fresh) => Ok(fresh),
            None => Fresh::start_ahead(shared, order.session, order.partition),
        }
    }

    /// Sees to it that a process waits for the session of `order`, if starts are slow and none
    /// waits for another. `last_start` is what the session has just waited for.
    pub fn prepare(&self, shared: &Shared, order: &Order, last_start: Duration) {
        if !self.wants_one(last_start) {
            return;
        }
        // Not with the lock: sessions that end take it.
        match Fresh::start_ahead(shared, order.session, order.partition) {
            // Another session may have been faster.
            Ok(fresh) => drop(self.offer(order, fresh)),
            Err(e) => log::debug!("cannot start a worker ahead of its use: {e}"),
        }
    }

    fn wants_one(&self, last_start: Duration) -> bool {
        let mut state = self.0.lock();
        state.is_wanted |= last_start >= SLOW;
        state.drop_dead();
        state.is_wanted && state.waiting.is_none()
    }

    /// Has `fresh` wait for the session of `order`. Returns it if another process waits.
    fn offer(&self, order: &Order, fresh: Fresh) -> Option<Fresh> {
        let mut state = self.0.lock();
        if state.waiting.is_some() {
            return Some(fresh);
        }
        state.waiting = Some((order.partition, fresh));
        None
    }

    /// Begins to end the process that waits for the session of `order`. Does not wait for its end.
    pub fn kill(&self, order: &Order) {
        let state = self.0.lock();
        if let Some((partition, fresh)) = &state.waiting
            && *partition == order.partition
        {
            fresh.process.kill();
        }
    }

    /// Ends the process that waits for the session of `order`, which has ended.
    pub fn forget(&self, order: &Order) {
        let unwanted = self.0.lock().take(order);
        // Not with the lock: it takes until the process has ended.
        drop(unwanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_wanted_once_a_start_was_slow() {
        let successor = Successor::default();
        assert!(!successor.wants_one(Duration::ZERO));
        assert!(successor.wants_one(SLOW));
        assert!(successor.wants_one(Duration::ZERO));
    }
}
