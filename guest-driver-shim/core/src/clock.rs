//! Time, by the time stamp counter.
#![allow(unsafe_code)] // Instructions without a safe form.

use core::arch::x86_64::{_mm_lfence, _rdtsc};

/// Reads the time stamp counter, after all earlier loads are complete and before any later
/// instruction begins. This takes neither an exit nor a system call.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: both exist on every x86-64; the boot protocol of bare guests, and Linux, leave
    // CR4.TSD clear.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

/// Converts ticks of the time stamp counter to nanoseconds and back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    khz: u32,
}

impl Clock {
    /// Returns a clock for a time stamp counter with a frequency of `khz` kHz; zero is taken as 1
    /// kHz.
    #[must_use]
    pub const fn new(khz: u32) -> Self {
        let khz = if khz == 0 { 1 } else { khz };
        Self { khz }
    }

    /// Converts `ticks` ticks of the counter to nanoseconds.
    #[must_use]
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000 / u128::from(self.khz);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Returns the nanoseconds since the time stamp counter was zero.
    #[must_use]
    pub fn now_ns(self) -> u64 {
        self.nanoseconds(ticks())
    }

    /// Converts `ns` nanoseconds to ticks of the counter.
    #[must_use]
    pub fn ticks_in(self, ns: u64) -> u64 {
        let ticks = u128::from(ns) * u128::from(self.khz) / 1_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Waits for `ns` nanoseconds in a loop.
    pub fn spin(self, ns: u64) {
        let (start, length) = (ticks(), self.ticks_in(ns));
        while ticks().wrapping_sub(start) < length {
            core::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_nanoseconds_are_converted_without_overflow() {
        let clock = Clock::new(2_500_000);
        assert_eq!(clock.nanoseconds(2_500), 1_000);
        assert_eq!(clock.ticks_in(1_000), 2_500);
        assert_eq!(clock.nanoseconds(u64::MAX), u64::MAX / 5 * 2);
        assert_eq!(clock.ticks_in(u64::MAX), u64::MAX);
        assert_eq!(Clock::new(0).nanoseconds(1), 1_000_000);
        assert_eq!(Clock::new(1).nanoseconds(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_spin_lasts_as_long_as_asked() {
        let clock = Clock::new(1_000);
        let begin = ticks();
        clock.spin(1_000_000);
        assert!(ticks().wrapping_sub(begin) >= 1_000);
    }
}
