//! Threads, time, and memory of the process.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

/// How long the time stamp counter is watched to know its rate.
const CALIBRATION: Duration = Duration::from_millis(40);
/// Turns that a thread spins before it lets others run: they may be on the same CPU.
const SPINS: u32 = 10_000;

/// The machine, as one thread of the program sees it.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Index of the thread.
    pub(super) cpu: u32,
    pub(super) cpus: u32,
    pub(super) vm: u32,
    pub(super) vms: u32,
    pub(super) clock: Clock,
}

impl Machine {
    /// Index of this thread.
    #[must_use]
    pub const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Number of threads.
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Index of this VM in the run, or of this process where there is none.
    #[must_use]
    pub const fn vm(&self) -> u32 {
        self.vm
    }

    /// Number of them.
    #[must_use]
    pub const fn vms(&self) -> u32 {
        self.vms
    }

    /// Memory.
    #[must_use]
    pub const fn ram(&self) -> Memory {
        Memory(())
    }

    /// Time.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }
}

/// Memory of the process.
#[derive(Clone, Copy, Debug)]
pub struct Memory(());

impl Memory {
    /// `bytes` zeroed bytes, 8-byte aligned, never given back; always some.
    #[must_use]
    pub fn bytes(self, bytes: usize) -> Option<&'static mut [u8]> {
        let words = vec![0_u64; bytes.div_ceil(8)].leak();
        Some(&mut words.as_mut_bytes()[..bytes])
    }
}

/// Ticks of the time stamp counter, not reordered with what is around. Reading it is a system call nowhere.
#[inline]
#[must_use]
#[allow(unsafe_code)] // Instructions without a safe form.
pub fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: both exist on every x86-64, and Linux lets programs read the counter.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

/// Converts ticks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    khz: u32,
}

impl Clock {
    /// Finds the rate of the counter out, once.
    pub(super) fn calibrated() -> Self {
        static KHZ: OnceLock<u32> = OnceLock::new();
        let khz = *KHZ.get_or_init(|| {
            let (start, begin) = (Instant::now(), ticks());
            std::thread::sleep(CALIBRATION);
            let (elapsed, counted) = (start.elapsed(), ticks().wrapping_sub(begin));
            let khz = u128::from(counted) * 1_000_000 / elapsed.as_nanos().max(1);
            u32::try_from(khz).unwrap_or(u32::MAX).max(1)
        });
        Self { khz }
    }

    /// Nanoseconds that `ticks` ticks take.
    #[must_use]
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000 / u128::from(self.khz);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Waits for `ns` nanoseconds.
    pub fn spin(self, ns: u64) {
        let begin = ticks();
        while self.nanoseconds(ticks().wrapping_sub(begin)) < ns {
            spin_loop();
        }
    }
}

/// A point that threads pass together, any number of times. They spin, so that they make no system call; but not for long,
/// as there may be fewer CPUs than threads.
#[derive(Debug, Default)]
pub struct Barrier {
    arrived: AtomicU32,
    round: AtomicU32,
}

impl Barrier {
    /// A barrier that nobody has reached.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            arrived: AtomicU32::new(0),
            round: AtomicU32::new(0),
        }
    }

    /// Waits until `threads` threads have come.
    pub fn wait(&self, threads: u32) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.round.load(Ordering::Acquire) == round {
            spins += 1;
            if spins % SPINS == 0 {
                std::thread::yield_now();
            }
            spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_holds_everybody_back_each_round() {
        static BARRIER: Barrier = Barrier::new();
        static PASSED: AtomicU32 = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=20 {
                        PASSED.fetch_add(1, Ordering::SeqCst);
                        BARRIER.wait(3);
                        assert!(PASSED.load(Ordering::SeqCst) >= 3 * round);
                        BARRIER.wait(3);
                    }
                });
            }
        });
    }

    #[test]
    fn memory_is_zeroed_aligned_and_as_long_as_asked() {
        let bytes = Memory(()).bytes(13).unwrap();
        assert_eq!(bytes, [0; 13]);
        assert!(bytes.as_ptr().cast::<u64>().is_aligned());
    }
}
