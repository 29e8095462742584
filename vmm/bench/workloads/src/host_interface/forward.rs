//! The device to which a guest forwards calls: an area of guest RAM, and an I/O port.
//!
//! A call is a header word (opcode, and number of words in the upper half) and operands. The guest
//! writes calls one after the other from word [`CALLS`] on, and the number of words that they take
//! to word [`USED`]. A store to the port executes the calls in order. The host writes word
//! [`STATUS`], and results from word [`RESULTS`] on.

/// Size in 64-bit words of the call area: the part of guest RAM that holds forwarded calls and
/// their results. The area begins at a multiple of 4096 bytes.
pub const AREA_WORDS: usize = 16 << 10;
/// Index of a word of the call area (the part of guest RAM in which a guest forwards calls to the
/// host): the guest writes to this word how many 64-bit words all of its calls take.
pub const USED: usize = 0;
/// Index of a word of the call area (the part of guest RAM in which a guest forwards calls to the
/// host): the host writes to this word 0 if all calls succeeded, else the number of the call that
/// failed, from 1. The host does not execute the calls after that one.
pub const STATUS: usize = 1;
/// Index of the first word that the host writes results to in the call area (the part of guest RAM
/// in which a guest forwards calls to the host).
pub const RESULTS: usize = 8;
/// Index of the first word that the guest writes calls to in the call area (the part of guest RAM
/// in which a guest forwards calls to the host).
pub const CALLS: usize = 1024;
/// Maximum number of 64-bit words of all calls that a guest forwards with one exit.
pub const CALL_WORDS: usize = AREA_WORDS - CALLS;
/// Maximum number of 64-bit words of all results of the calls that a guest forwards with one exit.
pub const RESULT_WORDS: usize = CALLS - RESULTS;

/// Maximum size in bytes of a copy whose call contains the data. The call of a larger copy names
/// ranges of guest RAM instead, and must be executed at once. Up to one page, copying the data into
/// the call takes less time than that exit, with KVM by software and on hardware.
pub const INLINE_BYTES_MAX: usize = 4096;
/// Maximum number of ranges of guest RAM to or from which one call can copy.
pub const PIECES_MAX: usize = 256;

/// Opcode of a call that allocates GPU memory. Operand: size in bytes. Results: an identifier for
/// the allocation, and its GPU address, which kernels use.
pub const ALLOCATE: u64 = 1;
/// Opcode of a call that frees GPU memory. Operand: identifier of the allocation.
pub const FREE: u64 = 2;
/// Opcode of a call that copies to GPU memory. Operands: identifier of the allocation, offset in
/// it, size in bytes, data.
pub const COPY_IN: u64 = 3;
/// Opcode of a call that copies from guest RAM to GPU memory. Operands: identifier of the
/// allocation, offset in it, then guest-physical address and size in bytes of each range of guest
/// RAM.
pub const COPY_IN_BY_REFERENCE: u64 = 4;
/// Opcode of a call that copies from GPU memory. Operands: identifier of the allocation, offset in
/// it, size in bytes. Result: the data.
pub const COPY_OUT: u64 = 5;
/// Opcode of a call that copies from GPU memory to guest RAM. Its operands are those of
/// [`COPY_IN_BY_REFERENCE`].
pub const COPY_OUT_BY_REFERENCE: u64 = 6;
/// Opcode of a call that launches a kernel. Operands: number of the kernel, grid and block (each in
/// one word, as [`pair`] packs it), then the kernel's arguments.
pub const LAUNCH: u64 = 7;
/// Opcode of a call that waits until all launches have ended. The call has no operands.
pub const SYNCHRONIZE: u64 = 8;

/// Returns the header word of a call: `opcode` in the lower half, and in the upper half `words`,
/// the number of 64-bit words of the call with its header.
#[must_use]
pub const fn header(opcode: u64, words: usize) -> u64 {
    opcode | (words as u64) << 32
}

/// Returns the opcode and the number of words that the header word of a call contains.
#[must_use]
pub const fn split_header(header: u64) -> (u64, usize) {
    (header & 0xffff_ffff, (header >> 32) as usize)
}

/// Packs both dimensions of a grid or block into one word: x into the lower half, y into the upper
/// half.
#[must_use]
pub const fn pair([x, y]: [u32; 2]) -> u64 {
    x as u64 | (y as u64) << 32
}

/// Returns the dimensions x and y of a grid or block from the word into which [`pair`] packed them.
#[must_use]
pub const fn split_pair(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}
