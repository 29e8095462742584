//! Reads single words of memory that the CPU does not reach: the GPU copies them to memory of the
//! host.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_mediator::backend::BackendError;
use causeway_memory::PAGE_BYTES;
use parking_lot::{Mutex, MutexGuard};

use super::deferred::Progress;
use super::state::SpaceState;
use crate::driver::{CudaError, Stream};
use crate::error::failed;
use crate::host_memory::HostMemory;
use crate::host_registration::HostView;

/// How long a wait spins before it sleeps, and the longest sleep.
const SPIN: Duration = Duration::from_micros(100);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Has the GPU copy single words to where the CPU reaches them, in a stream of its own.
///
/// The copy may not end: kernels that never end can occupy what it needs. So nobody waits for it
/// who is asked to stop.
pub(super) struct Reader {
    stream: Stream,
    word: HostView,
    /// Copies are submissions like those of a queue: what a guest unmaps meanwhile stays mapped
    /// until the driver has them.
    progress: Arc<Progress>,
    /// Locked by the thread that copies a word.
    turn: Mutex<()>,
    _memory: HostMemory,
}

impl Reader {
    pub(super) fn new(state: &SpaceState) -> Result<Self, BackendError> {
        let memory = HostMemory::allocate(&state.gpu, PAGE_BYTES)?;
        let stream = state.maker.stream();
        Ok(Self {
            stream: stream.map_err(|e| failed("make a stream for single words", e))?,
            word: memory.main(&state.gpu)?,
            progress: state.deferred.register(),
            turn: Mutex::default(),
            _memory: memory,
        })
    }

    /// Returns the 64-bit word at the GPU address `va`; `None` if `is_mapped` says that there is
    /// none, or if `gives_up` returns true before the word is there.
    pub(super) fn read(
        &self,
        va: u64,
        is_mapped: impl FnOnce() -> bool,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Option<u64>, CudaError> {
        let Some(_turn) = self.take_turn(gives_up) else {
            return Ok(None);
        };
        // A copy that was given up still stores to the same place.
        if !self.wait(gives_up)? {
            return Ok(None);
        }
        self.progress.begin();
        // Only now: see `super::deferred`.
        let is_mapped = is_mapped();
        let copied = match is_mapped {
            true => self.stream.copy(self.word.address(), va, 8),
            false => Ok(()),
        };
        self.progress.end();
        copied?;
        let is_done = self.wait(gives_up)?;
        Ok((is_mapped && is_done).then(|| self.load()).flatten())
    }

    fn take_turn(&self, gives_up: &dyn Fn() -> bool) -> Option<MutexGuard<'_, ()>> {
        loop {
            match self.turn.try_lock_for(SLEEP_MAX) {
                None if gives_up() => return None,
                None => {}
                turn => return turn,
            }
        }
    }

    /// Waits until no copy is under way. Returns false as soon as `gives_up` returns true.
    fn wait(&self, gives_up: &dyn Fn() -> bool) -> Result<bool, CudaError> {
        let begun = Instant::now();
        while !self.look()? {
            if gives_up() {
                return Ok(false);
            }
            match begun.elapsed() {
                elapsed if elapsed < SPIN => std::hint::spin_loop(),
                elapsed => std::thread::sleep(elapsed.min(SLEEP_MAX)),
            }
        }
        Ok(true)
    }

    /// Returns whether no copy is under way.
    fn look(&self) -> Result<bool, CudaError> {
        if !self.progress.is_done() && self.stream.is_idle()? {
            self.progress.complete(self.progress.submitted());
        }
        Ok(self.progress.is_done())
    }

    /// Notes the end of a copy that was given up, so that what it used can go.
    pub(super) fn collect(&self) {
        if !self.progress.is_done()
            && let Some(_turn) = self.turn.try_lock()
        {
            // An error is the queue's, which finds it as well.
            let _ = self.look();
        }
    }

    /// Waits for the end of a copy that was given up, but no longer than `patience`. Returns
    /// whether it has ended.
    pub(super) fn finish(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        // An error ends all work, too.
        self.wait(&|| begun.elapsed() > patience).unwrap_or(true)
    }

    fn load(&self) -> Option<u64> {
        let mapping = self.word.registration.mapping();
        mapping.load_u64(self.word.offset, Ordering::Acquire).ok()
    }
}
