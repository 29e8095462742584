//! The events on which a consumer sleeps: its doorbell, and a request to stop.
//!
//! A process that holds the doorbell's eventfd can fill it, read it or change its flags, which all
//! holders share. This module therefore neither reads nor writes it, and only watches for writes.
//! The request to stop has an event that no other process holds.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// The events on which a consumer sleeps. One thread sleeps; any thread may stop it.
#[derive(Debug)]
pub(crate) struct Bell {
    doorbell: EventFd,
    /// Readable from [`Self::stop`] on.
    stop: EventFd,
    /// Watches both.
    epoll: Epoll,
    stopped: AtomicBool,
}

impl Bell {
    pub fn new() -> io::Result<Self> {
        let doorbell = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        let stop = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        let epoll = Epoll::new()?;
        let watch = |event: &EventFd, how| {
            let watched = EpollEvent::new(how, 0);
            epoll.ctl(ControlOperation::Add, event.as_raw_fd(), watched)
        };
        // Each write is an edge, whatever the counter was (eventfd_write, eventfd_signal in
        // fs/eventfd.c).
        watch(&doorbell, EventSet::IN | EventSet::EDGE_TRIGGERED)?;
        watch(&stop, EventSet::IN)?;
        Ok(Self {
            doorbell,
            stop,
            epoll,
            stopped: AtomicBool::new(false),
        })
    }

    /// Returns the event (eventfd) that becomes signalled when the guest writes to its doorbell
    /// register.
    pub fn doorbell(&self) -> &EventFd {
        &self.doorbell
    }

    /// Asks the thread that consumes the command buffer to end, and wakes it if it sleeps.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Fails only when the counter is full, and then the consumer is awake.
        let _ = self.stop.write(1);
    }

    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Sleeps until the guest rings the doorbell or [`Self::stop`] is called.
    pub fn sleep(&self) {
        self.wait(-1);
    }

    /// Sleeps until the guest rings the doorbell or [`Self::stop`] is called, but no longer than
    /// `limit`. Returns true if one of the two happened, and false if the time ran out first.
    pub fn sleep_for(&self, limit: Duration) -> bool {
        self.wait(i32::try_from(limit.as_millis()).unwrap_or(i32::MAX))
    }

    fn wait(&self, limit_ms: i32) -> bool {
        let mut events = [EpollEvent::default(); 2];
        // An interruption is a wake-up without a reason: the consumer looks, and sleeps again.
        self.epoll.wait(limit_ms, &mut events).is_ok_and(|n| n != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread::JoinHandle;

    /// A counter that takes no more (eventfd(2)).
    const FULL: u64 = u64::MAX - 1;

    fn sleeper(bell: &Arc<Bell>) -> JoinHandle<()> {
        let bell = Arc::clone(bell);
        std::thread::spawn(move || {
            while !bell.stopped() {
                bell.sleep();
            }
        })
    }

    #[test]
    fn each_ring_wakes_once_and_a_stop_for_good() {
        let bell = Bell::new().unwrap();
        assert!(!bell.sleep_for(Duration::ZERO));
        for _ in 0..3 {
            bell.doorbell().write(1).unwrap();
            bell.doorbell().write(1).unwrap();
            assert!(bell.sleep_for(Duration::ZERO));
            assert!(!bell.sleep_for(Duration::ZERO));
        }
        bell.stop();
        bell.stop();
        bell.sleep();
        assert!(bell.stopped() && bell.sleep_for(Duration::ZERO));
    }

    #[test]
    fn a_full_doorbell_blocks_no_stop() {
        let bell = Arc::new(Bell::new().unwrap());
        bell.doorbell().write(FULL).unwrap();
        let sleeper = sleeper(&bell);
        bell.stop();
        sleeper.join().unwrap();
    }

    #[test]
    fn a_reader_of_the_doorbell_does_not_keep_the_stop_from_the_consumer() {
        let bell = Arc::new(Bell::new().unwrap());
        let thief = bell.doorbell().try_clone().unwrap();
        let sleeper = sleeper(&bell);
        bell.stop();
        // There is nothing to steal.
        assert_eq!(thief.read().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        sleeper.join().unwrap();
    }
}
