//! The pattern in shared memory that exporter and importer know.

use causeway_shim::Window;

/// Returns word `i` of the pattern: `(2i + 1337) ^ 0xDEADBEEF`.
pub const fn word(i: u32) -> u32 {
    i.wrapping_mul(2).wrapping_add(1337) ^ 0xDEAD_BEEF
}

/// Fills the window with the pattern; each word is combined with `mask` by exclusive or.
///
/// # Panics
/// If the window does not begin at a multiple of 8.
pub fn write(window: &Window, mask: u32) {
    for i in 0..window.bytes() / 4 {
        window
            .store_u32(4 * i, word(i as u32) ^ mask)
            .expect("the window is aligned");
    }
}

/// Checks that the window has the pattern, each word combined with `mask` by exclusive or.
///
/// # Panics
/// If a word differs. The message has the first such word.
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
