//! Host memory that devices reach: registered, or allocated for that. Pages stay as long as work
//! uses them, whatever the client does to its own mapping meanwhile.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use causeway_memory::{Mapping, PAGE_BYTES};
use causeway_protocol::Access;
use causeway_software::Software;

use crate::driver::Driver;
use crate::error::{Answer, Code};

/// All ranges, by their first page.
#[derive(Default)]
pub(crate) struct HostRanges(BTreeMap<u64, HostRange>);

/// A range in whole pages.
pub(crate) struct HostRange {
    pub(crate) bytes: u64,
    /// Where devices see it.
    pub(crate) device_start: u64,
    /// Made by `cuMemHostRegister`, not by `cuMemHostAlloc`.
    pub(crate) registered: bool,
    pub(crate) flags: u32,
    view: Arc<View>,
}

/// What the engine reads and writes.
pub(crate) struct View {
    base: NonNull<u8>,
    bytes: u64,
    /// A second mapping of the same pages, which is ours. Else it is the client's own mapping.
    is_alias: bool,
}

// SAFETY: an address range; accesses through it are volatile or atomic, by the engine.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl HostRanges {
    /// The range that holds an address of the host.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &HostRange)> {
        let (start, range) = self.0.range(..=address).next_back()?;
        (address - start < range.bytes).then_some((*start, range))
    }

    /// The range that holds an address of the device.
    pub(crate) fn find_on_device(&self, address: u64) -> Option<(u64, &HostRange)> {
        let mut all = self.0.iter();
        all.find(|(_, range)| {
            address >= range.device_start && address - range.device_start < range.bytes
        })
        .map(|(start, range)| (*start, range))
    }

    /// Whether any page of `[start, end)` is in a range already.
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        let before = self.0.range(..end).next_back();
        before.is_some_and(|(at, range)| at + range.bytes > start)
    }

    /// Bytes that are registered.
    pub(crate) fn registered_bytes(&self) -> u64 {
        let registered = self.0.values().filter(|range| range.registered);
        registered.map(|range| range.bytes).sum()
    }

    /// Notes a range that the devices see already.
    pub(crate) fn insert(&mut self, start: u64, range: HostRange) {
        self.0.insert(start, range);
    }

    /// Takes out the range that begins at a page, if it is of that sort.
    pub(crate) fn remove(&mut self, start: u64, registered: bool) -> Option<HostRange> {
        if self.0.get(&start)?.registered != registered {
            return None;
        }
        self.0.remove(&start)
    }
}

impl HostRange {
    /// Shows whole pages to all devices.
    pub(crate) fn show(
        driver: &Driver,
        (start, bytes): (u64, u64),
        device_start: u64,
        access: Access,
        (registered, flags): (bool, u32),
    ) -> Answer<Self> {
        let view = Arc::new(View::of(start, bytes, access)?);
        for (index, device) in driver.devices.iter().enumerate() {
            let mapping = view.mapping(access);
            let memory = Software::wrap(mapping, Box::new(Arc::clone(&view)));
            if device
                .space
                .map_at(device_start, &memory, 0, bytes, access)
                .is_err()
            {
                for device in &driver.devices[..index] {
                    let _ = device.space.unmap_at(device_start);
                }
                return Err(Code::INVALID_VALUE);
            }
        }
        Ok(Self {
            bytes,
            device_start,
            registered,
            flags,
            view,
        })
    }

    /// Takes it away from the devices. Where the pages are held through the client's own mapping,
    /// this returns only when no work uses them any more.
    pub(crate) fn withdraw(self, driver: &Driver) {
        for device in &driver.devices {
            let _ = device.space.unmap_at(self.device_start);
        }
        while !self.view.is_alias && Arc::strong_count(&self.view) > 1 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl View {
    /// A view of pages of the client that are mapped with these rights.
    fn of(start: u64, bytes: u64, access: Access) -> Answer<Self> {
        let areas = areas(start, bytes).map_err(|_| Code::OPERATING_SYSTEM)?;
        let covered = areas.iter().map(|area| area.bytes).sum::<u64>() == bytes;
        let allowed = areas
            .iter()
            .all(|area| area.readable && (area.writable || access == Access::Read));
        if !covered || !allowed {
            return Err(Code::INVALID_VALUE);
        }
        let alias = areas
            .iter()
            .all(|area| area.shared)
            .then(|| alias(bytes, &areas).ok())
            .flatten();
        let base = NonNull::new(alias.unwrap_or(start) as *mut u8);
        Ok(Self {
            base: base.ok_or(Code::INVALID_VALUE)?,
            bytes,
            is_alias: alias.is_some(),
        })
    }

    fn mapping(&self, access: Access) -> Mapping {
        // SAFETY: an alias is unmapped when the last owner of the view is dropped; the client's own
        // mapping is waited for in `withdraw`, before the client may unmap it. Only clients make
        // references to their memory.
        unsafe { Mapping::borrow(self.base, self.bytes as usize, access) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.is_alias {
            // SAFETY: mapped by `alias`, used by nobody any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes as usize) };
        }
    }
}

/// A part of the process's address space with the same properties.
struct Area {
    start: u64,
    bytes: u64,
    readable: bool,
    writable: bool,
    shared: bool,
}

impl Area {
    /// The part of it in a range.
    fn within(self, start: u64, end: u64) -> Option<Self> {
        let from = self.start.max(start);
        let to = (self.start + self.bytes).min(end);
        (from < to).then(|| Self {
            start: from,
            bytes: to - from,
            ..self
        })
    }
}

/// What is mapped in a range (proc_pid_maps(5)), in ascending order. Reads no further than it must:
/// new mappings come first, and a process may have tens of thousands behind them.
fn areas(start: u64, bytes: u64) -> io::Result<Vec<Area>> {
    let end = start + bytes;
    let mut maps = BufReader::new(File::open("/proc/self/maps")?);
    let mut found = Vec::new();
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line)? != 0 {
        match area(&line) {
            Some(area) if area.start >= end => break,
            Some(area) => found.extend(area.within(start, end)),
            None => {}
        }
        line.clear();
    }
    Ok(found)
}

/// One line of the file; the path at its end may be no text.
fn area(line: &[u8]) -> Option<Area> {
    let mut words = line.split(|byte| *byte == b' ');
    let (from, to) = str::from_utf8(words.next()?).ok()?.split_once('-')?;
    let from = u64::from_str_radix(from, 16).ok()?;
    let to = u64::from_str_radix(to, 16).ok()?;
    let rights = words.next()?;
    Some(Area {
        start: from,
        bytes: to.checked_sub(from)?,
        readable: rights.first() == Some(&b'r'),
        writable: rights.get(1) == Some(&b'w'),
        shared: rights.get(3) == Some(&b's'),
    })
}

/// Maps the pages of shared areas a second time, one behind the other (mremap(2): an old size of
/// zero).
fn alias(bytes: u64, areas: &[Area]) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (none, length) = (std::ptr::null_mut(), bytes as usize);
    // SAFETY: fresh addresses of the kernel's choice.
    let base = unsafe { libc::mmap(none, length, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut at = base as u64;
    for area in areas {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (from, length) = (area.start as *mut _, area.bytes as usize);
        // SAFETY: the source stays as it is; the target is a part of what was just reserved.
        let moved = unsafe { libc::mremap(from, 0, length, flags, at as *mut libc::c_void) };
        if moved == libc::MAP_FAILED {
            let e = io::Error::last_os_error();
            // SAFETY: what was just reserved, known to nobody.
            unsafe { libc::munmap(base, bytes as usize) };
            return Err(e);
        }
        at += area.bytes;
    }
    Ok(base as u64)
}

/// The pages that a range of bytes touches.
pub(crate) fn pages(address: u64, bytes: u64) -> Answer<(u64, u64)> {
    let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
    let start = address & !(PAGE_BYTES - 1);
    let end = end
        .checked_next_multiple_of(PAGE_BYTES)
        .ok_or(Code::INVALID_VALUE)?;
    Ok((start, end - start))
}
