//! Threads, time, and memory of the process.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use causeway_shim::{Clock, ticks};
use zerocopy::IntoBytes;

/// How long the time stamp counter is measured to find its rate.
const CALIBRATION: Duration = Duration::from_millis(40);
/// Turns that a thread spins before it lets other threads run, which may be on the same CPU.
const SPINS: u32 = 10_000;

/// The machine as one thread of a workload sees it: each thread takes the place of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Index of the thread, from 0.
    pub(super) cpu: u32,
    pub(super) cpus: u32,
    pub(super) vm: u32,
    pub(super) vms: u32,
    pub(super) clock: Clock,
}

impl Machine {
    /// Returns the index of this thread, from 0.
    #[must_use]
    pub const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns the number of threads.
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Returns the index of this VM, or of this process, among those that work together, from 0.
    #[must_use]
    pub const fn vm(&self) -> u32 {
        self.vm
    }

    /// Returns the number of VMs, or of processes, that work together.
    #[must_use]
    pub const fn vms(&self) -> u32 {
        self.vms
    }

    /// Returns the allocator of the process's memory.
    #[must_use]
    pub const fn ram(&self) -> Memory {
        Memory(())
    }

    /// Returns a clock that converts ticks of the time stamp counter to time.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }
}

/// Allocates memory of the process.
#[derive(Clone, Copy, Debug)]
pub struct Memory(());

impl Memory {
    /// Returns `bytes` zero bytes at a multiple of 8, which are never freed. The result is never
    /// `None`.
    #[must_use]
    pub fn bytes(self, bytes: usize) -> Option<&'static mut [u8]> {
        let words = vec![0_u64; bytes.div_ceil(8)].leak();
        Some(&mut words.as_mut_bytes()[..bytes])
    }
}

/// Returns a clock. The first call measures the rate of the time stamp counter.
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

/// A point at which threads wait for each other, any number of times. The threads spin, so that
/// they make no system calls; but not for long, because there may be fewer CPUs than threads.
#[derive(Debug, Default)]
pub struct Barrier(causeway_shim::Barrier);

impl Barrier {
    /// Returns a barrier that no thread has reached.
    #[must_use]
    pub const fn new() -> Self {
        Self(causeway_shim::Barrier::new())
    }

    /// Waits until `threads` threads have called this.
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
