//! Pointers of callers, as types: what the C ABI makes of the arguments of a call.
//!
//! Nobody else makes values of these types. A caller of the driver API promises that a pointer is
//! null or valid for the call, and that what it points to is as large as the API says; that promise
//! is what makes the methods safe.

use std::ffi::{CStr, c_char};

use zerocopy::FromBytes;

use crate::error::{Answer, Code};

/// Copies `bytes` bytes of a caller's memory, or of memory that the library maps for itself, from
/// address `from` to address `to`. The ranges may overlap. The caller of the driver API has
/// promised that its memory is there; the library answers for its own.
pub fn copy_bytes(to: u64, from: u64, bytes: usize) {
    let (source, destination) = (from as *const u8, to as *mut u8);
    // SAFETY: by the promise in this module's description, and that of the library for its memory.
    unsafe { source.copy_to(destination, bytes) };
}

/// Copies as [`copy_bytes`] does, for ranges that do not overlap, and leaves the destination out of
/// the processor's caches: it is so large that it would only empty them, and a line that is written
/// whole need not be read first.
pub fn stream_bytes(to: u64, from: u64, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        /// Bytes of a line of the caches.
        const LINE: usize = 64;
        let head = (to.next_multiple_of(LINE as u64) - to) as usize;
        if head < bytes {
            let lines = (bytes - head) / LINE;
            let tail = head + lines * LINE;
            copy_bytes(to, from, head);
            stream_lines(to + head as u64, from + head as u64, lines);
            return copy_bytes(to + tail as u64, from + tail as u64, bytes - tail);
        }
    }
    copy_bytes(to, from, bytes);
}

/// Copies lines of 64 bytes past the caches to `to`, a multiple of 64.
#[cfg(target_arch = "x86_64")]
fn stream_lines(to: u64, from: u64, lines: usize) {
    /// Lines of a page, and pages that are copied side by side: memory works on them at once.
    const PAGE_LINES: usize = 64;
    const PAGES: usize = 4;
    let blocks = lines / (PAGE_LINES * PAGES);
    for block in 0..blocks {
        let first = block * PAGE_LINES * PAGES;
        for line in first..first + PAGE_LINES {
            for page in 0..PAGES {
                stream_line(to, from, line + page * PAGE_LINES);
            }
        }
    }
    for line in blocks * PAGE_LINES * PAGES..lines {
        stream_line(to, from, line);
    }
    // SAFETY: orders the stores above before those that follow, and accesses no memory.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

/// Copies one line past the caches.
#[cfg(target_arch = "x86_64")]
#[inline]
fn stream_line(to: u64, from: u64, line: usize) {
    use std::arch::x86_64::{
        __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_stream_si128,
    };
    /// Lines ahead of the one that is copied which the processor is asked for.
    const AHEAD: usize = 2;
    let offset = line as u64 * 64;
    let (source, destination) = (
        (from + offset) as *const __m128i,
        (to + offset) as *mut __m128i,
    );
    // SAFETY: by the promise in this module's description, and that of the library for its memory.
    // The destination is aligned; a hint may name any address; every x86-64 processor has these
    // instructions.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(source.wrapping_add(4 * AHEAD).cast());
        let parts = [0, 1, 2, 3].map(|part: usize| _mm_loadu_si128(source.add(part)));
        for (part, value) in parts.into_iter().enumerate() {
            _mm_stream_si128(destination.add(part), value);
        }
    }
}

/// Where a call puts a result.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Whether the caller wants no result.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Puts the result; a null pointer is an invalid value.
    pub fn set(self, value: T) -> Answer {
        self.set_at(0, value)
    }

    /// Puts the result if it is wanted.
    pub fn set_if_wanted(self, value: T) {
        if !self.is_null() {
            // SAFETY: by the promise in this module's description.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Puts one of several results, for which the caller has promised room.
    pub fn set_at(self, index: usize, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the promise in this module's description.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }
}

impl<T> Out<T> {
    /// Address of one of several places.
    pub fn address_of(self, index: usize) -> Answer<usize> {
        if self.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        Ok(self.0.wrapping_add(index) as usize)
    }
}

impl<T: FromBytes> Out<T> {
    /// What is there before the call.
    pub fn get(self) -> Answer<T> {
        In(self.0.cast_const()).get()
    }
}

impl<T> Out<T> {
    /// Where a result goes whose address came in another argument.
    pub fn at(address: usize) -> Self {
        Self(address as *mut T)
    }
}

impl Out<u8> {
    /// Puts text and a NUL into `room` bytes, cutting the text if it is too long.
    pub fn set_text(self, text: &str, room: usize) -> Answer<usize> {
        if self.is_null() || room == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let kept = text.len().min(room - 1);
        for (index, byte) in text.as_bytes()[..kept].iter().chain(&[0]).enumerate() {
            self.set_at(index, *byte)?;
        }
        Ok(kept + 1)
    }
}

/// Where a call finds an argument, or several.
#[derive(Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> In<T> {
    /// An argument whose address came in another one.
    pub fn at(address: usize) -> Self {
        Self(address as *const T)
    }

    /// Whether there is none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: FromBytes> In<T> {
    /// The argument; a null pointer is an invalid value.
    pub fn get(self) -> Answer<T> {
        self.get_at(0)
    }

    /// One of several arguments.
    pub fn get_at(self, index: usize) -> Answer<T> {
        if self.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the promise in this module's description; any bytes are a value of the type.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// `count` arguments, none if the count is zero.
    pub fn list(self, count: usize) -> Answer<Vec<T>> {
        (0..count).map(|index| self.get_at(index)).collect()
    }
}

impl In<u8> {
    /// Copies bytes of the caller into `into`; a null pointer is an invalid value.
    #[inline]
    pub fn copy_to(self, into: &mut [u8]) -> Answer {
        if self.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the promise in this module's description; the destination is the library's.
        unsafe { self.0.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }
}

/// A C string.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// No text.
    pub const NULL: Self = Self(std::ptr::null());

    /// A text that ends in NUL.
    pub fn of(text: &'static str) -> Self {
        debug_assert!(text.ends_with('\0'));
        Self(text.as_ptr().cast())
    }

    /// A text whose address came otherwise.
    pub fn at(address: usize) -> Self {
        Self(address as *const c_char)
    }

    /// The bytes before the NUL; a null pointer is an invalid value.
    pub fn bytes(self) -> Answer<Vec<u8>> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the promise in this module's description.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec())
    }

    /// The text, if it is UTF-8.
    pub fn get(self) -> Answer<String> {
        String::from_utf8(self.bytes()?).map_err(|_| Code::INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_bytes_are_those_and_no_others() {
        const ROOM: usize = 50_000;
        let source: Vec<u8> = (0..ROOM as u64).map(|i| (i * i / 7 + 1) as u8).collect();
        for start in [0, 1, 15, 63] {
            // Blocks of pages have 16,384 bytes.
            for bytes in [0, 1, 63, 64, 65, 128, 200, 777, 16_384, 20_000, 49_000] {
                let mut into = vec![0; ROOM];
                let to = into.as_mut_ptr() as u64 + start;
                stream_bytes(to, source.as_ptr() as u64 + 3, bytes);
                let (start, end) = (start as usize, start as usize + bytes);
                assert_eq!(into[start..end], source[3..3 + bytes], "{start} {bytes}");
                let around = into[..start].iter().chain(&into[end..]);
                assert!(around.eq(std::iter::repeat_n(&0, ROOM - bytes)));
            }
        }
    }
}
