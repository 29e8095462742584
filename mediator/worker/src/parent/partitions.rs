//! Partitions of a GPU: each session of a VMM holds one at a time, and another may hold it later.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// The numbers of the partitions that sessions hold. Session numbers only grow, and a GPU has few
/// partitions, so these are numbers of their own.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    held: Mutex<BTreeSet<u32>>,
}

impl Partitions {
    /// Returns the partition with the lowest number, from 0, that is not held.
    pub fn hold(self: &Arc<Self>) -> Partition {
        let mut held = self.held.lock();
        let number = (0..).zip(&*held).take_while(|(n, held)| n == *held).count() as u32;
        held.insert(number);
        Partition {
            all: Arc::clone(self),
            number,
        }
    }
}

/// A partition that is held until dropped.
#[derive(Debug)]
pub(super) struct Partition {
    all: Arc<Partitions>,
    number: u32,
}

impl Partition {
    /// Returns the partition's number, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.all.held.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_held_until_dropped() {
        let partitions = Arc::<Partitions>::default();
        let mut held: Vec<_> = (0..4).map(|_| partitions.hold()).collect();
        let numbers = |held: &[Partition]| held.iter().map(Partition::number).collect::<Vec<_>>();
        assert_eq!(numbers(&held), [0, 1, 2, 3]);
        held.remove(2);
        held.remove(0);
        held.extend([partitions.hold(), partitions.hold(), partitions.hold()]);
        assert_eq!(numbers(&held), [1, 3, 0, 2, 4]);
    }
}
