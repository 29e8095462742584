//! The workloads run by the host, without a VM.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_bench_workloads::{Cell, Kernel, Mechanism, Shape, Stopwatch, measure};
use causeway_memory::MemoryError;
use rustix::time::{ClockId, clock_gettime};

use crate::card::{Card, CardError, CardMemory};
use crate::copy::{self, Part};
use crate::own::OwnMemory;
use crate::passthrough::PassthroughDevice;

/// Runs workloads on a card, in this process.
pub(crate) struct Native {
    card: Card,
    host: OwnMemory,
    has_failed: bool,
}

/// The time of a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NativeTime {
    /// Elapsed time of the sample.
    pub elapsed: Duration,
    /// Processor time of the process.
    pub cpu: Duration,
}

impl Native {
    /// Returns an object that runs workloads on `card`, with a buffer of `host_bytes` bytes.
    ///
    /// # Errors
    /// [`MemoryError`] if the host has too little memory for the buffer.
    pub fn new(card: Card, host_bytes: usize) -> Result<Self, MemoryError> {
        let host = OwnMemory::new(host_bytes)?;
        Ok(Self {
            card,
            host,
            has_failed: false,
        })
    }

    /// Takes one sample on the memory of a passed-through device. Returns `None` if the memory
    /// cannot be accessed now.
    pub fn measure_on(&mut self, device: &PassthroughDevice, cell: &Cell) -> Option<NativeTime> {
        device.measure(cell, self.host.bytes())
    }

    /// Takes one sample on the card. Returns `None` if the back end fails now or has failed before.
    pub fn measure(&mut self, cell: &Cell) -> Option<NativeTime> {
        if self.has_failed {
            return None;
        }
        let sample = AssertUnwindSafe(|| {
            let mut watch = Watch::default();
            let mut direct = Direct {
                card: &mut self.card,
            };
            measure(&mut direct, cell, self.host.bytes(), &mut watch);
            watch.taken
        });
        // Workloads end where they fail. A guest that asks for this one must not end with it: its
        // samples are kept.
        let taken = catch_unwind(sample).ok();
        self.has_failed = taken.is_none();
        taken
    }
}

struct Direct<'c> {
    card: &'c mut Card,
}

/// Returns the value of `result`.
///
/// # Panics
/// If it is an error: without the host's own work nothing can be measured.
fn required<T>(result: Result<T, CardError>) -> T {
    result.unwrap_or_else(|error| panic!("the host's own work on the GPU failed: {error}"))
}

/// Memory as a program holds it: by a pointer.
struct NativeMemory {
    id: u64,
    memory: Arc<CardMemory>,
}

impl Direct<'_> {
    /// Part of memory, once nothing is under way.
    fn settled<'m>(&mut self, memory: &'m NativeMemory, offset: usize, bytes: usize) -> Part<'m> {
        self.synchronize();
        let part = Part::of(&memory.memory.mapping, offset as u64, bytes as u64);
        part.expect("workloads stay within their memory")
    }
}

impl Mechanism for Direct<'_> {
    type Memory = NativeMemory;

    fn allocate(&mut self, bytes: usize) -> NativeMemory {
        let id = required(self.card.allocate(bytes as u64));
        let memory = Arc::clone(required(self.card.memory(id)));
        NativeMemory { id, memory }
    }

    fn free(&mut self, memory: NativeMemory) {
        required(self.card.free(memory.id));
    }

    fn touch(&mut self, memory: &NativeMemory, _: usize) {
        let populated = memory.memory.mapping.populate();
        populated.expect("the host has as much memory as its workloads take");
    }

    fn address(&self, memory: &NativeMemory) -> u64 {
        memory.memory.address
    }

    fn store_words(&mut self, memory: &NativeMemory, words: usize, passes: u32) {
        let part = self.settled(memory, 0, 8 * words);
        copy::store_words(part, passes).expect("workloads store whole turns");
    }

    fn load_words(&mut self, memory: &NativeMemory, words: usize, passes: u32) -> u64 {
        let part = self.settled(memory, 0, 8 * words);
        copy::load_words(part, passes).expect("workloads load whole turns")
    }

    fn copy_in(&mut self, memory: &NativeMemory, offset: usize, from: &[u8]) {
        let part = self.settled(memory, offset, from.len());
        copy::inward(part, from).expect("the part is as long");
    }

    fn copy_out(&mut self, memory: &NativeMemory, offset: usize, into: &mut [u8]) {
        let part = self.settled(memory, offset, into.len());
        copy::outward(into, part).expect("the part is as long");
    }

    fn launch(&mut self, kernel: Kernel, shape: Shape, arguments: &[u64]) {
        required(self.card.launch(kernel, shape, arguments));
    }

    fn synchronize(&mut self) {
        required(self.card.synchronize());
    }
}

/// Times what the host does.
#[derive(Default)]
pub(crate) struct Watch {
    cpu: Duration,
    begin: Option<Instant>,
    /// The time of the sample.
    pub taken: NativeTime,
}

impl Stopwatch for Watch {
    fn mark(&mut self, _: &Cell) {
        self.cpu = processor_time();
    }

    fn start(&mut self) {
        self.begin = Some(Instant::now());
    }

    fn stop(&mut self, _: &Cell, _: u64) {
        if let Some(begin) = self.begin {
            self.taken.elapsed = begin.elapsed();
            self.taken.cpu = processor_time().saturating_sub(self.cpu);
        }
    }
}

/// Processor time that this process has used.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime)
        .try_into()
        .unwrap_or_default()
}
