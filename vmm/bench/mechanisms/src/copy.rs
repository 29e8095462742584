//! Copies between mappings, in the machine code that guests copy with.
#![allow(
    unsafe_code,
    reason = "copies between memory that others write meanwhile"
)]

use causeway_kernels::loops;
use causeway_memory::Mapping;

/// A range of the bytes of a mapping. Guests and kernels may write to the range at any time.
#[derive(Clone, Copy)]
pub struct Part<'m> {
    mapping: &'m Mapping,
    offset: u64,
    bytes: u64,
}

impl<'m> Part<'m> {
    /// Returns the range of `bytes` bytes from `offset`, or `None` if it reaches beyond the end of
    /// the mapping.
    pub fn of(mapping: &'m Mapping, offset: u64, bytes: u64) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        (end <= mapping.bytes()).then_some(Self {
            mapping,
            offset,
            bytes,
        })
    }

    /// Returns consecutive ranges of `bytes` bytes that together are this range; the last one may
    /// be shorter.
    pub fn slices(self, bytes: u64) -> impl Iterator<Item = Self> {
        let step = bytes.max(1);
        (0..self.bytes.div_ceil(step)).map(move |index| Self {
            mapping: self.mapping,
            offset: self.offset + index * step,
            bytes: step.min(self.bytes - index * step),
        })
    }

    fn as_ptr(self) -> *mut u8 {
        // SAFETY: `of` has found the offset within the mapping.
        unsafe { self.mapping.as_ptr().as_ptr().add(self.offset as usize) }
    }
}

/// Copies range `from` to range `to`. Returns `None` and copies nothing if their sizes differ.
pub fn between(to: Part<'_>, from: Part<'_>) -> Option<()> {
    if to.bytes != from.bytes {
        return None;
    }
    // SAFETY: both parts are mapped while they are borrowed, and both mappings are made writable
    // here; nobody has references to them.
    unsafe { loops::copy(to.as_ptr(), from.as_ptr(), to.bytes as usize) };
    Some(())
}

/// Copies the buffer `from` to range `to`. Returns `None` and copies nothing if their sizes differ.
pub fn inward(to: Part<'_>, from: &[u8]) -> Option<()> {
    if to.bytes != from.len() as u64 {
        return None;
    }
    // SAFETY: as for `between`; `from` cannot be part of a mapping, to which no references exist.
    unsafe { loops::copy(to.as_ptr(), from.as_ptr(), from.len()) };
    Some(())
}

/// Copies range `from` to the buffer `into`. Returns `None` and copies nothing if their sizes
/// differ.
pub fn outward(into: &mut [u8], from: Part<'_>) -> Option<()> {
    if from.bytes != into.len() as u64 {
        return None;
    }
    // SAFETY: as for `inward`.
    unsafe { loops::copy(into.as_mut_ptr(), from.as_ptr(), into.len()) };
    Some(())
}

/// Stores to all 64-bit words of a range, `passes` times, with the loop [`loops::store`]. Returns
/// `None` and stores nothing if the range is empty, not 8-byte aligned or no multiple of
/// [`loops::WORDS_PER_TURN`] words, or if `passes` is 0.
pub fn store_words(part: Part<'_>, passes: u32) -> Option<()> {
    let words = whole_turns(part, passes)?;
    // SAFETY: the part is mapped and writable, and has that many words, aligned; nobody has
    // references to it.
    unsafe { loops::store(part.as_ptr().cast(), words, passes) };
    Some(())
}

/// Loads all 64-bit words of a range, `passes` times, with the loop [`loops::load`], and returns
/// their sum. Returns `None` if the range is empty, not 8-byte aligned or no multiple of
/// [`loops::WORDS_PER_TURN`] words, or if `passes` is 0.
pub fn load_words(part: Part<'_>, passes: u32) -> Option<u64> {
    let words = whole_turns(part, passes)?;
    // SAFETY: as for stores.
    Some(unsafe { loops::load(part.as_ptr().cast(), words, passes) })
}

/// Returns the words of a part over which the loops can run.
fn whole_turns(part: Part<'_>, passes: u32) -> Option<usize> {
    let words = (part.bytes / 8) as usize;
    let whole = words != 0
        && words.is_multiple_of(loops::WORDS_PER_TURN)
        && part.offset.is_multiple_of(8)
        && passes != 0;
    whole.then_some(words)
}
