//! Keeps the kernels, recordings and arrays that the work of a queue uses until that work is done.
//! The session is charged for them until then.

use std::sync::Arc;

use causeway_mediator::backend::{Array, Kernel, Recording, Work};

/// Holds kernels, recordings and arrays, each with the number of the last submission that used it.
#[derive(Default)]
pub(crate) struct KeepAlive {
    items: Vec<(Item, u64)>,
}

/// A kernel, recording or array that is kept, but never read.
enum Item {
    Kernel(Arc<dyn Kernel>),
    Recording(Arc<dyn Recording>),
    Array(Arc<dyn Array>),
}

impl Item {
    fn of(work: &Work<'_>) -> Option<Self> {
        match work {
            Work::Launch(launch) => Some(Self::Kernel(Arc::clone(launch.kernel()))),
            Work::Replay { recording } => Some(Self::Recording(Arc::clone(recording))),
            Work::Array(copy) => Some(Self::Array(Arc::clone(copy.array()))),
            Work::Memory(_) => None,
        }
    }

    fn is_of(&self, work: &Work<'_>) -> bool {
        match (self, work) {
            (Self::Kernel(held), Work::Launch(launch)) => Arc::ptr_eq(held, launch.kernel()),
            (Self::Recording(held), Work::Replay { recording }) => Arc::ptr_eq(held, recording),
            (Self::Array(held), Work::Array(copy)) => Arc::ptr_eq(held, copy.array()),
            _ => false,
        }
    }
}

/// With more items than this, it is worth finding out which submissions are done.
const MANY: usize = 64;

impl KeepAlive {
    /// Holds what `work` uses, as part of submission `number`. Costs little if one of the last few
    /// submissions used the same.
    pub(crate) fn hold(&mut self, work: &Work<'_>, number: u64) {
        // Most queues launch few kernels, and those again and again.
        let known = self.items.iter_mut().rev().take(MANY);
        for (item, last) in known {
            if item.is_of(work) {
                *last = number;
                return;
            }
        }
        self.items.extend(Item::of(work).map(|item| (item, number)));
    }

    /// Returns whether so many items are held that it is worth finding out which are done.
    pub(crate) fn is_long(&self) -> bool {
        self.items.len() > MANY
    }

    /// Drops what only submissions up to `number` used.
    pub(crate) fn release(&mut self, number: u64) {
        self.items.retain(|(_, last)| *last > number);
    }

    /// Leaks everything, so that it exists until the process ends.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.items));
    }
}
