//! Checked accesses to a mapping, for the example and for tests. The product gives mappings to
//! guests and back ends, which reach them through pointers of their own.
#![allow(unsafe_code)] // Reaches memory of a device through raw pointers.

use causeway_host_vfio::{Mapping, TouchError};

/// Loads, stores and copies that stay within a mapping.
pub trait Touch {
    /// Loads an aligned 32-bit word.
    ///
    /// # Errors
    /// [`TouchError`].
    fn load_u32(&self, offset: u64) -> Result<u32, TouchError>;

    /// Stores an aligned 32-bit word.
    ///
    /// # Errors
    /// [`TouchError`].
    fn store_u32(&self, offset: u64, value: u32) -> Result<(), TouchError>;

    /// Copies `into.len()` bytes out, starting at `offset`, by accesses of 8 bytes where they are
    /// aligned, else of one.
    ///
    /// # Errors
    /// [`TouchError`], and then nothing was copied.
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), TouchError>;

    /// Copies `from` in, starting at `offset`, by accesses as in [`Self::copy_out`].
    ///
    /// # Errors
    /// [`TouchError`], and then nothing was copied.
    fn copy_in(&self, offset: u64, from: &[u8]) -> Result<(), TouchError>;

    /// Stores `value` in every byte of `[offset, offset + bytes)`.
    ///
    /// # Errors
    /// [`TouchError`], and then nothing was stored.
    fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<(), TouchError>;
}

impl Touch for Mapping {
    fn load_u32(&self, offset: u64) -> Result<u32, TouchError> {
        let word = self.at(offset, 4, 4)?.cast::<u32>();
        // SAFETY: in range and aligned.
        Ok(unsafe { word.read_volatile() })
    }

    fn store_u32(&self, offset: u64, value: u32) -> Result<(), TouchError> {
        let word = self.writable_at(offset, 4, 4)?.cast::<u32>();
        // SAFETY: in range, aligned and writable.
        unsafe { word.write_volatile(value) };
        Ok(())
    }

    fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), TouchError> {
        let from = self.at(offset, into.len() as u64, 1)?;
        let (head, words) = split(from, into.len());
        let (first, rest) = into.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(words * 8);
        let tail = head + words * 8;
        // SAFETY: all offsets are below the length that `at` checked; `split` made the words
        // aligned.
        unsafe {
            for (i, byte) in first.iter_mut().enumerate() {
                *byte = from.add(i).read_volatile();
            }
            for (i, word) in middle.chunks_exact_mut(8).enumerate() {
                let value = from.add(head).cast::<u64>().add(i).read_volatile();
                word.copy_from_slice(&value.to_ne_bytes());
            }
            for (i, byte) in last.iter_mut().enumerate() {
                *byte = from.add(tail + i).read_volatile();
            }
        }
        Ok(())
    }

    fn copy_in(&self, offset: u64, from: &[u8]) -> Result<(), TouchError> {
        let into = self.writable_at(offset, from.len() as u64, 1)?;
        let (head, words) = split(into, from.len());
        let (first, rest) = from.split_at(head);
        let (middle, last) = rest.split_at(words * 8);
        let tail = head + words * 8;
        // SAFETY: as in `copy_out`; the mapping is writable.
        unsafe {
            for (i, byte) in first.iter().enumerate() {
                into.add(i).write_volatile(*byte);
            }
            for (i, word) in middle.as_chunks::<8>().0.iter().enumerate() {
                let to = into.add(head).cast::<u64>().add(i);
                to.write_volatile(u64::from_ne_bytes(*word));
            }
            for (i, byte) in last.iter().enumerate() {
                into.add(tail + i).write_volatile(*byte);
            }
        }
        Ok(())
    }

    fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<(), TouchError> {
        let into = self.writable_at(offset, bytes, 1)?;
        let length = bytes as usize;
        let (head, words) = split(into, length);
        let tail = head + words * 8;
        let word = u64::from_ne_bytes([value; 8]);
        // SAFETY: as in `copy_in`.
        unsafe {
            for i in (0..head).chain(tail..length) {
                into.add(i).write_volatile(value);
            }
            for i in 0..words {
                into.add(head).cast::<u64>().add(i).write_volatile(word);
            }
        }
        Ok(())
    }
}

/// How many of `bytes` bytes come before the first aligned word, and how many whole words follow.
fn split(pointer: *const u8, bytes: usize) -> (usize, usize) {
    let head = pointer.align_offset(8).min(bytes);
    (head, (bytes - head) / 8)
}
