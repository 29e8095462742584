//! The processes that this one has started for its sessions, so that all can be killed when it must
//! end, whatever its threads wait for.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

/// Longest wait for the lock of the list.
const LOCKED: Duration = Duration::from_millis(100);

/// The pidfds of all that may live.
static LIVING: Mutex<Vec<Weak<OwnedFd>>> = Mutex::new(Vec::new());

/// Adds a process to the list, until its pidfd is dropped.
pub(super) fn register(pidfd: OwnedFd) -> Arc<OwnedFd> {
    let pidfd = Arc::new(pidfd);
    let mut living = LIVING.lock();
    living.retain(|known| known.strong_count() != 0);
    living.push(Arc::downgrade(&pidfd));
    pidfd
}

/// Kills all worker processes of this process, and those that start them, and waits until they have
/// ended, but no longer than `patience`: a driver may hold them in the kernel. Returns how many
/// were killed.
pub fn kill_workers(patience: Duration) -> usize {
    let living: Vec<Arc<OwnedFd>> = match LIVING.try_lock_for(LOCKED) {
        Some(living) => living.iter().filter_map(Weak::upgrade).collect(),
        None => return 0,
    };
    let killed = living.iter();
    let killed = killed
        .filter(|pidfd| pidfd_send_signal(pidfd, Signal::KILL).is_ok())
        .count();
    let deadline = Instant::now() + patience;
    for pidfd in &living {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], left.as_ref());
    }
    killed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rig::is_alone_at;

    #[test]
    fn the_wait_for_ends_is_as_long_as_the_caller_says() {
        if !is_alone_at("parent::living::tests::the_wait_for_ends_is_as_long_as_the_caller_says") {
            return;
        }
        // Like the pidfd of a process that a driver holds in the kernel: never readable.
        let (held, _writer) = std::io::pipe().unwrap();
        let _living = register(held.into());
        let (begun, patience) = (Instant::now(), Duration::from_millis(100));
        assert_eq!(kill_workers(patience), 0);
        assert!(begun.elapsed() >= patience);
    }
}
