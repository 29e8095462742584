//! Memory that both sides see, reached by volatile and atomic accesses only.
//!
//! This is the one module of the crate that dereferences raw pointers. Everything else goes through
//! [`Window`], which checks ranges; [`RingWindow`] is its unchecked-by-construction sibling for the
//! submission path, where the index is masked instead.
#![allow(unsafe_code)] // Volatile access to device memory has no safe form.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use causeway_protocol::packet::UNIT_BYTES;
use causeway_protocol::ring::{self, Positions};

use crate::producer::RingMemory;

/// An access that is not inside a [`Window`], or not aligned to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid access of {bytes} bytes at offset {offset:#x} of mapped device memory: it must lie \
     within the {window_bytes:#x} bytes that are mapped and be aligned to its size"
)]
pub struct AccessError {
    /// Offset of the access in the window, in bytes.
    pub offset: usize,
    /// Length of the access in bytes.
    pub bytes: usize,
    /// Size of the window in bytes.
    pub window_bytes: usize,
}

/// A range of memory that the device, the host or other CPUs may change at any time.
///
/// A window is a pointer and a length, so it can be copied. The code that creates it guarantees
/// that the memory stays accessible as long as the window is used.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a window gives volatile and atomic access only, which any thread may do; what is read is
// never assumed to be stable, and no reference into the memory is ever made from plain data.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

macro_rules! typed_access {
    ($($load:ident $store:ident $type:ty;)*) => {$(
        #[doc = concat!("Loads a `", stringify!($type), "` at `offset` bytes.")]
        ///
        /// # Errors
        /// [`AccessError`] if the value's bytes are not all inside the window, or `offset` is not a
        /// multiple of the value's size.
        #[inline]
        pub fn $load(&self, offset: usize) -> Result<$type, AccessError> {
            let pointer = self.checked::<$type>(offset)?;
            // SAFETY: `checked` has found the access aligned and inside the range that the creator
            // vouched for.
            Ok(unsafe { pointer.read_volatile() })
        }

        #[doc = concat!("Stores a `", stringify!($type), "` at `offset` bytes.")]
        ///
        /// # Errors
        /// [`AccessError`] if the value's bytes are not all inside the window, or `offset` is not a
        /// multiple of the value's size.
        #[inline]
        pub fn $store(&self, offset: usize, value: $type) -> Result<(), AccessError> {
            let pointer = self.checked::<$type>(offset)?;
            // SAFETY: as for the load.
            unsafe { pointer.write_volatile(value) };
            Ok(())
        }
    )*};
}

impl Window {
    /// Returns a window over the `bytes` bytes from `base`.
    ///
    /// # Safety
    /// Every byte of the range must stay readable and writable for as long as the window or a copy
    /// of it is used. (A part of the aperture where nothing is mapped counts as readable and
    /// writable: it reads all-ones.) Meanwhile no code may use a Rust reference to any part of the
    /// range.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        Self { base, bytes }
    }

    /// Returns the size of the window in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a pointer to the first byte, for hand-written loops. Accesses through the pointer
    /// must follow the rules of [`Self::new`].
    #[inline]
    #[must_use]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns a window over the `bytes` bytes at `offset` of this window.
    ///
    /// # Errors
    /// [`AccessError`] if the part is not inside this window.
    pub fn part(&self, offset: usize, bytes: usize) -> Result<Self, AccessError> {
        self.check(offset, bytes)?;
        // SAFETY: `check` has found `offset` to be at most the size of the range.
        let base = unsafe { self.base.add(offset) };
        Ok(Self { base, bytes })
    }

    typed_access! {
        load_u8 store_u8 u8;
        load_u16 store_u16 u16;
        load_u32 store_u32 u32;
        load_u64 store_u64 u64;
    }

    /// Loads the `u64` at `offset` bytes with acquire ordering.
    ///
    /// # Errors
    /// [`AccessError`] if the 8 bytes are not inside the window, or `offset` is not a multiple of
    /// 8.
    #[inline]
    pub fn load_acquire(&self, offset: usize) -> Result<u64, AccessError> {
        let pointer = self.checked::<u64>(offset)?;
        // SAFETY: aligned and inside; only ever accessed atomically or volatile.
        Ok(unsafe { AtomicU64::from_ptr(pointer) }.load(Ordering::Acquire))
    }

    /// Stores a `u64` at `offset` bytes with release ordering.
    ///
    /// # Errors
    /// [`AccessError`] if the 8 bytes are not inside the window, or `offset` is not a multiple of
    /// 8.
    #[inline]
    pub fn store_release(&self, offset: usize, value: u64) -> Result<(), AccessError> {
        let pointer = self.checked::<u64>(offset)?;
        // SAFETY: as for the load.
        unsafe { AtomicU64::from_ptr(pointer) }.store(value, Ordering::Release);
        Ok(())
    }

    /// Copies the bytes `from` into the window, beginning at `offset`.
    ///
    /// # Errors
    /// [`AccessError`] if they do not fit; then nothing is written.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), AccessError> {
        let target = self.part(offset, from.len())?.base.as_ptr();
        let (words, tail) = from.as_chunks::<8>();
        for (i, word) in words.iter().enumerate() {
            // SAFETY: `part` has checked the whole range. x86 stores unaligned words as well; the
            // pointer type says so.
            unsafe {
                target
                    .add(i * 8)
                    .cast::<Unaligned>()
                    .write_volatile(Unaligned(u64::from_le_bytes(*word)));
            };
        }
        for (i, byte) in tail.iter().enumerate() {
            // SAFETY: as above.
            unsafe { target.add(words.len() * 8 + i).write_volatile(*byte) };
        }
        Ok(())
    }

    /// Fills `into` with bytes from the window, beginning at `offset`.
    ///
    /// # Errors
    /// [`AccessError`] if the range is not inside the window; then `into` is unchanged.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), AccessError> {
        let source = self.part(offset, into.len())?.base.as_ptr();
        let (words, tail) = into.as_chunks_mut::<8>();
        let word_bytes = words.len() * 8;
        for (i, word) in words.iter_mut().enumerate() {
            // SAFETY: `part` has checked the whole range.
            *word = unsafe { source.add(i * 8).cast::<Unaligned>().read_volatile() }
                .0
                .to_le_bytes();
        }
        for (i, byte) in tail.iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = unsafe { source.add(word_bytes + i).read_volatile() };
        }
        Ok(())
    }

    /// Sets `bytes` bytes from `offset` to zero.
    ///
    /// # Errors
    /// [`AccessError`] if the range is not inside the window; then nothing is written.
    pub fn zero(&self, offset: usize, bytes: usize) -> Result<(), AccessError> {
        let part = self.part(offset, bytes)?;
        for i in 0..bytes {
            // SAFETY: `part` has checked the whole range.
            unsafe { part.base.as_ptr().add(i).write_volatile(0) };
        }
        Ok(())
    }

    #[inline]
    fn check(&self, offset: usize, bytes: usize) -> Result<(), AccessError> {
        match self.bytes.checked_sub(bytes) {
            Some(last) if offset <= last => Ok(()),
            _ => Err(self.outside(offset, bytes)),
        }
    }

    #[inline]
    fn checked<V>(&self, offset: usize) -> Result<*mut V, AccessError> {
        self.check(offset, size_of::<V>())?;
        // SAFETY: `check` has found `offset` inside the range.
        let pointer = unsafe { self.base.as_ptr().add(offset) }.cast::<V>();
        if pointer.is_aligned() {
            Ok(pointer)
        } else {
            Err(self.outside(offset, size_of::<V>()))
        }
    }

    #[cold]
    fn outside(&self, offset: usize, bytes: usize) -> AccessError {
        AccessError {
            offset,
            bytes,
            window_bytes: self.bytes,
        }
    }
}

/// A word at any address.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Unaligned(u64);

/// How many units ahead of the one that is written the processor is asked for: two short launches.
const CLAIMED_AHEAD: u64 = 4;

/// The memory of a command buffer, mapped for the guest's CPU: a header page and the units of the
/// ring.
#[derive(Clone, Copy, Debug)]
pub struct RingWindow {
    header: NonNull<u8>,
    units: NonNull<u8>,
    mask: u64,
}

// SAFETY: volatile and atomic access only, as for `Window`.
unsafe impl Send for RingWindow {}

impl RingWindow {
    /// Returns the command buffer whose memory is `window`. Returns `None` if the window is not
    /// aligned to 8 bytes, or its size is not that of a header page and a ring.
    #[must_use]
    pub fn new(window: Window) -> Option<Self> {
        let capacity = ring::capacity_units(window.bytes as u64)?;
        let units = window.part(ring::HEADER_BYTES as usize, 0).ok()?.base;
        let header = window.base;
        header.cast::<u64>().is_aligned().then_some(Self {
            header,
            units,
            mask: capacity - 1,
        })
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset < ring::HEADER_BYTES as usize && offset.is_multiple_of(8));
        // SAFETY: the constants of the protocol lie, aligned, inside the header page, which `new`
        // found to be there and aligned; the word is only ever accessed atomically.
        unsafe { AtomicU64::from_ptr(self.header.as_ptr().add(offset).cast()) }
    }

    /// Returns the address of the unit at `position`, modulo the capacity.
    #[inline]
    fn unit(&self, position: u64) -> *mut u64 {
        let index = (position & self.mask) as usize;
        // SAFETY: the mask keeps `index` below the capacity for which `new` found room behind the
        // header; units are a multiple of 8 bytes behind an aligned base.
        unsafe { self.units.as_ptr().add(index * UNIT_BYTES) }.cast()
    }

    /// Asks the processor for the unit at `position`, which is written soon: the device has read it
    /// last, and another processor has it.
    #[inline]
    fn claim(&self, position: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint that accesses nothing; processors that do not know it ignore it.
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) self.unit(position),
                options(readonly, nostack, preserves_flags)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = position;
    }
}

impl Positions for RingWindow {
    #[inline]
    fn producer(&self) -> u64 {
        self.word(ring::PRODUCER).load(Ordering::Acquire)
    }
    #[inline]
    fn set_producer(&self, position: u64) {
        self.word(ring::PRODUCER).store(position, Ordering::Release);
    }
    #[inline]
    fn wake(&self) -> u64 {
        self.word(ring::WAKE).load(Ordering::Relaxed)
    }
    #[inline]
    fn set_wake(&self, position: u64) {
        self.word(ring::WAKE).store(position, Ordering::Relaxed);
    }
    #[inline]
    fn full_fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl RingMemory for RingWindow {
    #[inline]
    fn capacity(&self) -> u64 {
        self.mask + 1
    }
    #[inline]
    fn consumer(&self) -> u64 {
        self.word(ring::CONSUMER).load(Ordering::Acquire)
    }
    #[inline]
    fn fault_status(&self) -> u64 {
        self.word(ring::FAULT_STATUS).load(Ordering::Acquire)
    }
    #[inline]
    fn fault_position(&self) -> u64 {
        self.word(ring::FAULT_POSITION).load(Ordering::Relaxed)
    }
    #[inline]
    fn store_unit(&self, position: u64, unit: &[u64; UNIT_BYTES / 8]) {
        let target = self.unit(position);
        self.claim(position.wrapping_add(CLAIMED_AHEAD));
        for (i, word) in unit.iter().enumerate() {
            // SAFETY: a unit has as many words; it is aligned, and only ever accessed volatile.
            unsafe { target.add(i).write_volatile(*word) };
        }
    }
    #[inline]
    fn store_head(&self, position: u64, head: u64) {
        // SAFETY: as for `store_unit`.
        unsafe { self.unit(position).write_volatile(head) };
    }
}
