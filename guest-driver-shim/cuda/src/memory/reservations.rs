//! Addresses of the process that are kept from it, because the GPU uses them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use causeway_shim_linux::shim::{Attributes, Device};

use crate::error::{Answer, Code};

/// Addresses that the guard keeps at most. The device gives out the lowest first.
const GUARD_BYTES: u64 = 64 << 30;
/// Sizes and addresses of virtual memory are multiples of this, as on NVIDIA's GPUs.
pub(super) const GRANULARITY: u64 = 2 << 20;

/// Addresses that are never memory of the program's own.
pub(super) struct Guard {
    /// The beginning of the device's addresses: reserved, so that nothing of the process is there.
    low: Range<u64>,
    /// Host memory of the device. What is not allocated there cannot be touched.
    aperture: Range<u64>,
}

impl Guard {
    /// Reserves addresses for memory of the device: the first of `window`, from which the program's
    /// allocations get their addresses. Without a window, the device chooses.
    pub(super) fn new(
        device: &Device<'static>,
        attributes: &Attributes,
        window: Option<&Range<u64>>,
    ) -> Self {
        let start = window.map_or(attributes.va_base, |window| window.start);
        let bytes = match window {
            None => GUARD_BYTES.min(attributes.va_bytes / 4),
            Some(window) => GUARD_BYTES.min(window.end - window.start),
        };
        let low = match reserve(start, bytes, libc::MAP_FIXED_NOREPLACE) {
            Ok(found) if found == start => start..start + bytes,
            Ok(found) => {
                release(found, bytes);
                start..start
            }
            Err(error) => {
                log::info!(
                    "cannot keep {bytes} bytes at {start:#x} for the device, so memory of the \
                     process may have the same addresses: {error}"
                );
                start..start
            }
        };
        let aperture = device.aperture();
        let base = aperture.as_ptr().as_ptr() as u64;
        Self {
            low,
            aperture: base..base + aperture.bytes() as u64,
        }
    }

    /// Returns whether an address cannot be the program's own memory.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.low.contains(&address) || self.aperture.contains(&address)
    }
}

/// Refuses values that are not multiples of the granularity.
pub(super) fn check_multiples(values: &[u64]) -> Answer {
    let is_fine = values.iter().all(|value| value.is_multiple_of(GRANULARITY));
    is_fine.then_some(()).ok_or(Code::INVALID_VALUE)
}

/// Reserves addresses of the device: at `hint` if that is free, else in the upper half of them,
/// behind a reservation of `known` (start and bytes) or where the kernel of the host finds room.
pub(super) fn reserve_addresses(
    attributes: &Attributes,
    known: &BTreeMap<u64, u64>,
    bytes: u64,
    alignment: u64,
    hint: u64,
) -> Answer<u64> {
    let end = attributes.va_base.saturating_add(attributes.va_bytes);
    let is_inside = |start: u64| {
        let last = start.checked_add(bytes);
        start >= attributes.va_base && last.is_some_and(|last| last <= end)
    };
    if hint != 0 && hint.is_multiple_of(alignment) && is_inside(hint) {
        match reserve(hint, bytes, libc::MAP_FIXED_NOREPLACE) {
            Ok(found) if found == hint => return Ok(hint),
            Ok(found) => release(found, bytes),
            Err(_) => {}
        }
    }
    let middle = attributes.va_base + attributes.va_bytes / 2;
    let ends = known.iter().map(|(start, bytes)| start + bytes);
    for start in std::iter::once(middle).chain(ends) {
        let start = start.next_multiple_of(alignment);
        if start < middle || !is_inside(start) || known.contains_key(&start) {
            continue;
        }
        match reserve(start, bytes, libc::MAP_FIXED_NOREPLACE) {
            Ok(found) if found == start => return Ok(start),
            Ok(found) => release(found, bytes),
            Err(_) => {}
        }
    }
    let with_slack = bytes.checked_add(alignment).ok_or(Code::OUT_OF_MEMORY)?;
    let found = reserve(middle, with_slack, 0).map_err(|_| Code::OUT_OF_MEMORY)?;
    let aligned = found.next_multiple_of(alignment);
    let behind = aligned + bytes;
    release(found, aligned - found);
    release(behind, found + with_slack - behind);
    if is_inside(aligned) {
        return Ok(aligned);
    }
    release(aligned, bytes);
    Err(Code::OUT_OF_MEMORY)
}

/// Reserves addresses without rights, near `start` or as `flags` say.
fn reserve(start: u64, bytes: u64, flags: i32) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
    let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: fresh addresses; none of these flags replaces what is mapped.
    let at = unsafe { libc::mmap(start as *mut _, length, libc::PROT_NONE, flags, -1, 0) };
    match at == libc::MAP_FAILED {
        true => Err(io::Error::last_os_error()),
        false => Ok(at as u64),
    }
}

/// Gives addresses of [`reserve`] back.
pub(super) fn release(start: u64, bytes: u64) {
    if bytes != 0 {
        // SAFETY: addresses that this module has reserved, where nothing is mapped.
        unsafe { libc::munmap(start as *mut _, bytes as usize) };
    }
}
