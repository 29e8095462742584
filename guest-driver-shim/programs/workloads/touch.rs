//! The timed loops of loads and stores: the same machine code that the host's baseline thread runs.
#![allow(unsafe_code)] // The loops take raw pointers; a window vouches for the range.

use crate::platform::ticks;
use causeway_kernels::loops;
use causeway_shim::Window;

/// Size of a page, in bytes, for the count of first accesses.
pub const PAGE_BYTES: usize = 4096;

fn words(window: &Window) -> usize {
    window.bytes() / 8
}

/// Stores 8 bytes to every word of the window, `passes` times. Returns the ticks of the time stamp
/// counter that it took.
///
/// # Panics
/// If the window does not begin at a multiple of 8, or its size is not a multiple of 64 bytes.
pub fn store(window: &Window, passes: u32) -> u64 {
    let base = window.as_ptr().cast::<u64>();
    assert!(base.is_aligned(), "the window is not aligned");
    let start = ticks();
    // SAFETY: the window's creator guarantees the range; alignment is checked, and there are no
    // references.
    unsafe { loops::store(base.as_ptr(), words(window), passes) };
    ticks() - start
}

/// Loads every word of the window, `passes` times. Returns the ticks of the time stamp counter that
/// it took, and the sum of all values.
///
/// # Panics
/// If the window does not begin at a multiple of 8, or its size is not a multiple of 64 bytes.
pub fn load(window: &Window, passes: u32) -> (u64, u64) {
    let base = window.as_ptr().cast::<u64>();
    assert!(base.is_aligned(), "the window is not aligned");
    let start = ticks();
    // SAFETY: as for the stores.
    let sum = unsafe { loops::load(base.as_ptr(), words(window), passes) };
    (ticks() - start, sum)
}

/// Returns the sum that [`load`] must return after one [`store`] with any number of passes.
pub fn expected_sum(window: &Window, passes: u32) -> u64 {
    loops::expected_sum(words(window), passes)
}

/// Stores one word to every page of the window.
pub fn pages(window: &Window) {
    for offset in (0..window.bytes()).step_by(PAGE_BYTES) {
        // In range by construction.
        let _ = window.store_u64(offset, offset as u64);
    }
}
