//! How threads say that they are about to end, so that they are joined soon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vmm_sys_util::eventfd::EventFd;

/// `EFD_NONBLOCK`, which is `O_NONBLOCK` (eventfd(2)).
const NONBLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// Where the ends of all threads are noticed.
pub struct Ends(Arc<EventFd>);

/// The end of one thread.
#[derive(Clone)]
pub struct Ending {
    begun: Arc<AtomicBool>,
    event: Arc<EventFd>,
}

/// Has an end begin when it is dropped.
pub struct OnDrop(Ending);

impl Ends {
    /// No thread ends yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(EventFd::new(NONBLOCKING)?)))
    }

    /// The end of one more thread.
    pub fn another(&self) -> Ending {
        Ending {
            begun: Arc::default(),
            event: Arc::clone(&self.0),
        }
    }

    /// Readable when an end has begun since the last [`Self::take`].
    pub fn event(&self) -> &EventFd {
        &self.0
    }

    /// Notices all ends so far. Each had begun before it was signalled: whoever looks afterwards misses none.
    pub fn take(&self) {
        let _ = self.0.read();
    }
}

impl Ending {
    /// Whether the thread is about to end, or has ended.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// For the thread to hold until it ends.
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
