//! Queues that run behind, as those of a GPU do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::backend::lock;
use super::space::FakeSpace;
use super::work::{execute, recorded};
use crate::backend::{Fault, Progress, Recorded, Recording, Work};

/// Whether queues run behind, and what they have not done yet.
#[derive(Default)]
pub(super) struct Behind {
    wanted: AtomicBool,
    backlogs: Mutex<Vec<Weak<Backlog>>>,
}

impl Behind {
    pub fn set(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Release);
    }

    /// The backlog of a new queue.
    pub fn backlog(&self, space: FakeSpace) -> Arc<Backlog> {
        let backlog = Arc::new(Backlog {
            space,
            state: Mutex::default(),
        });
        let mut backlogs = lock(&self.backlogs);
        backlogs.retain(|backlog| backlog.strong_count() != 0);
        backlogs.push(Arc::downgrade(&backlog));
        backlog
    }

    /// Does all that was left, on the calling thread.
    pub fn catch_up(&self) {
        let backlogs: Vec<_> = lock(&self.backlogs)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for backlog in backlogs {
            backlog.catch_up();
        }
    }
}

/// What a queue was given and has not done.
pub(super) struct Backlog {
    space: FakeSpace,
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
    /// Does the work, or leaves it if queues run behind or there is more to be done before.
    pub fn submit(&self, work: &Work<'_>) -> Result<(), Fault> {
        let mut state = lock(&self.state);
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        if !self.space.behind.wanted.load(Ordering::Acquire) && state.pieces.is_empty() {
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

    pub fn progress(&self) -> Result<Progress, Fault> {
        let state = lock(&self.state);
        match &state.fault {
            Some(fault) => Err(fault.clone()),
            None if state.pieces.is_empty() => Ok(Progress::Idle),
            None => Ok(Progress::Busy),
        }
    }

    /// Waits until somebody has caught up, or the space is to stop.
    pub fn finish(&self) -> Result<(), Fault> {
        while self.progress()? == Progress::Busy {
            if self.space.stop.load(Ordering::Acquire) {
                lock(&self.state).pieces.clear();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    fn catch_up(&self) {
        let mut state = lock(&self.state);
        while let Some(piece) = state.pieces.pop_front() {
            if let Err(fault) = execute(&self.space, &piece.work.as_work()) {
                state.pieces.clear();
                state.fault = Some(fault);
            }
        }
    }
}
