//! Physical memory: what `cuMemCreate` and `cuMemAlloc` get. A memory file, so that other processes
//! can have it too.
//!
//! Memory comes with garbage in it, and what was freed comes back as it was: clients must scrub.
//!
//! A Vulkan driver for CPUs takes such a file for its own if it begins with its [header](Header):
//! so memory of the stand-in can be shown to CPUs in the same way as that of a GPU.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use causeway_memory::Mapping;
use causeway_protocol::Access;

use crate::driver::{Charge, lock};
use crate::fabric::{self, Handle, Named};

/// Bytes of freed memory that are kept to be handed out again.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// How the files are named, which is how importers know them.
const NAME: &str = "causeway-standin-memory";
/// Where memory begins in a file with a header: behind its page.
const HEADER_BYTES: u64 = 4096;

/// By what a Vulkan driver knows a memory file for its own (Mesa, `src/util/os_memory_fd.c`,
/// `struct memory_header`).
pub(crate) type Header = [u8; 16];

/// Where memory was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A device.
    Device(usize),
    /// The host, at a NUMA node.
    HostNuma(i32),
}

/// What was asked for, and is told again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) place: Place,
    /// Bit set of handle types; 1 is the POSIX file descriptor.
    pub(crate) handle_types: u32,
    /// `allocFlags`, as the caller gave them.
    pub(crate) flags: u64,
}

/// Physical memory, mapped in this process where only the engine looks.
#[derive(Debug)]
pub(crate) struct Physical {
    memory: Option<Memory>,
    pub(crate) bytes: u64,
    pub(crate) properties: Properties,
    /// Handles to it that have not been released; it may live on in mappings and in work.
    pub(crate) references: AtomicUsize,
    shared: AtomicBool,
    /// Another process created it: as on an H200, it cannot be exported again.
    pub(crate) imported: bool,
    /// Its name on the fabric, if it was made to have one.
    named: Option<Named>,
    _charge: Option<Charge>,
}

/// A file and the view of it.
#[derive(Debug)]
struct Memory {
    file: File,
    /// Where it begins in the file.
    start: u64,
    base: NonNull<u8>,
    bytes: u64,
}

// SAFETY: an address range; accesses through it are volatile or atomic, by whoever has a `Mapping`
// of it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

static KEPT: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

impl Physical {
    /// Memory with garbage in it, whose file has a header if one is given.
    pub(crate) fn create(
        bytes: u64,
        properties: Properties,
        header: Option<Header>,
        charge: Option<Charge>,
    ) -> io::Result<Self> {
        let memory = match kept(bytes) {
            Some(memory) => memory,
            None => Memory::fresh(bytes, properties, header)?,
        };
        Ok(Self::of(memory, properties, charge))
    }

    /// Memory as [`Self::create`] makes it, whose handle finds it in `folder`.
    pub(crate) fn create_for_fabric(
        folder: &Path,
        bytes: u64,
        properties: Properties,
        header: Option<Header>,
        charge: Option<Charge>,
    ) -> io::Result<Self> {
        let name = name(properties, header);
        let (file, named) = Named::create(folder, &name)?;
        let memory = Memory::in_file(file, bytes, header)?;
        let mut physical = Self::of(memory, properties, charge);
        physical.named = Some(named);
        // Others find it at any time, so its content is never handed out again.
        physical.shared.store(true, Ordering::Relaxed);
        Ok(physical)
    }

    /// Memory that has a fabric handle; `None` if none has it now.
    pub(crate) fn import_fabric(folder: &Path, handle: &Handle) -> Option<Self> {
        Self::import_file(fabric::open(folder, handle)?)
    }

    /// The handle that finds this memory; `None` if it was not made to have one.
    pub(crate) fn fabric_handle(&self) -> Option<Handle> {
        self.named.as_ref().map(Named::handle)
    }

    /// Memory that another process, or this one, has exported; `None` if the file is none of ours.
    pub(crate) fn import(descriptor: i32) -> Option<Self> {
        // SAFETY: duplicates whatever descriptor this is, or fails.
        let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return None;
        }
        // SAFETY: fresh from the kernel, owned by nobody else.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(copy) });
        Self::import_file(file)
    }

    fn import_file(file: File) -> Option<Self> {
        let (properties, start) = described(&file)?;
        let bytes = file.metadata().ok()?.len().checked_sub(start)?;
        let memory = Memory::map(file, start, bytes).ok()?;
        let mut physical = Self::of(memory, properties, None);
        physical.imported = true;
        physical.shared.store(true, Ordering::Relaxed);
        Some(physical)
    }

    fn of(memory: Memory, properties: Properties, charge: Option<Charge>) -> Self {
        Self {
            bytes: memory.bytes,
            memory: Some(memory),
            properties,
            references: AtomicUsize::new(1),
            shared: AtomicBool::new(false),
            imported: false,
            named: None,
            _charge: charge,
        }
    }

    /// A descriptor for others. From now on the content may be theirs, so it is never handed out
    /// again.
    pub(crate) fn export(&self) -> io::Result<OwnedFd> {
        self.shared.store(true, Ordering::Relaxed);
        Ok(OwnedFd::from(self.memory().file.try_clone()?))
    }

    /// A view for the engine of the first `bytes` bytes, to be dropped before this memory.
    pub(crate) fn view(&self, bytes: u64) -> Mapping {
        debug_assert!(bytes <= self.bytes);
        let base = self.memory().base;
        // SAFETY: the file stays mapped as long as `self` lives, which the caller keeps; nothing
        // makes references to it.
        unsafe { Mapping::borrow(base, bytes as usize, Access::ReadWrite) }
    }

    /// Makes the first `bytes` bytes accessible to the host at an address of a reservation.
    pub(crate) fn place(&self, address: u64, bytes: u64, access: Access) -> io::Result<()> {
        let rights = match access {
            Access::None => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let Memory { file, start, .. } = self.memory();
        let (file, start) = (file.as_raw_fd(), start.cast_signed());
        let length = bytes as usize;
        // SAFETY: replaces a part of a reservation, which nobody reaches otherwise.
        let at = unsafe { libc::mmap(address as *mut _, length, rights, flags, file, start) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("memory is taken out by drop")
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        if self.shared.load(Ordering::Relaxed) || memory.bytes > KEPT_BYTES_MAX {
            return;
        }
        let mut kept = lock(&KEPT);
        kept.push(memory);
        let mut sum: u64 = kept.iter().map(|memory| memory.bytes).sum();
        // What was freed first goes first: who frees and allocates the same size again gets the
        // same memory.
        while sum > KEPT_BYTES_MAX {
            sum -= kept.remove(0).bytes;
        }
    }
}

/// Freed memory of the same size, with what its last owner left.
fn kept(bytes: u64) -> Option<Memory> {
    let mut kept = lock(&KEPT);
    let index = kept.iter().position(|memory| memory.bytes == bytes)?;
    Some(kept.remove(index))
}

impl Memory {
    fn fresh(bytes: u64, properties: Properties, header: Option<Header>) -> io::Result<Self> {
        let name = name(properties, header) + "\0";
        let open = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends in NUL.
        let descriptor = unsafe { libc::memfd_create(name.as_ptr().cast(), open) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh from the kernel, owned by nobody else.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        Self::in_file(file, bytes, header)
    }

    /// Memory with garbage in it, in a file that is empty.
    fn in_file(file: File, bytes: u64, header: Option<Header>) -> io::Result<Self> {
        let start = header.map_or(0, |_| HEADER_BYTES);
        file.set_len(start + bytes)?;
        if let Some(header) = header {
            file.write_all_at(&(start + bytes).to_ne_bytes(), 0)?;
            file.write_all_at(&start.to_ne_bytes(), 8)?;
            file.write_all_at(&header, 16)?;
            // Again before what follows: whoever frees it has only that address.
            file.write_all_at(&start.to_ne_bytes(), start - 8)?;
        }
        let memory = Self::map(file, start, bytes)?;
        memory.spoil();
        Ok(memory)
    }

    /// A view of `bytes` bytes from `start` of the file.
    fn map(file: File, start: u64, bytes: u64) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let (none, length) = (std::ptr::null_mut(), bytes as usize);
        let (descriptor, offset) = (file.as_raw_fd(), start.cast_signed());
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(none, length, rights, flags, descriptor, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            file,
            start,
            base,
            bytes,
        })
    }

    /// Fills fresh memory with what no client can take for its own, another pattern each time.
    fn spoil(&self) {
        static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
        let mut word = SEED.fetch_add(0x1234_5678_9abc_def1, Ordering::Relaxed) | 1;
        for index in 0..self.bytes / 8 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // SAFETY: within the mapping, which is fresh and nobody else's; 8-byte aligned.
            unsafe {
                self.base
                    .cast::<u64>()
                    .add(index as usize)
                    .write_volatile(word | 0x80)
            };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by us; views of it have ended with the last `Physical`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes as usize) };
    }
}

/// The name of a file with such memory, which tells importers what it is.
fn name(properties: Properties, header: Option<Header>) -> String {
    let place = match properties.place {
        Place::Device(device) => format!("d{device}"),
        Place::HostNuma(node) => format!("n{node}"),
    };
    let start = header.map_or(0, |_| HEADER_BYTES);
    let (types, flags) = (properties.handle_types, properties.flags);
    format!("{NAME}:{place}:{types}:{flags}:{start}")
}

/// What the name of a file tells, and where memory begins in it.
fn described(file: &File) -> Option<(Properties, u64)> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let name = link.to_str()?;
    let name = match name.strip_prefix("/memfd:") {
        Some(name) => name,
        None => name.rsplit('/').next()?,
    };
    let mut parts = name.trim_end_matches(" (deleted)").split(':');
    if parts.next()? != NAME {
        return None;
    }
    let place = parts.next()?;
    let place = match place.split_at_checked(1)? {
        ("d", device) => Place::Device(device.parse().ok()?),
        (_, node) => Place::HostNuma(node.parse().ok()?),
    };
    let properties = Properties {
        place,
        handle_types: parts.next()?.parse().ok()?,
        flags: parts.next()?.parse().ok()?,
    };
    Some((properties, parts.next()?.parse().ok()?))
}

/// Keeps physical memory as long as the engine may use a view of it.
pub(crate) struct Holder(
    #[allow(dead_code, reason = "held for its drop")] pub(crate) Arc<Physical>,
);
