//! Time, by the time stamp counter: reading it is no exit.

use core::arch::x86_64::{_mm_lfence, _rdtsc};

/// Ticks of the time stamp counter, not reordered with what is around.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: both exist on every x86-64, and the boot protocol leaves CR4.TSD clear.
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
    pub(crate) const fn new(khz: u32) -> Self {
        Self { khz }
    }

    /// Nanoseconds that `ticks` ticks take.
    #[must_use]
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000 / u128::from(self.khz.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Nanoseconds since some point in the past.
    #[must_use]
    pub fn now_ns(self) -> u64 {
        self.nanoseconds(ticks())
    }

    /// Ticks in `ns` nanoseconds.
    #[must_use]
    pub fn ticks_in(self, ns: u64) -> u64 {
        let ticks = u128::from(ns) * u128::from(self.khz) / 1_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Spins for `ns` nanoseconds.
    pub fn spin(self, ns: u64) {
        let (start, length) = (ticks(), self.ticks_in(ns));
        while ticks().wrapping_sub(start) < length {
            core::hint::spin_loop();
        }
    }
}
