//! Machines that one test at a time has.

use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::machine::Shape;

/// Machines by their shapes. `M` is a machine.
pub struct Pool<M> {
    state: Mutex<State<M>>,
    /// A lease has ended.
    changed: Condvar,
}

struct State<M> {
    /// Machines that no test has, the one that has been idle for longest first.
    idle: Vec<(Shape, M)>,
    /// Number of leases. Each has a machine or is about to boot one.
    lent: usize,
}

impl<M> Pool<M> {
    /// A pool without machines.
    pub const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                idle: Vec::new(),
                lent: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits while `most` machines are lent. Returns an idle machine of this shape; `None` if the
    /// caller has to boot one. Ends idle machines that are not up, and those of other shapes if
    /// there would be more than `most` with the new one. [`Self::give_back`] ends the lease.
    pub fn take(&self, shape: &Shape, most: NonZeroUsize, is_up: impl Fn(&M) -> bool) -> Option<M> {
        let state = self.locked();
        let are_all_lent = |state: &mut State<M>| state.lent >= most.get();
        let state = self.changed.wait_while(state, are_all_lent);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.lent += 1;
        let ended: Vec<_> = state.idle.extract_if(.., |(_, it)| !is_up(it)).collect();
        let found = state.idle.iter().position(|(of, _)| of == shape);
        let found = found.map(|index| state.idle.remove(index).1);
        let room = most.get() - state.lent;
        let surplus = match found {
            Some(_) => 0,
            None => state.idle.len().saturating_sub(room),
        };
        let surplus: Vec<_> = state.idle.drain(..surplus).collect();
        drop(state);
        // Not with the lock held, since that takes time; and before the other one boots, because
        // the host may not have memory for one more.
        drop((ended, surplus));
        found
    }

    /// Ends a lease. Its machine is for other tests, if there is one.
    pub fn give_back(&self, machine: Option<(Shape, M)>) {
        let mut state = self.locked();
        state.lent -= 1;
        state.idle.extend(machine);
        self.changed.notify_one();
    }

    fn locked(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const TWO: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

    fn shape(cpus: u32) -> Shape {
        Shape {
            cpus,
            ..Shape::default()
        }
    }

    /// A machine is a number here. Those from 100 on are not up.
    fn take(pool: &Pool<u32>, cpus: u32) -> Option<u32> {
        pool.take(&shape(cpus), TWO, |number| *number < 100)
    }

    fn idle(pool: &Pool<u32>) -> Vec<u32> {
        pool.locked()
            .idle
            .iter()
            .map(|(_, number)| *number)
            .collect()
    }

    #[test]
    fn a_machine_is_for_the_next_test_of_its_shape() {
        let pool = Pool::new();
        assert_eq!(take(&pool, 1), None);
        pool.give_back(Some((shape(1), 7)));
        assert_eq!(take(&pool, 1), Some(7));
        assert_eq!(take(&pool, 1), None, "another one may boot");
    }

    #[test]
    fn a_machine_of_another_shape_ends_only_if_there_is_no_room() {
        let pool = Pool::new();
        assert_eq!(take(&pool, 1), None);
        pool.give_back(Some((shape(1), 7)));
        assert_eq!(take(&pool, 2), None);
        assert_eq!(idle(&pool), [7]);
        pool.give_back(Some((shape(2), 8)));
        assert_eq!(take(&pool, 3), None);
        assert_eq!(idle(&pool), [8], "the other was idle for longer");
        assert_eq!(take(&pool, 3), None);
        assert!(idle(&pool).is_empty());
    }

    #[test]
    fn a_machine_that_has_ended_is_lent_to_nobody() {
        let pool = Pool::new();
        assert_eq!(take(&pool, 1), None);
        pool.give_back(Some((shape(1), 100)));
        assert_eq!(take(&pool, 1), None);
        assert!(idle(&pool).is_empty());
    }

    #[test]
    fn who_comes_when_all_are_lent_waits_for_the_end_of_a_lease() {
        let pool = Pool::new();
        assert_eq!([take(&pool, 1), take(&pool, 1)], [None; 2]);
        thread::scope(|scope| {
            let next = scope.spawn(|| take(&pool, 1));
            // The test of it has failed, or it did not boot.
            pool.give_back(None);
            assert_eq!(next.join().unwrap(), None);
            let next = scope.spawn(|| take(&pool, 1));
            pool.give_back(Some((shape(1), 7)));
            assert_eq!(next.join().unwrap(), Some(7));
        });
        assert_eq!(pool.locked().lent, 2);
    }
}
