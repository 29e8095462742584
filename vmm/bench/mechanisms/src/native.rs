//! The workloads run by the host, without a VM.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_bench_workloads::{Cell, Kernel, Mechanism, Shape, Stopwatch, measure, time_singles};
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

/// Time and processor time of a sample that the host took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NativeTime {
    /// Time that the operations of the sample took.
    pub elapsed: Duration,
    /// Processor time that this process used during the operations of the sample.
    pub cpu: Duration,
}

impl Native {
    /// Returns an object that runs workloads on `card` in this process. It allocates a buffer of
    /// `host_bytes` bytes, with which workloads copy to and from the GPU.
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

    /// Takes one sample of `cell` on the memory of a passed-through device. Returns `None` if no VM
    /// has opened the device, or if its guest has turned off access to the device's memory.
    pub fn measure_on(&mut self, device: &PassthroughDevice, cell: &Cell) -> Option<NativeTime> {
        device.measure(cell, self.host.bytes())
    }

    /// Takes one sample of `cell` on the card. Returns `None` if the back end reports an error in
    /// this sample or did so in an earlier one.
    pub fn measure(&mut self, cell: &Cell) -> Option<NativeTime> {
        self.guarded(|direct, host| {
            let mut watch = Watch::default();
            measure(direct, cell, host, &mut watch);
            watch.taken
        })
    }

    /// Times single operations of `cell` on the card into `times`, in nanoseconds, and returns how
    /// many; fewer if they would take longer than `budget_ns`. Returns `None` as [`Self::measure`].
    pub fn time_singles(
        &mut self,
        cell: &Cell,
        times: &mut [u64],
        budget_ns: u64,
    ) -> Option<usize> {
        self.guarded(|direct, host| time_singles(direct, cell, host, (times, budget_ns), clock()))
    }

    /// As [`Self::time_singles`], on the memory of a passed-through device. Returns `None` as
    /// [`Self::measure_on`].
    pub fn time_singles_on(
        &mut self,
        device: &PassthroughDevice,
        cell: &Cell,
        times: &mut [u64],
        budget_ns: u64,
    ) -> Option<usize> {
        device.time_singles(cell, self.host.bytes(), times, budget_ns)
    }

    /// Calls `work` with the card and the buffer. Returns `None` if it fails or an earlier call
    /// has.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Direct<'_>, &mut [u8]) -> T) -> Option<T> {
        if self.has_failed {
            return None;
        }
        let sample = AssertUnwindSafe(|| {
            let mut direct = Direct {
                card: &mut self.card,
            };
            work(&mut direct, self.host.bytes())
        });
        // Workloads end where they fail. A guest that asks for this one must not end with it: its
        // samples are kept.
        let done = catch_unwind(sample).ok();
        self.has_failed = done.is_none();
        done
    }
}

/// Returns a clock that counts nanoseconds.
pub(crate) fn clock() -> impl FnMut() -> u64 {
    let start = Instant::now();
    move || start.elapsed().as_nanos() as u64
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

/// The stopwatch for samples that the host takes.
#[derive(Default)]
pub(crate) struct Watch {
    cpu: Duration,
    begin: Option<Instant>,
    /// The time of the sample; zero until the stopwatch was stopped.
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
