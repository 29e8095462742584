//! Queues that execute work in order: it is done when `submit` returns.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use causeway_mediator::backend::{
    Array, ArrayCopy, Crossed, Fault, Launch, MemoryWork, Progress, Queue, Recorded, Recording,
    Usage, Work,
};
use causeway_protocol::message::Status;

use crate::array;
use crate::clock;
use crate::crossing::Crossing;
use crate::mappings::Mappings;
use crate::transfer;

/// Executes the launches of a [`WorkQueue`], and knows its arrays.
pub trait Kernels: Send {
    /// Executes one launch of a kernel, and returns when the kernel has ended. Adds what it has
    /// taken to `usage`, also if it ended with a fault. The kernel uses `units` processor cores at
    /// most.
    ///
    /// # Errors
    /// The fault that ended the kernel. A launch that is not begun has the status
    /// [`Status::BadLaunch`] or [`Status::BadParameters`].
    fn launch(&self, launch: &Launch<'_>, units: u64, usage: &mut Usage) -> Result<(), Fault>;

    /// Returns the GPU virtual address of the first element of `array` in the address space of the
    /// queue, which copies may read and write: rows and slices follow each other without gaps.
    /// `None` if the array is not one of this address space. The default implementation suits back
    /// ends without arrays.
    fn array_address(&self, array: &Arc<dyn Array>) -> Option<u64> {
        let _ = array;
        None
    }
}

/// Bytes, and rows, from which on the processor time of a copy or a fill is measured.
const LONG_BYTES: u64 = 256 << 10;
const LONG_ROWS: u64 = 256;
/// Bytes per nanosecond that a processor copies at least.
const SLOWEST_BYTES_PER_NS: u64 = 1;

/// A copy of recorded work. Each replay executes the pieces of this work one after the other.
pub struct WorkRecording {
    work: Box<[Recorded]>,
}

impl WorkRecording {
    /// Makes a recording from a copy of `work`.
    pub fn new(work: &[Recorded]) -> Self {
        Self { work: work.into() }
    }
}

causeway_memory::debug_fields!(WorkRecording {});

/// Returns whether the processor time of `work` is worth the two system calls that tell it: the
/// work moves much, or has many rows.
fn takes_long(work: MemoryWork) -> bool {
    let rows = match work {
        MemoryWork::CopyRect(shape) => u64::from(shape.height) * u64::from(shape.depth),
        MemoryWork::FillRect(shape) => shape.height.into(),
        _ => 1,
    };
    rows >= LONG_ROWS || work.moved_bytes() >= LONG_BYTES
}

impl Recording for WorkRecording {
    /// What the launch takes that takes most while it is executed: they come one after the other.
    fn memory_bytes(&self) -> u64 {
        let launches = self.work.iter().map(|piece| match piece.as_work() {
            Work::Launch(launch) => launch.host_bytes(),
            Work::Memory(_) | Work::Array(_) | Work::Replay { .. } => 0,
        });
        launches.max().unwrap_or(0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A queue that executes each piece of work at once, on the thread that submits it. The queue does
/// copies, fills and stores itself, and hands launches to `K`.
#[derive(Debug)]
pub struct WorkQueue<K> {
    mappings: Arc<Mappings>,
    stop: Arc<AtomicBool>,
    kernels: K,
    /// What work has taken since the queue was last asked.
    usage: Usage,
    crossing: Crossing,
    /// Processor cores that a launch may use.
    units: u64,
    /// The fault that ended the queue.
    fault: Option<Fault>,
}

impl<K: Kernels> WorkQueue<K> {
    /// Creates a queue whose work accesses memory through `mappings` and ends early once `stop` is
    /// set.
    pub fn new(mappings: Arc<Mappings>, stop: Arc<AtomicBool>, kernels: K) -> Self {
        Self {
            mappings,
            stop,
            kernels,
            usage: Usage::default(),
            crossing: Crossing::default(),
            units: u64::MAX,
            fault: None,
        }
    }

    fn execute(&mut self, work: &Work<'_>) -> Result<(), Fault> {
        match work {
            Work::Launch(launch) => self.kernels.launch(launch, self.units, &mut self.usage),
            Work::Memory(work) if work.moved_bytes() == 0 => self.write(*work),
            Work::Memory(work) => self.write_much(*work),
            Work::Array(copy) => self.copy_array(copy),
            Work::Replay { recording } => self.replay(recording),
        }
    }

    fn copy_array(&mut self, copy: &ArrayCopy<'_>) -> Result<(), Fault> {
        let address = self.kernels.array_address(copy.array()).ok_or_else(|| {
            Fault::new(
                Status::BadHandle,
                "the array belongs to another address space",
            )
        })?;
        self.write_much(MemoryWork::CopyRect(array::rows(copy, address)))
    }

    /// Writes, and counts the time.
    fn write_much(&mut self, work: MemoryWork) -> Result<(), Fault> {
        let begun = Instant::now();
        let busy_begun_ns = takes_long(work).then(clock::thread_ns);
        let written = self.write(work);
        let elapsed_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Time in which others had the processor is bounded by a speed that every processor
        // reaches.
        let most_ns = work.moved_bytes() / SLOWEST_BYTES_PER_NS + 1000;
        self.usage += Usage {
            busy_ns: match busy_begun_ns {
                Some(begun_ns) => clock::thread_ns().saturating_sub(begun_ns),
                None => elapsed_ns.min(most_ns),
            },
            elapsed_ns,
            wanted_ns: elapsed_ns,
        };
        written
    }

    fn write(&mut self, work: MemoryWork) -> Result<(), Fault> {
        let (mappings, stop, crossing) = (&self.mappings, &self.stop, &mut self.crossing);
        match work {
            MemoryWork::Copy {
                destination,
                source,
                bytes,
            } => {
                let places = (destination, source);
                transfer::copy(&mappings.table(), places, bytes, stop, crossing)
            }
            MemoryWork::Fill {
                destination,
                bytes,
                pattern,
                width,
            } => {
                let pattern = (pattern, width);
                transfer::fill(&mappings.table(), destination, bytes, pattern, stop)
            }
            MemoryWork::CopyRect(shape) => {
                transfer::copy_rect(&mappings.table(), shape, stop, crossing)
            }
            MemoryWork::FillRect(shape) => transfer::fill_rect(&mappings.table(), shape, stop),
            MemoryWork::Release { address, value } => self.store(address, value, "fence release"),
            MemoryWork::ReleaseHalf { address, value } => self
                .mappings
                .with_table(|table| transfer::store_release_u32(table, address, value)),
            MemoryWork::Timestamp { address } => self.store(address, clock::now_ns(), "timestamp"),
        }
    }

    fn replay(&mut self, recording: &Arc<dyn Recording>) -> Result<(), Fault> {
        let Some(recording) = recording.as_any().downcast_ref::<WorkRecording>() else {
            return Err(Fault::new(
                Status::BadHandle,
                "the recording belongs to another back end",
            ));
        };
        self.crossing.is_replay = true;
        let mut pieces = recording.work.iter();
        let done = pieces.try_for_each(|piece| self.execute(&piece.as_work()));
        self.crossing.is_replay = false;
        done
    }

    /// Stores a word that the guest may wait for. No snapshot of the mappings outlives the store,
    /// so that memory which the guest frees next is free at once.
    fn store(&self, address: u64, value: u64, what: &'static str) -> Result<(), Fault> {
        self.mappings
            .with_table(|table| transfer::store_release(table, address, value, what))
    }
}

impl<K: Kernels> Queue for WorkQueue<K> {
    fn submit(&mut self, work: Work<'_>) -> Result<(), Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.execute(&work)
            .inspect_err(|fault| self.fault = Some(fault.clone()))
    }

    /// All submitted work is done already.
    fn flush(&mut self) -> Result<(), Fault> {
        self.finish()
    }

    /// All submitted work is done already.
    fn poll(&mut self) -> Result<Progress, Fault> {
        self.finish().map(|()| Progress::Idle)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    fn runs_behind(&self) -> bool {
        false
    }

    fn limit_units(&mut self, units: u64) {
        self.units = units;
    }

    fn take_usage(&mut self) -> Usage {
        std::mem::take(&mut self.usage)
    }

    fn take_crossed(&mut self) -> Crossed {
        self.crossing.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_mediator::backend::{CopyShape, FillShape};

    /// A rectangle of a million rows of one byte moves little and takes long.
    #[test]
    fn processor_time_is_measured_where_the_bytes_do_not_tell_it() {
        let copy = |bytes| MemoryWork::Copy {
            destination: 0,
            source: 0,
            bytes,
        };
        assert!(!takes_long(copy(LONG_BYTES - 1)) && takes_long(copy(LONG_BYTES)));
        let rows = |height, depth| {
            takes_long(MemoryWork::CopyRect(CopyShape {
                width: 1,
                height,
                depth,
                ..CopyShape::default()
            }))
        };
        assert!(rows(256, 1) && rows(16, 16) && !rows(255, 1));
        let filled = |height| {
            takes_long(MemoryWork::FillRect(FillShape {
                width: 1,
                height,
                ..FillShape::default()
            }))
        };
        assert!(filled(256) && !filled(255));
    }
}
