//! The device to which a guest forwards calls: an area of guest RAM, and an I/O port.
//!
//! A call is a header word (opcode, and number of words in the upper half) and operands. The guest
//! writes calls one after the other from word [`CALLS`] on, and the number of words that they take
//! to word [`USED`]. A store to the port executes the calls in order. The host writes word
//! [`STATUS`], and results from word [`RESULTS`] on.

/// Size of the area in 64-bit words. The area begins at a page.
pub const AREA_WORDS: usize = 16 << 10;
/// Index of the word that says how many words the calls take.
pub const USED: usize = 0;
/// Index of the word with the result: 0, or the number of the call that failed, from 1. Calls after
/// that one were not executed.
pub const STATUS: usize = 1;
/// Index of the first word of results.
pub const RESULTS: usize = 8;
/// Index of the first word of calls.
pub const CALLS: usize = 1024;
/// Most words that the calls of a batch may take.
pub const CALL_WORDS: usize = AREA_WORDS - CALLS;
/// Most words that the results of a batch may take.
pub const RESULT_WORDS: usize = CALLS - RESULTS;

/// Largest copy in bytes whose data is in the area; a larger copy refers to its data. Up to one
/// page, a second copy costs less than an exit, on a software KVM and on hardware.
pub const INLINE_BYTES_MAX: usize = 4096;
/// Most ranges of guest RAM to or from which one call can copy.
pub const PIECES_MAX: usize = 256;

/// Opcode: allocates memory. Operand: bytes. Results: an identifier, and the address for kernels.
pub const ALLOCATE: u64 = 1;
/// Opcode: frees memory. Operand: its identifier.
pub const FREE: u64 = 2;
/// Opcode: copies to memory. Operands: identifier, offset, bytes, data.
pub const COPY_IN: u64 = 3;
/// Opcode: copies from guest RAM to memory. Operands: identifier, offset, then address and bytes of
/// each range of guest RAM.
pub const COPY_IN_BY_REFERENCE: u64 = 4;
/// Opcode: copies from memory. Operands: identifier, offset, bytes. Result: the data.
pub const COPY_OUT: u64 = 5;
/// Opcode: copies from memory to guest RAM. Operands as for [`COPY_IN_BY_REFERENCE`].
pub const COPY_OUT_BY_REFERENCE: u64 = 6;
/// Opcode: launches a kernel. Operands: its number, grid and block (each a [`pair`]), then the
/// kernel's arguments.
pub const LAUNCH: u64 = 7;
/// Opcode: waits until all launches have ended. It has no operands.
pub const SYNCHRONIZE: u64 = 8;

/// Returns the header word of a call that takes `words` words, including the header.
#[must_use]
pub const fn header(opcode: u64, words: usize) -> u64 {
    opcode | (words as u64) << 32
}

/// Returns opcode and number of words from the header word of a call.
#[must_use]
pub const fn split_header(header: u64) -> (u64, usize) {
    (header & 0xffff_ffff, (header >> 32) as usize)
}

/// Returns one word that contains two dimensions.
#[must_use]
pub const fn pair([x, y]: [u32; 2]) -> u64 {
    x as u64 | (y as u64) << 32
}

/// Returns the two dimensions that a word contains.
#[must_use]
pub const fn split_pair(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}
