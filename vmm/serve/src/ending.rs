//! Signals by which threads announce that they are about to end, so that the server joins them
//! soon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vmm_sys_util::eventfd::EventFd;

/// `EFD_NONBLOCK`, which is `O_NONBLOCK` (eventfd(2)).
pub const NONBLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The event by which each thread that serves a client process tells the server that it is about to
/// end.
pub struct Ends(Arc<EventFd>);

/// Tells the server whether one thread of a client process has announced that it is about to end.
#[derive(Clone)]
pub struct Ending {
    begun: Arc<AtomicBool>,
    event: Arc<EventFd>,
}

/// A guard that a thread of the server holds while it runs. A drop announces that the thread is
/// about to end.
pub struct OnDrop(Ending);

impl Ends {
    /// Creates an event that is not signalled.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(EventFd::new(NONBLOCKING)?)))
    }

    /// Returns an [`Ending`] for one more thread, which signals this event before it ends.
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

    /// Resets the event, so that only later announcements signal it. A thread makes
    /// [`Ending::has_begun`] true before it signals the event, so a check of all threads after this
    /// call misses none.
    pub fn take(&self) {
        let _ = self.0.read();
    }
}

impl Ending {
    /// Returns whether the thread has announced its end.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Returns the guard that the thread holds while it runs.
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
