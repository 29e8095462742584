//! What this process must undo before it ends: files to remove, the terminal's mode. Each is undone
//! by its owner. If the process has to end without its owners, because a driver holds them up,
//! [`undo_leftovers`] undoes everything.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Longest wait for the lock of the list.
const LOCKED: Duration = Duration::from_millis(100);

type Undo = Box<dyn FnOnce() + Send>;

static NEXT: AtomicU64 = AtomicU64::new(0);
static LEFT: Mutex<Vec<(u64, Undo)>> = Mutex::new(Vec::new());

/// Something that this process would leave behind. The owner undoes it when it drops this value.
#[derive(Debug)]
pub struct Leftover(u64);

impl Leftover {
    /// Registers something that `undo` undoes. `undo` is called at most once, from any thread, also
    /// while the owner undoes the same.
    pub fn new(undo: impl FnOnce() + Send + 'static) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        LEFT.lock().push((number, Box::new(undo)));
        Self(number)
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        LEFT.lock().retain(|(number, _)| *number != self.0);
    }
}

/// Undoes everything that this process would leave behind, the newest first. Call this function
/// only before the process ends.
pub fn undo_leftovers() {
    let Some(left) = LEFT
        .try_lock_for(LOCKED)
        .map(|mut left| std::mem::take(&mut *left))
    else {
        return;
    };
    for (_, undo) in left.into_iter().rev() {
        undo();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_is_left_is_undone_in_reverse_and_what_its_owner_undid_is_not() {
        let done = Arc::<Mutex<Vec<u32>>>::default();
        let leftover = |number| {
            let done = Arc::clone(&done);
            Leftover::new(move || done.lock().push(number))
        };
        let all = [1, 2, 3].map(leftover);
        let [first, second, third] = all;
        drop(second);
        undo_leftovers();
        assert_eq!(*done.lock(), [3, 1]);
        drop((first, third));
    }
}
