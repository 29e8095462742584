//! Patterns that workloads write to memory, and check after they were copied.

/// Returns the word at a byte offset.
const fn word(offset: usize, seed: u64) -> u64 {
    (offset as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed
}

/// Fills the program's buffer with a pattern; its length is a multiple of 8.
pub(super) fn fill(host: &mut [u8], seed: u64) {
    for (index, chunk) in host.as_chunks_mut().0.iter_mut().enumerate() {
        *chunk = word(8 * index, seed).to_le_bytes();
    }
}

/// Panics unless the buffer contains the pattern of [`fill`] with this seed.
pub(super) fn check(host: &[u8], seed: u64) {
    check_words(host, |index| word(8 * index, seed));
}

/// Panics unless the buffer contains the 64-bit words that `value` returns for each index.
pub(super) fn check_words(host: &[u8], value: impl Fn(usize) -> u64) {
    for (index, got) in host.as_chunks().0.iter().enumerate() {
        assert_eq!(u64::from_le_bytes(*got), value(index), "word {index}");
    }
}

/// Fills the buffer with the floats that `value` returns for each index; its length is a multiple
/// of 4.
pub(super) fn fill_floats(host: &mut [u8], value: impl Fn(usize) -> f32) {
    for (index, chunk) in host.chunks_exact_mut(4).enumerate() {
        chunk.copy_from_slice(&value(index).to_le_bytes());
    }
}

/// Panics unless the buffer contains the floats that `value` returns for each index.
pub(super) fn check_floats(host: &[u8], value: impl Fn(usize) -> f32) {
    for (index, chunk) in host.chunks_exact(4).enumerate() {
        assert_eq!(
            chunk,
            value(index).to_le_bytes(),
            "at {index}, want {}",
            value(index)
        );
    }
}
