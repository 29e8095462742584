//! The four memory functions that compiled code calls, for a target whose C library is not linked.

use core::arch::asm;

/// # Safety
/// As C's `memcpy`: `bytes` bytes readable and writable, no overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(target: *mut u8, source: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear by the calling
    // convention.
    unsafe {
        asm!("rep movsb", inout("rcx") bytes => _, inout("rdi") target => _,
             inout("rsi") source => _, options(nostack, preserves_flags));
    }
    target
}

/// # Safety
/// As C's `memmove`: `bytes` bytes readable and writable; overlap is fine.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(target: *mut u8, source: *const u8, bytes: usize) -> *mut u8 {
    if (target as usize).wrapping_sub(source as usize) >= bytes {
        // SAFETY: copying upwards reads nothing that was written before.
        return unsafe { memcpy(target, source, bytes) };
    }
    // SAFETY: the caller vouches for both ranges; copying downwards reads nothing that was written
    // before. The direction flag is set back.
    unsafe {
        asm!("std", "rep movsb", "cld",
             inout("rcx") bytes => _,
             inout("rdi") target.wrapping_add(bytes).wrapping_sub(1) => _,
             inout("rsi") source.wrapping_add(bytes).wrapping_sub(1) => _,
             options(nostack));
    }
    target
}

/// # Safety
/// As C's `memset`: `bytes` bytes writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(target: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    // SAFETY: the caller vouches for the range; the direction flag is clear by the calling
    // convention.
    unsafe {
        asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") target => _, in("al") value as u8,
             options(nostack, preserves_flags));
    }
    target
}

/// # Safety
/// As C's `memcmp`: `bytes` bytes readable in both.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, bytes: usize) -> i32 {
    let mut at = 0;
    while at + 8 <= bytes {
        // SAFETY: the caller vouches for both ranges.
        let words = unsafe {
            (
                a.add(at).cast::<u64>().read_unaligned(),
                b.add(at).cast::<u64>().read_unaligned(),
            )
        };
        if words.0 != words.1 {
            // The first byte in memory decides, so compare as big-endian.
            return if words.0.swap_bytes() < words.1.swap_bytes() {
                -1
            } else {
                1
            };
        }
        at += 8;
    }
    while at < bytes {
        // SAFETY: as above.
        let (x, y) = unsafe { (*a.add(at), *b.add(at)) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
        at += 1;
    }
    0
}

/// # Safety
/// As [`memcmp`].
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, bytes: usize) -> i32 {
    // SAFETY: the caller vouches for both ranges.
    unsafe { memcmp(a, b, bytes) }
}
