//! Execution of work, in order and at once: what is submitted is done when `submit` returns.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_mediator::backend::{
    Fault, Launch, MemoryWork, Progress, Queue, Recorded, Recording, Work,
};
use causeway_protocol::message::Status;

use crate::clock;
use crate::mappings::Mappings;
use crate::transfer;

/// Who executes kernels.
pub trait Kernels: Send {
    /// Executes a kernel.
    ///
    /// # Errors
    /// The fault it ended with, or why it was not begun.
    fn launch(&self, launch: &Launch<'_>) -> Result<(), Fault>;
}

/// Work to be done again and again: executed piece by piece each time.
pub struct WorkRecording {
    work: Box<[Recorded]>,
}

impl WorkRecording {
    /// A copy of `work`.
    pub fn new(work: &[Recorded]) -> Self {
        Self { work: work.into() }
    }
}

impl Recording for WorkRecording {
    fn memory_bytes(&self) -> u64 {
        0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A queue of an address space.
pub struct WorkQueue<K> {
    mappings: Arc<Mappings>,
    stop: Arc<AtomicBool>,
    kernels: K,
    dead: Option<Fault>,
}

impl<K: Kernels> WorkQueue<K> {
    /// A queue whose work sees `mappings`, and returns soon when `stop` is set.
    pub fn new(mappings: Arc<Mappings>, stop: Arc<AtomicBool>, kernels: K) -> Self {
        Self {
            mappings,
            stop,
            kernels,
            dead: None,
        }
    }

    fn execute(&self, work: &Work<'_>) -> Result<(), Fault> {
        match work {
            Work::Launch(launch) => self.kernels.launch(launch),
            Work::Memory(work) => self.write(*work),
            Work::Replay { recording } => self.replay(recording),
        }
    }

    fn write(&self, work: MemoryWork) -> Result<(), Fault> {
        let (mappings, stop) = (&self.mappings, &self.stop);
        match work {
            MemoryWork::Copy {
                destination,
                source,
                bytes,
            } => transfer::copy(&mappings.table(), destination, source, bytes, stop),
            MemoryWork::Fill {
                destination,
                bytes,
                pattern,
                width,
            } => {
                let pattern = (pattern, width);
                transfer::fill(&mappings.table(), destination, bytes, pattern, stop)
            }
            MemoryWork::Release { address, value } => self.store(address, value, "fence release"),
            MemoryWork::Timestamp { address } => self.store(address, clock::now_ns(), "timestamp"),
        }
    }

    fn replay(&self, recording: &Arc<dyn Recording>) -> Result<(), Fault> {
        let Some(recording) = recording.as_any().downcast_ref::<WorkRecording>() else {
            return Err(Fault {
                status: Status::BadHandle,
                text: String::from("the recording belongs to another back end"),
            });
        };
        let mut pieces = recording.work.iter();
        pieces.try_for_each(|piece| self.execute(&piece.as_work()))
    }

    /// Stores a word that the guest may be waiting for. What it frees then must be free: no snapshot outlives the store.
    fn store(&self, address: u64, value: u64, what: &'static str) -> Result<(), Fault> {
        self.mappings
            .with_table(|table| transfer::store_release(table, address, value, what))
    }
}

impl<K: Kernels> Queue for WorkQueue<K> {
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault> {
        if let Some(fault) = &self.dead {
            return Err(fault.clone());
        }
        self.execute(&work)
            .inspect_err(|fault| self.dead = Some(fault.clone()))
    }

    /// What was submitted has begun, and is done.
    fn flush(&mut self) -> Result<(), Fault> {
        self.finish()
    }

    /// What was submitted is done.
    fn poll(&mut self) -> Result<Progress, Fault> {
        self.finish().map(|()| Progress::Idle)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.dead.clone().map_or(Ok(()), Err)
    }
}
