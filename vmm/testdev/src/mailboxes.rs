//! Letters between the VMs of a run.

use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use causeway_protocol::harness::NoLetter;

/// Number of boxes.
pub const BOXES: usize = 64;

/// Boxes that all VMs of a run share. A letter stays in its box, for any number of VMs to fetch, until
/// another is left there.
#[derive(Debug, Default)]
pub struct PostOffice {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    boxes: [Option<[u8; 64]>; BOXES],
    /// Whether it is no use to wait for letters any more.
    given_up: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            boxes: [None; BOXES],
            given_up: false,
        }
    }
}

impl PostOffice {
    /// Leaves a letter. `None` if there is no such box.
    pub fn leave(&self, slot: u32, letter: [u8; 64]) -> Option<()> {
        let mut state = self.state();
        *state.boxes.get_mut(slot as usize)? = Some(letter);
        self.changed.notify_all();
        Some(())
    }

    /// Copies the letter in a box, waiting for one for at most `wait`, until [`Self::give_up`], or until `stop`
    /// is set and [`Self::interrupt`] called.
    ///
    /// # Errors
    /// There is none, or no such box.
    pub fn fetch(
        &self,
        slot: u32,
        wait: Duration,
        stop: &AtomicBool,
    ) -> Result<[u8; 64], NoLetter> {
        let deadline = Instant::now() + wait;
        let mut state = self.state();
        loop {
            let letter = *state.boxes.get(slot as usize).ok_or(NoLetter::NotYet)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(letter) = letter {
                return Ok(letter);
            }
            if state.given_up {
                return Err(NoLetter::Hopeless);
            }
            if left.is_zero() || super::stopped(stop) {
                return Err(NoLetter::NotYet);
            }
            (state, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has everyone who waits look at their `stop` again.
    pub fn interrupt(&self) {
        // Under the lock, or a waiter that has just looked would sleep through it.
        let _state = self.state();
        self.changed.notify_all();
    }

    /// Nobody waits for letters any more, now or later: a VM has ended without passing. Which letters it still owed
    /// nobody knows, and the run has failed anyway. Letters that are there can be fetched, and new ones left.
    pub fn give_up(&self) {
        self.state().given_up = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    static RUN: AtomicBool = AtomicBool::new(false);

    #[test]
    fn letters_stay_until_replaced() {
        let post = PostOffice::default();
        assert_eq!(post.fetch(1, Duration::ZERO, &RUN), Err(NoLetter::NotYet));
        post.leave(1, [1; 64]).unwrap();
        assert_eq!(post.fetch(1, Duration::ZERO, &RUN), Ok([1; 64]));
        post.leave(1, [2; 64]).unwrap();
        assert_eq!(post.fetch(1, Duration::ZERO, &RUN), Ok([2; 64]));
        assert_eq!(post.leave(64, [0; 64]), None);
        let no_box = post.fetch(64, Duration::from_secs(9), &RUN);
        assert_eq!(no_box, Err(NoLetter::NotYet));
    }

    #[test]
    fn waiters_wake_for_a_letter_and_for_the_end() {
        let post = Arc::new(PostOffice::default());
        let stop = Arc::new(AtomicBool::new(false));
        let wait = |slot| {
            let (post, stop) = (Arc::clone(&post), Arc::clone(&stop));
            std::thread::spawn(move || post.fetch(slot, Duration::from_secs(60), &stop))
        };
        let (served, abandoned) = (wait(0), wait(1));
        post.leave(0, [7; 64]).unwrap();
        assert_eq!(served.join().unwrap(), Ok([7; 64]));
        stop.store(true, Ordering::Release);
        post.interrupt();
        assert_eq!(abandoned.join().unwrap(), Err(NoLetter::NotYet));
    }

    #[test]
    fn once_given_up_only_letters_that_are_there_are_fetched() {
        let post = Arc::new(PostOffice::default());
        post.leave(0, [7; 64]).unwrap();
        let waiter = Arc::clone(&post);
        let minute = Duration::from_secs(60);
        let waiter = std::thread::spawn(move || waiter.fetch(1, minute, &RUN));
        let begin = Instant::now();
        post.give_up();
        assert_eq!(waiter.join().unwrap(), Err(NoLetter::Hopeless));
        assert_eq!(post.fetch(2, minute, &RUN), Err(NoLetter::Hopeless));
        assert_eq!(post.fetch(0, minute, &RUN), Ok([7; 64]));
        post.leave(1, [8; 64]).unwrap();
        assert_eq!(post.fetch(1, minute, &RUN), Ok([8; 64]));
        assert!(begin.elapsed() < minute / 2);
    }
}
