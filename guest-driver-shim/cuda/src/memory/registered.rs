//! Memory of the program that it registers (`cuMemHostRegister`).
//!
//! A process cannot show its own pages to the device. So the library only notes registered memory,
//! and copies it through staging memory as other memory. When the program asks for the GPU's
//! address, host memory of the device replaces the pages, with the same content at the same
//! address. Only whole pages are replaced: on a part of a page, other threads may write to what is
//! beside the registered bytes. Children of `fork` share the replaced pages with the program.
//! `cuMemHostUnregister` puts private pages in their place again, and so does the end of the
//! context in which the memory was registered. The program must not write to the memory while it
//! is replaced, in either direction.

use std::io;

use causeway_shim_linux::shim::{Access, Allocation, MemoryKind};
use parking_lot::{Mutex, MutexGuard};

use super::regions::{Backing, Region};
use crate::boundary::copy_bytes;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};

/// `CU_MEMHOSTREGISTER_IOMEMORY`
const IO_MEMORY: u32 = 4;
const PAGE_BYTES: u64 = 4096;

/// Held while pages are replaced, in either direction.
static REPLACING: Mutex<()> = Mutex::new(());

/// Waits until no thread replaces pages, and keeps others from it while the result lives.
pub(super) fn replacing() -> MutexGuard<'static, ()> {
    REPLACING.lock()
}

/// Host memory of the device in the place of the program's pages.
pub(crate) struct Replaced {
    _memory: Allocation<'static>,
    start: u64,
    bytes: u64,
    /// Which file it is, as [`Line::file`], if that is known.
    file: Option<(String, String)>,
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        let end = address.checked_add(bytes as u64);
        if address == 0 || bytes == 0 || flags & !15 != 0 || end.is_none() {
            return Err(Code::INVALID_VALUE);
        }
        if flags & IO_MEMORY != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        if driver.memory.guard.contains(address) {
            return Err(Code::INVALID_VALUE);
        }
        let mut regions = driver.memory.regions.lock();
        if regions.overlaps(address, bytes as u64) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        if !is_mapped(address, bytes as u64) {
            return Err(Code::INVALID_VALUE);
        }
        regions.insert(Region {
            bytes: bytes as u64,
            gpu: None,
            host: Some(address),
            context: context.handle,
            flags,
            backing: Backing::Registered(None),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(address: u64) -> u32 {
    call_in_context(|driver, _| {
        let driver = driver.owner_at(address);
        let is_registered = |region: &Region| matches!(region.backing, Backing::Registered(_));
        let _replacing = replacing();
        let mut regions = driver.memory.regions.lock();
        let taken = regions.take(address, is_registered);
        let is_other = address == 0 || regions.find(address).is_some();
        drop(regions);
        let taken = taken.ok_or(match is_other {
            true => Code::INVALID_VALUE,
            false => Code::HOST_MEMORY_NOT_REGISTERED,
        })?;
        let drained = driver.rings.drain(driver);
        if let Backing::Registered(Some(replaced)) = taken.backing {
            replaced.end()?;
        }
        drained
    })
}

/// Returns whether the process has all pages of a range.
fn is_mapped(address: u64, bytes: u64) -> bool {
    let start = address - address % PAGE_BYTES;
    let length = (address - start + bytes) as usize;
    // SAFETY: this starts to write pages of files back, and changes no memory. It fails if a page
    // is not mapped (msync(2)).
    unsafe { libc::msync(start as *mut _, length, libc::MS_ASYNC) == 0 }
}

/// Returns the GPU's address of a registered region, which begins at `start`. Puts host memory of
/// the device in the place of its pages if that is to be done yet.
pub(super) fn show(driver: &Driver, start: u64, bytes: u64) -> Answer<u64> {
    let _replacing = replacing();
    // Another thread may have asked, or unregistered the memory, before this one had the lock.
    let now = driver
        .memory
        .regions
        .lock()
        .find(start)
        .map(|(_, region)| region.gpu);
    if let Some(gpu) = now.ok_or(Code::INVALID_VALUE)? {
        return Ok(gpu);
    }
    let replaced = Replaced::new(driver, start, bytes)?;
    let (first, memory) = (replaced.start, &replaced._memory);
    let host = driver.memory.host.lock();
    let mapping = host.map(memory, replaced.bytes, first);
    drop(host);
    let gpu = match mapping {
        Ok(mapping) => mapping.address() + (start - first),
        Err(code) => {
            replaced.undo()?;
            return Err(code);
        }
    };
    let mut regions = driver.memory.regions.lock();
    let taken = regions.take(start, |_| true).ok_or(Code::INVALID_VALUE)?;
    regions.insert(Region {
        gpu: Some(gpu),
        backing: Backing::Registered(Some(replaced)),
        ..taken
    });
    Ok(gpu)
}

impl Replaced {
    /// Puts host memory of the device in the place of the pages of a range.
    fn new(driver: &Driver, address: u64, bytes: u64) -> Answer<Self> {
        let start = address;
        if !(address | bytes).is_multiple_of(PAGE_BYTES) {
            log::info!(
                "the GPU cannot use the {bytes} bytes of registered memory at {start:#x}: register \
                 whole pages of {PAGE_BYTES} bytes"
            );
            return Err(Code::NOT_SUPPORTED);
        }
        if !is_private_memory(&maps()?, start, bytes) {
            return Err(Code::NOT_SUPPORTED);
        }
        let memory = driver.device.allocate(bytes, MemoryKind::Host);
        let memory = memory.map_err(|_| Code::OUT_OF_MEMORY)?;
        let mapping = memory.map_cpu(0, bytes, Access::ReadWrite);
        let mapping = mapping.map_err(|_| Code::OUT_OF_MEMORY)?;
        let from = mapping.window().as_ptr().as_ptr() as u64;
        copy_bytes(from, start, bytes as usize);
        // An old size of zero makes a second mapping of shared pages (mremap(2)).
        place(from, 0, bytes, start).map_err(|error| {
            log::info!("registered memory at {start:#x} has no address for the GPU: {error}");
            Code::NOT_SUPPORTED
        })?;
        Ok(Self {
            _memory: memory,
            start,
            bytes,
            file: maps().ok().and_then(|maps| file_at(&maps, start)),
        })
    }

    /// Puts private pages with the same content there again, if what is there is still the device's
    /// memory: the program may have unmapped it, or mapped something else there.
    pub(super) fn end(self) -> Answer {
        let maps = maps().ok();
        let part = maps.zip(self.file.as_ref());
        match part.map(|(maps, file)| part_of_file(&maps, self.start, self.bytes, file)) {
            Some(Part::All) => self.undo(),
            Some(Part::None) => Ok(()),
            Some(Part::Some) => {
                // The program may go on with what is left.
                std::mem::forget(self);
                Ok(())
            }
            None => {
                std::mem::forget(self);
                Err(Code::OPERATING_SYSTEM)
            }
        }
    }

    /// Puts private pages with the same content there again.
    fn undo(self) -> Answer {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let length = self.bytes as usize;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let fresh = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, -1, 0) };
        if fresh == libc::MAP_FAILED {
            // The program goes on with the device's memory, which therefore has to stay.
            std::mem::forget(self);
            return Err(Code::OUT_OF_MEMORY);
        }
        copy_bytes(fresh as u64, self.start, length);
        if place(fresh as u64, self.bytes, self.bytes, self.start).is_err() {
            std::mem::forget(self);
            return Err(Code::OPERATING_SYSTEM);
        }
        Ok(())
    }
}

/// Moves or duplicates a mapping to `to`, where it replaces what is there.
fn place(from: u64, old_bytes: u64, bytes: u64, to: u64) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let (source, target) = (from as *mut libc::c_void, to as *mut libc::c_void);
    // SAFETY: the source is a mapping of the library. The target's pages are whole pages that the
    // program has registered, or the device's memory in their place, and keep their content.
    let moved = unsafe { libc::mremap(source, old_bytes as usize, bytes as usize, flags, target) };
    match moved == libc::MAP_FAILED {
        true => Err(io::Error::last_os_error()),
        false => Ok(()),
    }
}

/// A line of proc_pid_maps(5).
struct Line<'a> {
    from: u64,
    to: u64,
    rights: &'a str,
    /// Device and inode: what file it is, for memory that is shared, too.
    file: (&'a str, &'a str),
    name: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let mut next = || words.next().unwrap_or_default();
        let (rights, _offset) = (next(), next());
        Some(Self {
            from: u64::from_str_radix(from, 16).ok()?,
            to: u64::from_str_radix(to, 16).ok()?,
            rights,
            file: (next(), next()),
            name: next(),
        })
    }

    fn is_shared(&self) -> bool {
        self.rights.ends_with('s')
    }
}

/// Returns whether a range is private memory without a file: memory that others share would be
/// shared no more. Stacks grow, so they are left alone.
fn is_private_memory(maps: &str, start: u64, bytes: u64) -> bool {
    let mut at = start;
    for line in maps.lines() {
        let Some(line) = Line::parse(line) else {
            return false;
        };
        if line.to <= at {
            continue;
        }
        let is_anonymous = matches!(line.name, "" | "[heap]") || line.name.starts_with("[anon");
        if line.from > at || line.rights != "rw-p" || !is_anonymous {
            return false;
        }
        at = line.to;
        if at >= start + bytes {
            return true;
        }
    }
    false
}

/// How much of a range is a file.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    All,
    Some,
    None,
}

/// Returns the file of which an address is shared memory.
fn file_at(maps: &str, address: u64) -> Option<(String, String)> {
    let mut lines = maps.lines().filter_map(Line::parse);
    let line = lines.find(|line| (line.from..line.to).contains(&address) && line.is_shared())?;
    Some((line.file.0.to_owned(), line.file.1.to_owned()))
}

/// Returns how much of a range is shared memory that is the file. Of memory that the program has
/// protected since, all is only some.
fn part_of_file(maps: &str, start: u64, bytes: u64, file: &(String, String)) -> Part {
    let lines = maps.lines().filter_map(Line::parse);
    let lines = lines.filter(|line| line.is_shared() && line.file == (&file.0, &file.1));
    let (mut mapped, mut writable) = (0, 0);
    for line in lines {
        let (from, to) = (line.from.max(start), line.to.min(start + bytes));
        let piece = to.saturating_sub(from);
        mapped += piece;
        writable += if line.rights == "rw-s" { piece } else { 0 };
    }
    match (mapped, writable) {
        (0, _) => Part::None,
        (_, all) if all == bytes => Part::All,
        _ => Part::Some,
    }
}

/// Returns proc_pid_maps(5) of this process. Names of files can be any bytes.
fn maps() -> Answer<String> {
    let maps = std::fs::read("/proc/self/maps").map_err(|_| Code::OPERATING_SYSTEM)?;
    Ok(String::from_utf8_lossy(&maps).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0                                  [heap]
3000-4000 rw-p 00000000 00:00 0 
5000-6000 rw-s 00000000 00:01 9                                  /memfd:x (deleted)
6000-7000 r--p 00000000 00:00 0 
7000-8000 rw-p 00000000 00:00 0                                  [stack]
8000-9000 rw-p 00000000 08:01 77                                 /some/file
";

    #[test]
    fn only_private_memory_without_a_file_is_replaced() {
        assert!(is_private_memory(MAPS, 0x1000, 0x2000));
        assert!(is_private_memory(MAPS, 0x2000, 0x2000));
        for (start, bytes) in [
            (0x2000, 0x3000),
            (0x4000, 0x1000),
            (0x5000, 0x1000),
            (0x6000, 0x1000),
            (0x7000, 0x1000),
            (0x8000, 0x1000),
            (0xa000, 0x1000),
        ] {
            assert!(!is_private_memory(MAPS, start, bytes), "{start:#x}");
        }
    }

    #[test]
    fn what_is_left_of_replaced_memory_is_found() {
        let own = file_at(MAPS, 0x5fff).expect("it is shared");
        let part = |start, bytes| part_of_file(MAPS, start, bytes, &own);
        assert_eq!(part(0x5000, 0x1000), Part::All);
        assert_eq!(part(0x4000, 0x2000), Part::Some);
        assert_eq!(part(0x6000, 0x1000), Part::None);
        let other = (own.0.clone(), "8".to_owned());
        assert_eq!(part_of_file(MAPS, 0x5000, 0x1000, &other), Part::None);
        // Private memory of a file.
        assert_eq!(file_at(MAPS, 0x8000), None);
        let protected = MAPS.replace("rw-s", "r--s");
        assert_eq!(part_of_file(&protected, 0x5000, 0x1000, &own), Part::Some);
    }

    #[test]
    fn pages_that_the_process_lacks_are_found() {
        let bytes = [0_u8; 100];
        let start = bytes.as_ptr() as u64;
        assert!(is_mapped(start, 100));
        assert!(!is_mapped(start, 1 << 50));
        assert!(!is_mapped(1 << 44, 1));
    }

    #[test]
    fn shared_pages_take_the_place_of_private_ones() {
        let map = |flags| {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a fresh mapping at an address of the kernel's choice.
            let at = unsafe {
                let flags = flags | libc::MAP_ANONYMOUS;
                libc::mmap(std::ptr::null_mut(), 8192, rights, flags, -1, 0)
            };
            assert_ne!(at, libc::MAP_FAILED);
            at as u64
        };
        let (shared, private) = (map(libc::MAP_SHARED), map(libc::MAP_PRIVATE));
        let mut seen = [0_u8; 3];
        let own = |bytes: &[u8; 3]| std::ptr::from_ref(bytes) as u64;
        place(shared, 0, 8192, private).unwrap();
        copy_bytes(private + 5000, own(b"abc"), 3);
        copy_bytes(std::ptr::from_mut(&mut seen) as u64, shared + 5000, 3);
        assert_eq!(&seen, b"abc");
    }
}
