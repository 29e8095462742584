//! Threads, time, and memory of the process.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use causeway_shim::{Clock, ticks};
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

/// The clock, whose rate is found out once.
pub(super) fn calibrated_clock() -> Clock {
    static KHZ: OnceLock<u32> = OnceLock::new();
    let khz = KHZ.get_or_init(|| {
        let (start, begin) = (Instant::now(), ticks());
        std::thread::sleep(CALIBRATION);
        let (elapsed, counted) = (start.elapsed(), ticks().wrapping_sub(begin));
        let khz = u128::from(counted) * 1_000_000 / elapsed.as_nanos().max(1);
        u32::try_from(khz).unwrap_or(u32::MAX)
    });
    Clock::new(*khz)
}

/// A point that threads pass together, any number of times. They spin, so that they make no system
/// call; but not for long, as there may be fewer CPUs than threads.
#[derive(Debug, Default)]
pub struct Barrier(causeway_shim::Barrier);

impl Barrier {
    /// A barrier that nobody has reached.
    #[must_use]
    pub const fn new() -> Self {
        Self(causeway_shim::Barrier::new())
    }

    /// Waits until `threads` threads have come.
    pub fn wait(&self, threads: u32) {
        let mut spins = 0;
        self.0.wait_with(threads, || {
            spins += 1;
            if spins % SPINS == 0 {
                std::thread::yield_now();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_as_long_as_asked() {
        let bytes = Memory(()).bytes(13).unwrap();
        assert_eq!(bytes, [0; 13]);
        assert!(bytes.as_ptr().cast::<u64>().is_aligned());
    }
}
