//! What shows that a device goes on with a session's work.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

type PiecesObserver = Box<dyn Fn(Pieces) + Send + Sync>;

/// Pieces of work that queues have marked: kernels, copies, replays, or several of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Those whose submission is done.
    pub begun: u64,
    /// Those of them that the device has ended.
    pub ended: u64,
}

/// The pulse of a session's work on a device that runs behind its submission: it tells when pieces
/// of work end. Somebody who watches a session with a limit on the time of its work cannot see more
/// of such a device.
#[derive(Default)]
pub struct Pulse {
    is_wanted: AtomicBool,
    /// A leaf lock.
    pieces: Mutex<Pieces>,
    observer: OnceLock<PiecesObserver>,
}

causeway_memory::debug_fields!(Pulse { is_wanted, pieces });

impl Pulse {
    /// Returns whether somebody watches. Only then queues have to mark pieces of work.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Notes that a piece of work is under way.
    pub fn begin(&self) {
        self.change(|pieces| pieces.begun += 1);
    }

    /// Notes that a piece of work has ended.
    pub fn end(&self) {
        self.change(|pieces| pieces.ended += 1);
    }

    fn change(&self, change: impl FnOnce(&mut Pieces)) {
        let mut pieces = self.pieces.lock();
        change(&mut pieces);
        if let Some(observer) = self.observer.get() {
            observer(*pieces);
        }
    }

    /// Sets whether somebody watches. Only the mediator calls this.
    pub fn want(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    /// Makes each change call `observer`, in the order of the changes; a second observer is
    /// ignored. Only the mediator calls this.
    pub fn observe(&self, observer: impl Fn(Pieces) + Send + Sync + 'static) {
        let _ = self.observer.set(Box::new(observer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_observer_hears_of_each_piece() {
        let heard = Arc::<Mutex<Vec<_>>>::default();
        let told = Arc::clone(&heard);
        let pulse = Pulse::default();
        pulse.observe(move |it| told.lock().push((it.begun, it.ended)));
        pulse.begin();
        pulse.begin();
        pulse.end();
        assert_eq!(*heard.lock(), [(1, 0), (2, 0), (2, 1)]);
    }
}
