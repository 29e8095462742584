//! The device that calls are forwarded to: an area of guest RAM, and a port.
//!
//! A call is a header word (its opcode, and its words in the upper half) and operands. The guest
//! writes calls one behind the other from word [`CALLS`] on, and the number of words they take to
//! word [`USED`]; a store to the port has them executed in order. The host writes word [`STATUS`]
//! and results, from word [`RESULTS`] on.

/// 64-bit words of the area, which begins at a page.
pub const AREA_WORDS: usize = 16 << 10;
/// Word: how many words of calls there are.
pub const USED: usize = 0;
/// Word: 0, or which call failed, from 1. Calls behind that were not executed.
pub const STATUS: usize = 1;
/// First word of results.
pub const RESULTS: usize = 8;
/// First word of calls.
pub const CALLS: usize = 1024;
/// Most words of calls.
pub const CALL_WORDS: usize = AREA_WORDS - CALLS;
/// Most words of results of a batch.
pub const RESULT_WORDS: usize = CALLS - RESULTS;

/// Largest copy whose data travels in the area; larger ones travel by reference. In bytes. Up to a
/// page, copying twice costs less than an exit does, by software and in hardware.
pub const INLINE_BYTES_MAX: usize = 4096;
/// Most pieces of guest RAM that one copy goes to or comes from.
pub const PIECES_MAX: usize = 256;

/// Bytes → identifier and address for kernels.
pub const ALLOCATE: u64 = 1;
/// Identifier.
pub const FREE: u64 = 2;
/// Identifier, offset, bytes, data.
pub const COPY_IN: u64 = 3;
/// Identifier, offset, then address and bytes of each piece of guest RAM.
pub const COPY_IN_BY_REFERENCE: u64 = 4;
/// Identifier, offset, bytes → data.
pub const COPY_OUT: u64 = 5;
/// As [`COPY_IN_BY_REFERENCE`].
pub const COPY_OUT_BY_REFERENCE: u64 = 6;
/// Kernel, grid, block ([`pair`]), arguments.
pub const LAUNCH: u64 = 7;
/// Nothing: returns once everything is done.
pub const SYNCHRONIZE: u64 = 8;

/// Returns the header of a call of so many words, the header included.
#[must_use]
pub const fn header(opcode: u64, words: usize) -> u64 {
    opcode | (words as u64) << 32
}

/// Opcode and words of a header.
#[must_use]
pub const fn split_header(header: u64) -> (u64, usize) {
    (header & 0xffff_ffff, (header >> 32) as usize)
}

/// Two dimensions in one word.
#[must_use]
pub const fn pair([x, y]: [u32; 2]) -> u64 {
    x as u64 | (y as u64) << 32
}

/// Returns the two dimensions in a word.
#[must_use]
pub const fn split_pair(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}
