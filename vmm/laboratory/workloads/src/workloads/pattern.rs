//! What goes into memory, so that one can see whether it arrived.

use crate::Mechanism;

/// The word at a byte offset.
const fn word(offset: usize, seed: u64) -> u64 {
    (offset as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed
}

/// Fills memory of the program's own; its length is a multiple of 8.
pub(super) fn fill(host: &mut [u8], seed: u64) {
    for (index, chunk) in host.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&word(8 * index, seed).to_le_bytes());
    }
}

/// Panics unless the memory begins and ends with the first `bytes` bytes of the pattern.
pub(super) fn check<M: Mechanism>(m: &mut M, memory: &M::Memory, bytes: usize, seed: u64) {
    for offset in [0, bytes - 8] {
        let mut got = [0; 8];
        m.copy_out(memory, offset, &mut got);
        assert_eq!(u64::from_le_bytes(got), word(offset, seed), "at {offset}");
    }
}

/// Panics unless memory of the program's own begins and ends with the pattern.
pub(super) fn check_own(host: &[u8], seed: u64) {
    for offset in [0, host.len() - 8] {
        assert_eq!(
            host[offset..offset + 8],
            word(offset, seed).to_le_bytes(),
            "at {offset}"
        );
    }
}

/// Fills with floats; the length is a multiple of 4.
pub(super) fn fill_floats(host: &mut [u8], value: impl Fn(usize) -> f32) {
    for (index, chunk) in host.chunks_exact_mut(4).enumerate() {
        chunk.copy_from_slice(&value(index).to_le_bytes());
    }
}

/// Panics unless these are the floats.
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
