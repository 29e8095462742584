//! Ranges of a region in this process.
#![allow(unsafe_code)] // Maps memory of a device, and reaches it through raw pointers.

use std::ptr::NonNull;
use std::sync::Arc;

use causeway_memory::{DeviceMapping, PAGE_BYTES};
use rustix::mm::{MapFlags, ProtFlags};

use crate::Address;
use crate::hardware::Hardware;
use crate::region::{Region, RegionIndex};

/// Why a range of a region cannot be mapped into this process.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The function has no such region.
    #[error("device {address} has no {region}")]
    Absent {
        /// PCI address of the device.
        address: Address,
        /// Region of the device.
        region: RegionIndex,
    },
    /// The range cannot be mapped, or is not made of whole pages.
    #[error(
        "cannot map {bytes:#x} bytes at offset {offset:#x} of {region} of device {address}, which \
         has {size:#x} bytes: choose whole pages of a range that the Linux kernel lets processes \
         map"
    )]
    Range {
        /// PCI address of the device.
        address: Address,
        /// Region of the device.
        region: RegionIndex,
        /// Offset of the first byte in the region.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// Size of the region in bytes.
        size: u64,
    },
    /// The kernel refused the mapping.
    #[error("cannot map {bytes:#x} bytes at offset {offset:#x} of {region} of device {address}")]
    Failed {
        /// PCI address of the device.
        address: Address,
        /// Region of the device.
        region: RegionIndex,
        /// Offset of the first byte in the region.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// The error for an access that is outside the mapping or not aligned, or that writes to a
/// read-only mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid access of {bytes} bytes at offset {offset:#x} of mapped device memory: it is not \
     within the {size:#x} bytes that are mapped, or not aligned, or writes to a read-only mapping"
)]
pub struct TouchError {
    /// Offset in the mapping at which the refused access begins.
    pub offset: u64,
    /// Length of the access in bytes.
    pub bytes: u64,
    /// Size of the mapping in bytes.
    pub size: u64,
}

/// A range of a device's region, such as memory or registers, that is mapped into this process.
/// Dropping it unmaps the range; until then, the device stays open.
///
/// The device and guests may write the memory at any time, so that only volatile accesses are
/// allowed. While the device is powered down, or its command register disables memory accesses, an
/// access to the mapping raises SIGBUS. So code must not access the mapping while a guest can write
/// that register.
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

    /// Returns the size of the mapping in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns the address of the first byte, which is page-aligned. Callers may only access the
    /// [`Self::bytes`] bytes of the mapping while it lives, by volatile accesses.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Loads the 64-bit word at `offset` of the mapping by one access.
    ///
    /// # Errors
    /// [`TouchError`] if the word is not within the mapping or not aligned.
    pub fn load_u64(&self, offset: u64) -> Result<u64, TouchError> {
        let word = self.at(offset, 8, 8)?.cast::<u64>();
        // SAFETY: in range and aligned.
        Ok(unsafe { word.read_volatile() })
    }

    /// Stores `value` as the 64-bit word at `offset` of the mapping by one access.
    ///
    /// # Errors
    /// [`TouchError`] if the word is not within the mapping or not aligned, or the mapping is
    /// read-only.
    pub fn store_u64(&self, offset: u64, value: u64) -> Result<(), TouchError> {
        let word = self.writable_at(offset, 8, 8)?.cast::<u64>();
        // SAFETY: in range, aligned and writable.
        unsafe { word.write_volatile(value) };
        Ok(())
    }

    /// Returns the address of the `bytes` bytes at `offset` of the mapping, if `offset` is a
    /// multiple of `align`. Callers may only access these bytes while the mapping lives, by
    /// volatile accesses, and must not write a read-only mapping.
    ///
    /// # Errors
    /// [`TouchError`] if the bytes are not within the mapping, or `offset` is not a multiple of
    /// `align`.
    pub fn at(&self, offset: u64, bytes: u64, align: u64) -> Result<*mut u8, TouchError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes as u64 && offset.is_multiple_of(align) => {
                // SAFETY: the offset is within the mapping or one past its end.
                Ok(unsafe { self.base.as_ptr().add(offset as usize) })
            }
            _ => Err(self.refused(offset, bytes)),
        }
    }

    /// Returns the same address as [`Self::at`], for stores, if the mapping is writable.
    ///
    /// # Errors
    /// [`TouchError`] if the bytes are not within the mapping or not aligned, or the mapping is
    /// read-only.
    pub fn writable_at(&self, offset: u64, bytes: u64, align: u64) -> Result<*mut u8, TouchError> {
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
            log::error!(
                "cannot unmap {bytes} bytes of a PCI device's memory, which stay mapped until this \
                 process ends: {e}",
                bytes = self.bytes
            );
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
