//! The loops of 8-byte loads and stores, in assembly so that a guest and its host run the same
//! machine code.
#![allow(unsafe_code, reason = "loops over raw memory, in assembly")]

use core::arch::asm;

/// Number of words that one turn of the loops processes. Callers pass multiples of this number.
pub const WORDS_PER_TURN: usize = 8;

/// Stores to each of `words` words from `base`, by increasing address, `passes` times. Passes are
/// counted down to 1; pass `p` stores `p + i / 8` to word `i`.
///
/// # Safety
///
/// `base` must be 8-byte aligned and `words` words there writable for the duration of the call, and
/// the caller may hold no reference to them. Others may access them meanwhile, as they would any
/// memory of a device.
///
/// # Panics
///
/// If `words` is zero or no multiple of [`WORDS_PER_TURN`], or `passes` is zero.
#[inline(never)]
pub unsafe fn store(base: *mut u64, words: usize, passes: u32) {
    check(words, passes);
    // SAFETY: the caller vouches for the range, and the loop stays in it: `words / 8` turns of 64
    // bytes.
    unsafe {
        asm!(
            "2:",
            "mov {at}, {base}",
            "mov {turns}, {all}",
            "mov {value}, {passes}",
            ".p2align 6",
            "3:",
            "mov [{at}], {value}",
            "mov [{at} + 8], {value}",
            "mov [{at} + 16], {value}",
            "mov [{at} + 24], {value}",
            "mov [{at} + 32], {value}",
            "mov [{at} + 40], {value}",
            "mov [{at} + 48], {value}",
            "mov [{at} + 56], {value}",
            "add {at}, 64",
            "add {value}, 1",
            "sub {turns}, 1",
            "jnz 3b",
            "sub {passes}, 1",
            "jnz 2b",
            base = in(reg) base,
            all = in(reg) words / WORDS_PER_TURN,
            passes = inout(reg) u64::from(passes) => _,
            at = out(reg) _,
            turns = out(reg) _,
            value = out(reg) _,
            options(nostack),
        );
    }
}

/// Loads each of `words` words from `base`, by increasing address, `passes` times. Returns the sum
/// of all values loaded.
///
/// # Safety
///
/// `base` must be 8-byte aligned and `words` words there readable for the duration of the call, and
/// the caller may hold no exclusive reference to them. Others may access them meanwhile.
///
/// # Panics
///
/// If `words` is zero or no multiple of [`WORDS_PER_TURN`], or `passes` is zero.
#[inline(never)]
pub unsafe fn load(base: *const u64, words: usize, passes: u32) -> u64 {
    check(words, passes);
    let (mut even, mut odd) = (0u64, 0u64);
    // SAFETY: the caller vouches for the range, and the loop stays in it: `words / 8` turns of 64
    // bytes.
    unsafe {
        asm!(
            "2:",
            "mov {at}, {base}",
            "mov {turns}, {all}",
            ".p2align 6",
            "3:",
            "add {even}, [{at}]",
            "add {odd}, [{at} + 8]",
            "add {even}, [{at} + 16]",
            "add {odd}, [{at} + 24]",
            "add {even}, [{at} + 32]",
            "add {odd}, [{at} + 40]",
            "add {even}, [{at} + 48]",
            "add {odd}, [{at} + 56]",
            "add {at}, 64",
            "sub {turns}, 1",
            "jnz 3b",
            "sub {passes:e}, 1",
            "jnz 2b",
            base = in(reg) base,
            all = in(reg) words / WORDS_PER_TURN,
            passes = inout(reg) passes => _,
            even = inout(reg) even,
            odd = inout(reg) odd,
            at = out(reg) _,
            turns = out(reg) _,
            options(nostack, readonly),
        );
    }
    even.wrapping_add(odd)
}

/// Copies `bytes` bytes by increasing address, with the processor's instruction `rep movsb`.
///
/// # Safety
///
/// `bytes` bytes must be readable at `from` and writable at `to` for the duration of the call, and
/// the caller may hold no reference that the copy contradicts. The ranges do not overlap. Others
/// may access them meanwhile.
#[inline(never)]
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear wherever Rust runs.
    unsafe {
        asm!(
            "rep movsb",
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") bytes => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies `words` words of 8 bytes by increasing address. Each access has 8 bytes if both addresses
/// are aligned. For uncached memory this is faster than [`copy`], which accesses each byte alone.
///
/// # Safety
///
/// The contract of [`copy`] must hold for `8 * words` bytes.
#[inline(never)]
pub unsafe fn copy_words(to: *mut u8, from: *const u8, words: usize) {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear wherever Rust runs.
    unsafe {
        asm!(
            "rep movsq",
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") words => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns the sum that [`load`] returns after [`store`] if nothing else writes the memory: word
/// `i` then holds `1 + i / 8`.
pub fn expected_sum(words: usize, passes: u32) -> u64 {
    let turns = (words / WORDS_PER_TURN) as u64;
    let one_pass = (turns.wrapping_mul(turns + 1) / 2).wrapping_mul(WORDS_PER_TURN as u64);
    one_pass.wrapping_mul(u64::from(passes))
}

fn check(words: usize, passes: u32) {
    assert!(
        words != 0 && words.is_multiple_of(WORDS_PER_TURN),
        "{words} words are no whole number of turns"
    );
    assert!(passes != 0, "no passes");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn every_word_is_stored_and_loaded_and_no_other() {
        let mut memory = vec![99u64; 8 + 512 + 8];
        let base = memory.as_mut_ptr();
        // SAFETY: the range lies in the vector, to which no reference lives during the call.
        unsafe { store(base.add(8), 512, 3) };
        assert!(
            memory[..8]
                .iter()
                .chain(&memory[520..])
                .all(|&word| word == 99)
        );
        for (i, &word) in memory[8..520].iter().enumerate() {
            assert_eq!(word, 1 + i as u64 / 8);
        }
        // SAFETY: as above.
        let sum = unsafe { load(memory.as_ptr().add(8), 512, 5) };
        assert_eq!(sum, expected_sum(512, 5));
        assert_eq!(sum, memory[8..520].iter().sum::<u64>() * 5);
    }

    #[test]
    fn a_copy_is_whole_and_no_more() {
        let from: std::vec::Vec<u8> = (0..100).collect();
        let mut to = vec![255; 102];
        // SAFETY: both ranges lie in their vectors, to which no reference lives during the call.
        unsafe { copy(to.as_mut_ptr().add(1), from.as_ptr(), 100) };
        assert_eq!((to[0], to[101]), (255, 255));
        assert_eq!(to[1..101], from);
        to.fill(255);
        // SAFETY: as above; 12 words are 96 bytes.
        unsafe { copy_words(to.as_mut_ptr().add(1), from.as_ptr(), 12) };
        assert_eq!((to[0], to[97]), (255, 255));
        assert_eq!(to[1..97], from[..96]);
    }

    #[test]
    #[should_panic(expected = "12 words are no whole number of turns")]
    fn a_part_of_a_turn_is_refused() {
        // SAFETY: the call panics before it touches memory.
        unsafe { load(core::ptr::dangling(), 12, 1) };
    }
}
