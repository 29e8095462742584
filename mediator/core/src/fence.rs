//! Sleeping until a fence in memory reaches a value.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// First and longest time between two looks at a fence. Guest CPUs, other sessions and real GPUs do
/// not announce their stores, so a sleeper looks now and then. The first is about half of what the
/// shortest kernel takes on a GPU.
const PERIOD_MIN: Duration = Duration::from_micros(4);
const PERIOD_MAX: Duration = Duration::from_millis(1);
/// A wait ends late by at most this part of the time that it has taken, or by the first period.
const LATENESS: u32 = 32;
/// How much later than asked Linux may end a sleep of this thread. Its default, 50 µs, is longer
/// than most kernels take.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

/// Wakes the sleepers of one session. Without a sleeper, that costs a memory fence and a load.
///
/// No wake-up is lost between the two: a sleeper (S1) registers, (S2) full fence, (S3) looks; a
/// waker (W1) stores, (W2) full fence, (W3) looks for sleepers. A sleeper that missed the store is
/// seen. A sleeper looks without the lock, because a look may take long; a wake-up between its look
/// and its sleep shows in the number of wake-ups.
#[derive(Debug, Default)]
pub(crate) struct FenceSignal {
    sleepers: AtomicUsize,
    /// Number of wake-ups, which may wrap.
    wakeups: Mutex<u64>,
    condvar: Condvar,
}

impl FenceSignal {
    /// Wakes all threads that wait for fences of the session, so that each checks its fence again.
    pub fn notify(&self) {
        fence(Ordering::SeqCst); // W2
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            let mut wakeups = self.wakeups.lock();
            *wakeups = wakeups.wrapping_add(1);
            self.condvar.notify_all();
        }
    }

    /// Waits until `look` returns a value, and returns that value; returns `None` at `deadline`.
    /// Calls `look` after each [`Self::notify`], and at least once per millisecond, without a lock.
    /// The calling thread keeps the short timer slack that the wait sets.
    pub fn wait_until<T>(&self, deadline: Instant, look: impl FnMut() -> Option<T>) -> Option<T> {
        self.wait_looking(deadline, PERIOD_MAX, look)
    }

    /// Waits as [`Self::wait_until`] does, but lets the time between two calls of `look` grow up to
    /// `period_max` instead of one millisecond.
    pub fn wait_looking<T>(
        &self,
        deadline: Instant,
        period_max: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let _registered = Registered::new(&self.sleepers); // S1, S2
        // Without it the wait ends later, and nothing else changes.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        let begun = Instant::now();
        let mut seen = *self.wakeups.lock();
        loop {
            if let Some(found) = look() {
                return Some(found); // S3
            }
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return None;
            }
            let period = ((now - begun) / LATENESS).clamp(PERIOD_MIN, period_max);
            let mut wakeups = self.wakeups.lock();
            if *wakeups == seen {
                self.condvar.wait_for(&mut wakeups, period.min(left));
            }
            seen = *wakeups;
        }
    }
}

struct Registered<'a>(&'a AtomicUsize);

impl<'a> Registered<'a> {
    fn new(sleepers: &'a AtomicUsize) -> Self {
        sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Self(sleepers)
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_wait_rests_between_looks() {
        let mut looks = 0;
        let deadline = Instant::now() + Duration::from_millis(20);
        let found = FenceSignal::default().wait_until(deadline, || {
            looks += 1;
            None::<()>
        });
        assert!(found.is_none() && looks < 2_000, "{looks} looks");
    }

    #[test]
    fn an_unannounced_value_is_found_and_a_missing_one_times_out() {
        let signal = FenceSignal::default();
        let value = Arc::new(AtomicU64::new(0));
        let writer = Arc::clone(&value);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            writer.store(1, Ordering::Release);
        });
        let look = || (value.load(Ordering::Acquire) == 1).then_some(());
        assert_eq!(
            signal.wait_until(Instant::now() + Duration::from_secs(5), look),
            Some(())
        );
        thread.join().unwrap();
        let begun = Instant::now();
        let deadline = begun + Duration::from_millis(3);
        assert_eq!(signal.wait_until(deadline, || None::<()>), None);
        assert!(begun.elapsed() >= Duration::from_millis(3));
    }

    #[test]
    fn who_waits_is_woken_and_nobody_else() {
        let signal = FenceSignal::default();
        let woken = || {
            signal.notify();
            *signal.wakeups.lock()
        };
        assert_eq!(woken(), 0);
        let waits = Registered::new(&signal.sleepers);
        assert_eq!(woken(), 1);
        drop(waits);
        assert_eq!(woken(), 1);
    }
}
