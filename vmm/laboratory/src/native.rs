//! No VM: the workloads by the host.

use std::time::{Duration, Instant};

use causeway_laboratory_workloads::{Cell, Kernel, Mechanism, Shape, Stopwatch, measure};

use crate::card::{Card, CardError};
use crate::copy::{self, Part};

/// Runs workloads on a card, in this process.
pub struct Native {
    card: Card,
    host: Vec<u8>,
}

/// What a sample took.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeTime {
    /// By the clock.
    pub elapsed: Duration,
    /// Processor time of the process.
    pub cpu: Duration,
}

impl Native {
    /// Workloads on this card, with so much memory of the program's own.
    pub fn new(card: Card, host_bytes: usize) -> Self {
        Self {
            card,
            host: vec![0; host_bytes],
        }
    }

    /// Takes one sample.
    pub fn measure(&mut self, cell: &Cell) -> NativeTime {
        let mut watch = Watch::default();
        let mut direct = Direct {
            card: &mut self.card,
        };
        measure(&mut direct, cell, &mut self.host, &mut watch);
        watch.taken
    }
}

struct Direct<'c> {
    card: &'c mut Card,
}

/// The host's own work cannot fail, or nothing can be measured.
fn required<T>(result: Result<T, CardError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the native side failed: {error}"),
    }
}

impl Mechanism for Direct<'_> {
    type Memory = u64;

    fn allocate(&mut self, bytes: usize) -> u64 {
        required(self.card.allocate(bytes as u64))
    }

    fn free(&mut self, memory: u64) {
        required(self.card.free(memory));
    }

    fn address(&self, memory: &u64) -> u64 {
        required(self.card.memory(*memory)).address()
    }

    fn store_words(&mut self, memory: &u64, words: usize, passes: u32) {
        let memory = required(self.card.settled(*memory)).mapping();
        copy::store_words(memory, words, passes).expect("workloads stay within their memory");
    }

    fn load_words(&mut self, memory: &u64, words: usize, passes: u32) -> u64 {
        let memory = required(self.card.settled(*memory)).mapping();
        copy::load_words(memory, words, passes).expect("workloads stay within their memory")
    }

    fn copy_in(&mut self, memory: &u64, offset: usize, from: &[u8]) {
        let memory = required(self.card.settled(*memory)).mapping();
        let part = Part::of(memory, offset as u64, from.len() as u64);
        let copied = part.and_then(|part| copy::inward(part, from));
        copied.expect("workloads stay within their memory");
    }

    fn copy_out(&mut self, memory: &u64, offset: usize, into: &mut [u8]) {
        let memory = required(self.card.settled(*memory)).mapping();
        let part = Part::of(memory, offset as u64, into.len() as u64);
        let copied = part.and_then(|part| copy::outward(into, part));
        copied.expect("workloads stay within their memory");
    }

    fn launch(&mut self, kernel: Kernel, shape: Shape, arguments: &[u64]) {
        required(self.card.launch(kernel, shape, arguments));
    }

    fn synchronize(&mut self) {
        required(self.card.synchronize());
    }
}

#[derive(Default)]
struct Watch {
    begin: Option<(Instant, Duration)>,
    taken: NativeTime,
}

impl Stopwatch for Watch {
    fn start(&mut self, _: &Cell) {
        self.begin = Some((Instant::now(), processor_time()));
    }

    fn stop(&mut self, _: &Cell) {
        if let Some((begin, cpu)) = self.begin {
            self.taken.elapsed = begin.elapsed();
            self.taken.cpu = processor_time().saturating_sub(cpu);
        }
    }
}

/// Processor time that this process has used.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(used.tv_sec).unwrap_or(0),
        u32::try_from(used.tv_nsec).unwrap_or(0),
    )
}
