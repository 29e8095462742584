//! Signals by which threads announce that they are about to end, so that the server joins them
//! soon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vmm_sys_util::eventfd::EventFd;

/// `EFD_NONBLOCK`, which is `O_NONBLOCK` (eventfd(2)).
const NONBLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The event that all threads signal before they end.
pub struct Ends(Arc<EventFd>);

/// Tells whether one thread is about to end.
#[derive(Clone)]
pub struct Ending {
    begun: Arc<AtomicBool>,
    event: Arc<EventFd>,
}

/// Announces the end of a thread when it is dropped.
pub struct OnDrop(Ending);

impl Ends {
    /// Returns an event that is not signalled.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(EventFd::new(NONBLOCKING)?)))
    }

    /// Returns the end signal of another thread.
    pub fn another(&self) -> Ending {
        Ending {
            begun: Arc::default(),
            event: Arc::clone(&self.0),
        }
    }

    /// Returns the event. It is readable if a thread has announced its end since the last
    /// [`Self::take`].
    pub fn event(&self) -> &EventFd {
        &self.0
    }

    /// Resets the event. [`Ending::has_begun`] is set before the event is signalled, so a check
    /// after this call misses no end.
    pub fn take(&self) {
        let _ = self.0.read();
    }
}

impl Ending {
    /// Returns whether the thread is about to end or has ended.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Returns a guard that the thread holds until it ends.
    pub const fn on_drop(self) -> OnDrop {
        OnDrop(self)
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.begun.store(true, Ordering::SeqCst);
        // Only a full counter refuses, and then the event is readable anyway.
        let _ = self.0.event.write(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_once_and_remembered_also_after_a_panic() {
        let ends = Ends::new().unwrap();
        let (first, second) = (ends.another(), ends.another());
        let held = first.clone().on_drop();
        let thread = std::thread::spawn(move || {
            let _held = held;
            panic!("the test wants it");
        });
        assert!(thread.join().is_err());
        assert_eq!(ends.event().read().unwrap(), 1);
        ends.take();
        assert!(ends.event().read().is_err());
        assert!(first.has_begun() && !second.has_begun());
    }
}
