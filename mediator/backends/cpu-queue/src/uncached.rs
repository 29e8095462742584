//! Copies and fills of uncached memory: by aligned accesses of 16 bytes, and single bytes at the
//! ends.
//!
//! What a string instruction does byte by byte in such memory (Intel SDM volume 1, 7.3.9.3: fast
//! strings want write-back or write-combining memory) is 16 times as many transactions on the way
//! to the device.
#![allow(
    unsafe_code,
    reason = "reaches mapped memory through raw pointers, in blocks that the compiler cannot look \
              into"
)]

/// Bytes of a wide access.
const WIDE_BYTES: u64 = 16;
/// Bytes that go through a buffer of our own at a time.
const BOUNCE_BYTES: usize = 4096;

/// Fills `bytes` bytes of uncached memory at `to` with copies of `word`, low byte first. All stores
/// are complete when this returns.
///
/// # Safety
/// `bytes` bytes at `to` can be written, and no Rust reference to them exists. Others may access
/// them meanwhile.
pub unsafe fn fill_uncached(to: *mut u8, bytes: u64, word: u32) {
    let head = head(to, bytes);
    let turned = word.rotate_right(8 * (head as u32 & 3));
    let wide = (bytes - head) / WIDE_BYTES;
    let tail = head + wide * WIDE_BYTES;
    // SAFETY: all three parts lie in the range, which is writable by this function's contract; the
    // middle is aligned.
    unsafe {
        fill_single(to, head, word);
        fill_wide(to.add(head as usize), wide, turned);
        fill_single(to.add(tail as usize), bytes - tail, turned);
        drain_stores();
    }
}

/// Copies uncached memory into memory that is cached.
///
/// # Safety
/// `bytes` bytes at `from` can be read, and at `to` be written; the ranges do not overlap. Nobody
/// has a Rust reference to either. Others may access both meanwhile.
pub(crate) unsafe fn load(from: *const u8, to: *mut u8, bytes: u64) {
    let head = head(from, bytes);
    let wide = (bytes - head) / WIDE_BYTES;
    let tail = head + wide * WIDE_BYTES;
    // SAFETY: all three parts lie in the ranges; the middle of `from` is aligned.
    unsafe {
        copy_single(from, to, head);
        load_wide(from.add(head as usize), to.add(head as usize), wide);
        copy_single(from.add(tail as usize), to.add(tail as usize), bytes - tail);
    }
}

/// Copies memory that is cached into uncached memory. It is done when this returns.
///
/// # Safety
/// As [`load`].
pub(crate) unsafe fn store(from: *const u8, to: *mut u8, bytes: u64) {
    let head = head(to, bytes);
    let wide = (bytes - head) / WIDE_BYTES;
    let tail = head + wide * WIDE_BYTES;
    // SAFETY: all three parts lie in the ranges; the middle of `to` is aligned.
    unsafe {
        copy_single(from, to, head);
        store_wide(from.add(head as usize), to.add(head as usize), wide);
        copy_single(from.add(tail as usize), to.add(tail as usize), bytes - tail);
        drain_stores();
    }
}

/// Copies uncached memory into uncached memory, through a buffer: source and destination need not
/// be aligned alike.
///
/// # Safety
/// As [`load`], but if the ranges overlap, they are copied in ascending order.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: u64) {
    let mut buffer = [0_u8; BOUNCE_BYTES];
    let mut done = 0;
    while done < bytes {
        let count = (bytes - done).min(BOUNCE_BYTES as u64);
        // SAFETY: by this function's contract; the buffer is ours alone, and large enough.
        unsafe {
            load(from.add(done as usize), buffer.as_mut_ptr(), count);
            store(buffer.as_ptr(), to.add(done as usize), count);
        }
        done += count;
    }
}

/// How many of `bytes` bytes come before the first that is aligned for a wide access.
fn head(pointer: *const u8, bytes: u64) -> u64 {
    ((pointer as u64).wrapping_neg() % WIDE_BYTES).min(bytes)
}

/// # Safety
/// `bytes` bytes at `to` can be written.
unsafe fn fill_single(to: *mut u8, bytes: u64, word: u32) {
    let pattern = word.to_le_bytes();
    for index in 0..bytes as usize {
        // SAFETY: by this function's contract; one volatile store.
        unsafe { to.add(index).write_volatile(pattern[index % 4]) };
    }
}

/// # Safety
/// `bytes` bytes at `from` can be read, and at `to` be written.
unsafe fn copy_single(from: *const u8, to: *mut u8, bytes: u64) {
    for index in 0..bytes as usize {
        // SAFETY: by this function's contract; volatile accesses.
        unsafe {
            to.add(index)
                .write_volatile(from.add(index).read_volatile())
        };
    }
}

/// # Safety
/// `count` times 16 bytes at `to`, which is a multiple of 16, can be written.
unsafe fn fill_wide(to: *mut u8, count: u64, word: u32) {
    if count == 0 {
        return;
    }
    // SAFETY: by this function's contract. In assembly, the optimizer makes no assumption about
    // racing bytes, and the accesses have the width that is written here.
    unsafe {
        std::arch::asm!(
            "movd {wide}, {word:e}",
            "pshufd {wide}, {wide}, 0",
            "2:",
            "movntdq [{to}], {wide}",
            "add {to}, 16",
            "dec {count}",
            "jnz 2b",
            wide = out(xmm_reg) _,
            word = in(reg) word,
            to = inout(reg) to => _,
            count = inout(reg) count => _,
            options(nostack),
        );
    }
}

/// Defines a copy of `count` times 16 bytes by the instructions `$load` and `$store`.
macro_rules! wide_copy {
    ($(#[$doc:meta])* $name:ident, $load:literal, $store:literal) => {
        $(#[$doc])*
        unsafe fn $name(from: *const u8, to: *mut u8, count: u64) {
            if count == 0 {
                return;
            }
            // SAFETY: as in `fill_wide`.
            unsafe {
                std::arch::asm!(
                    "2:",
                    concat!($load, " {wide}, [{from}]"),
                    concat!($store, " [{to}], {wide}"),
                    "add {from}, 16",
                    "add {to}, 16",
                    "dec {count}",
                    "jnz 2b",
                    wide = out(xmm_reg) _,
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    count = inout(reg) count => _,
                    options(nostack),
                );
            }
        }
    };
}

wide_copy!(
    /// # Safety
    /// `count` times 16 bytes at `from`, which is a multiple of 16, can be read, and at `to` be
    /// written.
    load_wide, "movdqa", "movdqu"
);
wide_copy!(
    /// # Safety
    /// `count` times 16 bytes at `from` can be read, and at `to`, which is a multiple of 16, be
    /// written.
    store_wide, "movdqu", "movntdq"
);

/// Completes non-temporal stores, which are not ordered with others, before what follows, such
/// as a fence release.
fn drain_stores() {
    // SAFETY: touches no memory.
    unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: usize = 3 * BOUNCE_BYTES;

    fn noise(seed: u8) -> Vec<u8> {
        let byte = |i: usize| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed;
        (0..BYTES).map(byte).collect()
    }

    proptest! {
        #[test]
        fn whatever_the_alignment_exactly_the_range_is_copied(
            from in 0_usize..64, to in 0_usize..64, bytes in 0_usize..BYTES - 64, way in 0..3
        ) {
            let source = noise(1);
            let mut destination = noise(2);
            let mut wanted = destination.clone();
            wanted[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
            let (source, into) = (source[from..].as_ptr(), destination[to..].as_mut_ptr());
            // SAFETY: both ranges are within vectors that nobody else looks at meanwhile.
            unsafe {
                match way {
                    0 => load(source, into, bytes as u64),
                    1 => store(source, into, bytes as u64),
                    _ => copy(source, into, bytes as u64),
                }
            }
            prop_assert!(destination == wanted);
        }

        #[test]
        fn exactly_the_range_is_filled_with_the_word_from_its_low_byte_on(
            to in 0_usize..64, bytes in 0_usize..512, word: u32
        ) {
            let mut memory = noise(3);
            let mut wanted = memory.clone();
            let pattern = word.to_le_bytes();
            for (index, byte) in wanted[to..to + bytes].iter_mut().enumerate() {
                *byte = pattern[index % 4];
            }
            let into = memory[to..].as_mut_ptr();
            // SAFETY: as above.
            unsafe { fill_uncached(into, bytes as u64, word) };
            prop_assert!(memory == wanted);
        }
    }
}
