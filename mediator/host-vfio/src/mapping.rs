//! Ranges of a region in this process.
#![allow(unsafe_code)] // Maps memory of a device, and reaches it through raw pointers.

use std::ptr::NonNull;
use std::sync::Arc;

use causeway_memory::{DeviceMapping, PAGE_BYTES};
use rustix::mm::{MapFlags, ProtFlags};

use crate::Address;
use crate::hardware::Hardware;
use crate::region::{Region, RegionIndex};

/// Why a part of a region was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The function has no such region.
    #[error("device {address} has no {region}")]
    Absent {
        /// The device.
        address: Address,
        /// The region.
        region: RegionIndex,
    },
    /// The range cannot be mapped, or is not made of whole pages.
    #[error(
        "bytes {offset:#x}+{bytes:#x} of {region} of device {address}, which has {size:#x} bytes, cannot be mapped: choose whole pages of a range that the kernel maps"
    )]
    Range {
        /// The device.
        address: Address,
        /// The region.
        region: RegionIndex,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Bytes that the region has.
        size: u64,
    },
    /// The kernel refused the mapping.
    #[error("cannot map bytes {offset:#x}+{bytes:#x} of {region} of device {address}")]
    Failed {
        /// The device.
        address: Address,
        /// The region.
        region: RegionIndex,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Its error.
        source: std::io::Error,
    },
}

/// An access outside the mapping, or one that is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "bytes {offset:#x}+{bytes:#x} are outside the mapping of {size:#x} bytes, or not aligned, or not writable"
)]
pub struct TouchError {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of the mapping.
    pub size: u64,
}

/// Memory or registers of a device in this process, until dropped; the device is held as long.
///
/// The device, and guests to which it is shown, write it at any time, so it is reached by volatile
/// accesses only. While the function does not decode its memory (command register), or is powered
/// down, an access raises SIGBUS: code that gives guests control of the command register sees to it
/// that nothing is touched meanwhile.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
    /// Closed after the mapping is gone: as long as there is a mapping, the kernel holds on to the
    /// device.
    _hardware: Arc<dyn Hardware>,
}

// SAFETY: a mapping is an address range; every access is volatile and bounds-checked.
unsafe impl Send for Mapping {}
// SAFETY: as above; concurrent accesses are what volatile operations on a device's memory are for.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(
        hardware: &Arc<dyn Hardware>,
        address: Address,
        region: &Region,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, MapError> {
        let pages = bytes != 0 && (offset | bytes).is_multiple_of(PAGE_BYTES);
        let length = usize::try_from(bytes).ok();
        let length = length.filter(|_| pages && region.can_map(offset, bytes));
        let length = length.ok_or(MapError::Range {
            address,
            region: region.index,
            offset,
            bytes,
            size: region.bytes,
        })?;
        let base = map(&**hardware, region, offset, length);
        let base = base.map_err(|source| MapError::Failed {
            address,
            region: region.index,
            offset,
            bytes,
            source: source.into(),
        })?;
        Ok(Self {
            base,
            bytes: length,
            writable: region.writable,
            _hardware: Arc::clone(hardware),
        })
    }

    /// Returns bytes of the mapping.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns the first byte, which is page-aligned. Callers stay within [`Self::bytes`], do not
    /// outlive the mapping, and uses volatile accesses.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Loads an aligned 32-bit word.
    ///
    /// # Errors
    /// [`TouchError`].
    pub fn load_u32(&self, offset: u64) -> Result<u32, TouchError> {
        let word = self.at(offset, 4, 4)?.cast::<u32>();
        // SAFETY: in range and aligned.
        Ok(unsafe { word.read_volatile() })
    }

    /// Loads an aligned 64-bit word, by one access.
    ///
    /// # Errors
    /// [`TouchError`].
    pub fn load_u64(&self, offset: u64) -> Result<u64, TouchError> {
        let word = self.at(offset, 8, 8)?.cast::<u64>();
        // SAFETY: in range and aligned.
        Ok(unsafe { word.read_volatile() })
    }

    /// Stores an aligned 32-bit word.
    ///
    /// # Errors
    /// [`TouchError`].
    pub fn store_u32(&self, offset: u64, value: u32) -> Result<(), TouchError> {
        let word = self.writable_at(offset, 4, 4)?.cast::<u32>();
        // SAFETY: in range, aligned and writable.
        unsafe { word.write_volatile(value) };
        Ok(())
    }

    /// Stores an aligned 64-bit word, by one access.
    ///
    /// # Errors
    /// [`TouchError`].
    pub fn store_u64(&self, offset: u64, value: u64) -> Result<(), TouchError> {
        let word = self.writable_at(offset, 8, 8)?.cast::<u64>();
        // SAFETY: in range, aligned and writable.
        unsafe { word.write_volatile(value) };
        Ok(())
    }

    /// Copies `into.len()` bytes out, starting at `offset`, by accesses of 8 bytes where they are
    /// aligned, else of one.
    ///
    /// # Errors
    /// [`TouchError`], and then nothing was copied.
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) -> Result<(), TouchError> {
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

    /// Copies `from` in, starting at `offset`, by accesses as in [`Self::copy_out`].
    ///
    /// # Errors
    /// [`TouchError`], and then nothing was copied.
    pub fn copy_in(&self, offset: u64, from: &[u8]) -> Result<(), TouchError> {
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

    /// Stores `value` in every byte of `[offset, offset + bytes)`.
    ///
    /// # Errors
    /// [`TouchError`], and then nothing was stored.
    pub fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<(), TouchError> {
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

    fn at(&self, offset: u64, bytes: u64, align: u64) -> Result<*mut u8, TouchError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes as u64 && offset.is_multiple_of(align) => {
                // SAFETY: the offset is within the mapping or one past its end.
                Ok(unsafe { self.base.as_ptr().add(offset as usize) })
            }
            _ => Err(self.refused(offset, bytes)),
        }
    }

    fn writable_at(&self, offset: u64, bytes: u64, align: u64) -> Result<*mut u8, TouchError> {
        if !self.writable {
            return Err(self.refused(offset, bytes));
        }
        self.at(offset, bytes, align)
    }

    fn refused(&self, offset: u64, bytes: u64) -> TouchError {
        TouchError {
            offset,
            bytes,
            size: self.bytes as u64,
        }
    }
}

impl DeviceMapping for Mapping {
    fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours; pointers from `as_ptr` must not outlive the mapping.
        if let Err(e) = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) } {
            log::error!("cannot unmap {} bytes of a device: {e}", self.bytes);
        }
    }
}

/// Maps a range that was checked.
fn map(
    hardware: &dyn Hardware,
    region: &Region,
    offset: u64,
    bytes: usize,
) -> rustix::io::Result<NonNull<u8>> {
    let right = |allowed, flag| if allowed { flag } else { ProtFlags::empty() };
    let protection =
        right(region.readable, ProtFlags::READ) | right(region.writable, ProtFlags::WRITE);
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            MapFlags::SHARED,
            hardware.file(),
            region.file_offset + offset,
        )
    }?;
    NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)
}

/// How many of `bytes` bytes come before the first aligned word, and how many whole words follow.
fn split(pointer: *const u8, bytes: usize) -> (usize, usize) {
    let head = pointer.align_offset(8).min(bytes);
    (head, (bytes - head) / 8)
}
