//! The pattern that exporter and importer agree on.

use causeway_shim::Window;

/// Returns word `i` of the pattern: `(2i + 1337) ^ 0xDEADBEEF`.
pub const fn word(i: u32) -> u32 {
    i.wrapping_mul(2).wrapping_add(1337) ^ 0xDEAD_BEEF
}

/// Fills the window with the pattern, each word flipped by `mask`.
///
/// # Panics
/// If the window is not aligned.
pub fn write(window: &Window, mask: u32) {
    for i in 0..window.bytes() / 4 {
        window
            .store_u32(4 * i, word(i as u32) ^ mask)
            .expect("the window is aligned");
    }
}

/// Verifies the pattern, each word flipped by `mask`.
///
/// # Panics
/// With the first word that differs.
#[track_caller]
pub fn verify(window: &Window, mask: u32) {
    for i in 0..window.bytes() / 4 {
        let got = window.load_u32(4 * i).expect("the window is aligned");
        let want = word(i as u32) ^ mask;
        assert!(
            got == want,
            "word {i} of the pattern is {got:#x} and must be {want:#x}"
        );
    }
}
