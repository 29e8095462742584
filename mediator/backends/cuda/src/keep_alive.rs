//! Kernels and recordings that the work of a queue uses, kept until that work is done: the
//! mediator's accounts end with them.

use std::sync::Arc;

use causeway_mediator::backend::{Kernel, Recording, Work};

/// Kernels and recordings with the last submission that used each.
#[derive(Default)]
pub(crate) struct KeepAlive {
    items: Vec<(Item, u64)>,
}

/// A kernel or recording that is kept, but never read.
enum Item {
    Function(Arc<dyn Kernel>),
    Recording(Arc<dyn Recording>),
}

impl Item {
    fn of(work: &Work<'_>) -> Option<Self> {
        match work {
            Work::Launch(launch) => Some(Self::Function(Arc::clone(launch.kernel()))),
            Work::Replay { recording } => Some(Self::Recording(Arc::clone(recording))),
            Work::Memory(_) => None,
        }
    }

    fn is_of(&self, work: &Work<'_>) -> bool {
        match (self, work) {
            (Self::Function(held), Work::Launch(launch)) => Arc::ptr_eq(held, launch.kernel()),
            (Self::Recording(held), Work::Replay { recording }) => Arc::ptr_eq(held, recording),
            _ => false,
        }
    }
}

/// More than this many, and it is worth finding out which are done.
const MANY: usize = 64;

impl KeepAlive {
    /// Holds what submission `number` needs. Costs little if one of the last few needed the same.
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

    /// Returns whether there are many.
    pub(crate) fn is_long(&self) -> bool {
        self.items.len() > MANY
    }

    /// Lets go of what only submissions up to `number` needed.
    pub(crate) fn release(&mut self, number: u64) {
        self.items.retain(|(_, last)| *last > number);
    }

    /// Holds everything until the process ends.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.items));
    }
}
