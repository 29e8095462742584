//! Queues that execute their work later, as those of a GPU do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use causeway_mediator::backend::{Fault, Progress, Recorded, Recording, Work};
use parking_lot::Mutex;

use crate::memory::SpaceMemory;
use crate::work::{execute, recorded};

/// Whether queues run behind, and the work that they have not executed yet.
#[derive(Default)]
pub(crate) struct Behind {
    wanted: AtomicBool,
    /// Whether queues say that the device has begun the last of their work.
    near_end: AtomicBool,
    /// Whether queues say at their end that their work may go on.
    is_endless: AtomicBool,
    /// Whether queues say that the device has enough work for those in a hurry.
    is_full: AtomicBool,
    /// Whether queues say that the device has enough work for all.
    is_overfull: AtomicBool,
    /// How often consumers asked queues for that.
    looks: AtomicU64,
    backlogs: Mutex<Vec<Weak<Backlog>>>,
}

impl Behind {
    pub fn set(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Release);
    }

    pub fn set_near_end(&self, near_end: bool) {
        self.near_end.store(near_end, Ordering::Release);
    }

    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Release);
    }

    pub fn set_overfull(&self, is_overfull: bool) {
        self.is_overfull.store(is_overfull, Ordering::Release);
    }

    pub fn set_endless(&self, is_endless: bool) {
        self.is_endless.store(is_endless, Ordering::Release);
    }

    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }

    /// Creates the backlog of a new queue.
    pub fn backlog(self: &Arc<Self>, space: &Arc<SpaceMemory>) -> Arc<Backlog> {
        let backlog = Arc::new(Backlog {
            behind: Arc::clone(self),
            space: Arc::clone(space),
            state: Mutex::default(),
        });
        let mut backlogs = self.backlogs.lock();
        backlogs.retain(|backlog| backlog.strong_count() != 0);
        backlogs.push(Arc::downgrade(&backlog));
        backlog
    }

    /// Executes all work of all queues, on the calling thread.
    pub fn catch_up(&self) {
        let backlogs: Vec<_> = self
            .backlogs
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for backlog in backlogs {
            backlog.catch_up();
        }
    }
}

/// The work that a queue was given and has not executed.
pub(crate) struct Backlog {
    behind: Arc<Behind>,
    space: Arc<SpaceMemory>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Piece>,
    fault: Option<Fault>,
}

/// A piece of work, with the recording that it is from.
struct Piece {
    work: Recorded,
    _recording: Option<Arc<dyn Recording>>,
}

impl Backlog {
    /// Executes the work, or keeps it if queues run behind or earlier work waits.
    pub fn submit(&self, work: &Work<'_>) -> Result<(), Fault> {
        let mut state = self.state.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        if !self.behind.wanted.load(Ordering::Acquire) && state.pieces.is_empty() {
            drop(state);
            return execute(&self.space, work);
        }
        let recording = match work {
            Work::Replay { recording } => Some(Arc::clone(recording)),
            _ => None,
        };
        for work in recorded(work)? {
            let _recording = recording.clone();
            state.pieces.push_back(Piece { work, _recording });
        }
        Ok(())
    }

    /// Returns whether submitted work may be kept for later.
    pub fn runs_behind(&self) -> bool {
        self.behind.wanted.load(Ordering::Acquire) || !self.state.lock().pieces.is_empty()
    }

    pub fn has_room(&self, is_hurried: bool) -> bool {
        self.behind.looks.fetch_add(1, Ordering::AcqRel);
        let is_full = is_hurried && self.behind.is_full.load(Ordering::Acquire);
        !is_full && !self.behind.is_overfull.load(Ordering::Acquire)
    }

    pub fn is_near_end(&self) -> bool {
        self.behind.near_end.load(Ordering::Acquire)
    }

    pub fn is_endless(&self) -> bool {
        self.behind.is_endless.load(Ordering::Acquire)
    }

    pub fn progress(&self) -> Result<Progress, Fault> {
        let state = self.state.lock();
        match &state.fault {
            Some(fault) => Err(fault.clone()),
            None if state.pieces.is_empty() => Ok(Progress::Idle),
            None => Ok(Progress::Busy),
        }
    }

    /// Waits until the test has caught up, or the space is to stop.
    pub fn finish(&self) -> Result<(), Fault> {
        while self.progress()? == Progress::Busy {
            if self.space.stop.load(Ordering::Acquire) {
                self.state.lock().pieces.clear();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    fn catch_up(&self) {
        let mut state = self.state.lock();
        while let Some(piece) = state.pieces.pop_front() {
            if let Err(fault) = execute(&self.space, &piece.work.as_work()) {
                state.pieces.clear();
                state.fault = Some(fault);
            }
        }
    }
}
