//! What shows that a device goes on with a session's work.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A function that is called with the number of beats so far. Numbers may come out of order.
type BeatObserver = Box<dyn Fn(u64) + Send + Sync>;

/// The pulse of a session's work on a device that runs behind its submission: a beat for each piece
/// of work that has ended. Somebody who watches a session with a limit on the time of its work
/// cannot see more of such a device.
#[derive(Default)]
pub struct Pulse {
    is_wanted: AtomicBool,
    beats: AtomicU64,
    observer: OnceLock<BeatObserver>,
}

causeway_memory::debug_fields!(Pulse { is_wanted, beats });

impl Pulse {
    /// Returns whether somebody watches. Only then queues have to find out when each piece ends.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Notes that a piece of work has ended.
    pub fn beat(&self) {
        let beats = self.beats.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if let Some(observer) = self.observer.get() {
            observer(beats);
        }
    }

    /// Sets whether somebody watches. Only the mediator calls this.
    pub fn want(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    /// Makes each beat call `observer`; a second observer is ignored. Only the mediator calls this.
    pub fn observe(&self, observer: impl Fn(u64) + Send + Sync + 'static) {
        let _ = self.observer.set(Box::new(observer));
    }
}
