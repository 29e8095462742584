//! Memory objects.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_protocol::Access;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::{LARGE_PAGE_BYTES, Mapping};

/// What a tmpfs calls itself (linux/magic.h); memory file descriptors lie on one.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The page size of a memory object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB pages. The size of the object is sealed: no holder of a descriptor can cut it short.
    Small,
    /// 2 MiB pages, for objects of 2 MiB and more where the host can provide them. Such objects
    /// cannot be sealed. Memory whose descriptors go to strangers therefore has small pages: a
    /// touch beyond the end of an object that was cut short is SIGBUS.
    #[default]
    Large,
}

/// Why the kernel refused to create, map or place memory.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel creates no memory object of that size.
    #[error("cannot create a memory object of {bytes} bytes")]
    Create {
        /// Size asked for.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A descriptor from another process is not a memory object.
    #[error("the descriptor is not a memory object (a file of a tmpfs, not empty)")]
    Adopt {
        /// What the kernel said.
        source: io::Error,
    },
    /// The range is outside the object or the window.
    #[error("range {offset:#x}+{bytes:#x} is outside the memory, which has {size:#x} bytes")]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Size of the object or window.
        size: u64,
    },
    /// The kernel gives no address range.
    #[error("cannot map {bytes} bytes")]
    Map {
        /// Bytes to be mapped.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The device's driver does not map its memory for CPUs.
    #[error("cannot map {bytes} bytes of device memory: {reason}")]
    Device {
        /// Bytes to be mapped.
        bytes: u64,
        /// What the device's driver said.
        reason: String,
    },
    /// The kernel has no pages for the address range.
    #[error("cannot populate {bytes} bytes")]
    Populate {
        /// Bytes to be populated.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Memory behind a file descriptor. Fresh memory is zero; the kernel scrubs what it takes back.
///
/// The size of an object of small pages is sealed: no process that gets a descriptor of it can cut
/// it short under a mapping.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    bytes: u64,
    pages: PageSize,
    /// Whether another process may hold a descriptor.
    handed_out: AtomicBool,
}

impl SharedMemory {
    /// Creates an object of `bytes` bytes, all zero. With [`PageSize::Large`], objects of 2 MiB and
    /// more get 2 MiB pages where the host can provide them (see [`huge_pages_available`]). `name`
    /// shows in `/proc/PID/maps`.
    ///
    /// # Errors
    /// [`MemoryError::Create`] if the kernel has no descriptor or does not accept the size.
    pub fn new(name: &str, bytes: u64, wanted: PageSize) -> Result<Self, MemoryError> {
        let large = wanted == PageSize::Large && bytes >= LARGE_PAGE_BYTES;
        let (file, pages) = match large.then(large_page_file).flatten() {
            Some(file) => (file, PageSize::Large),
            None => (
                sealable_file(name).map_err(|source| MemoryError::Create { bytes, source })?,
                PageSize::Small,
            ),
        };
        rustix::fs::ftruncate(&file, bytes).map_err(|e| MemoryError::Create {
            bytes,
            source: e.into(),
        })?;
        // Files of a mounted tmpfs cannot be sealed; no stranger gets a descriptor of one.
        let _ = rustix::fs::fcntl_add_seals(
            &file,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        );
        Ok(Self::from_parts(file, bytes, pages))
    }

    fn from_parts(file: OwnedFd, bytes: u64, pages: PageSize) -> Self {
        Self {
            file,
            bytes,
            pages,
            handed_out: AtomicBool::new(false),
        }
    }

    /// Adopts an object that another process created, with its current size. `pages` is the page
    /// size that the other process states: a hint.
    ///
    /// Unless the object is sealed, the other process may cut it short at any time; a touch beyond
    /// the end is then SIGBUS.
    ///
    /// # Errors
    /// [`MemoryError::Adopt`] if the descriptor is not a regular file of a tmpfs, or the file is
    /// empty.
    pub fn adopt(file: OwnedFd, pages: PageSize) -> Result<Self, MemoryError> {
        let fail = |source| MemoryError::Adopt { source };
        let status = rustix::fs::fstat(&file).map_err(|e| fail(e.into()))?;
        let magic = rustix::fs::fstatfs(&file)
            .map_err(|e| fail(e.into()))?
            .f_type;
        let regular = rustix::fs::FileType::from_raw_mode(status.st_mode).is_file();
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        if !regular || magic != TMPFS_MAGIC || bytes == 0 {
            return Err(fail(io::ErrorKind::InvalidInput.into()));
        }
        Ok(Self::from_parts(file, bytes, pages))
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the page size that the object has.
    pub fn pages(&self) -> PageSize {
        self.pages
    }

    /// Returns the descriptor, for another process or for another way to map the object.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Creates a descriptor for a process that may keep it forever. It allows no more than
    /// `access`: without the right to write, it maps for reading only. A process of the same user
    /// can open the file again with all rights.
    ///
    /// # Errors
    /// The kernel's error, if it has no descriptor left or `/proc` is not mounted.
    pub fn hand_out(&self, access: Access) -> io::Result<OwnedFd> {
        self.handed_out.store(true, Ordering::SeqCst);
        if access == Access::ReadWrite {
            return self.file.try_clone();
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// Whether [`Self::hand_out`] has created a descriptor: another process may still hold the
    /// memory.
    pub fn is_handed_out(&self) -> bool {
        self.handed_out.load(Ordering::SeqCst)
    }

    /// Maps `[offset, offset + bytes)` at an address that the kernel chooses; the address is 2
    /// MiB-aligned for large pages.
    ///
    /// # Errors
    /// [`MemoryError::Range`] if the range is empty or not within the object, [`MemoryError::Map`]
    /// if the kernel has no address range.
    pub fn map(&self, offset: u64, bytes: u64, access: Access) -> Result<Mapping, MemoryError> {
        self.check(offset, bytes)?;
        Mapping::new(self, offset, bytes, access)
    }

    /// Refuses a range that does not lie within the object.
    pub(crate) fn check(&self, offset: u64, bytes: u64) -> Result<(), MemoryError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes && bytes != 0 => Ok(()),
            _ => Err(MemoryError::Range {
                offset,
                bytes,
                size: self.bytes,
            }),
        }
    }
}

/// Whether objects can have 2 MiB pages on this host.
///
/// `memfd` has them only where the administrator enabled them for shmem or reserved hugetlb pages.
/// A tmpfs of this process, with `huge=always` and without a mount point, needs neither, only the
/// right to mount.
pub fn huge_pages_available() -> bool {
    huge_tmpfs().is_some()
}

fn large_page_file() -> Option<OwnedFd> {
    let mount = huge_tmpfs()?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(mount, ".", flags, Mode::RUSR | Mode::WUSR)
        .inspect_err(|e| log::debug!("no file of large pages, small ones instead: {e}"))
        .ok()
}

fn sealable_file(name: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create(
        name,
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?)
}

fn huge_tmpfs() -> Option<&'static OwnedFd> {
    static MOUNT: OnceLock<Option<OwnedFd>> = OnceLock::new();
    MOUNT
        .get_or_init(|| {
            mount_huge_tmpfs()
                .inspect_err(|e| log::debug!("no tmpfs of large pages (fsopen/fsmount): {e}"))
                .ok()
        })
        .as_ref()
}

/// Mounts a detached tmpfs with `huge=always`: it has no path and ends with the process.
///
/// `size=0` is a tmpfs without a limit, as `memfd` has none. By default a tmpfs ends at half of the
/// host's memory: a touch beyond that would be SIGBUS, also for a session that has less than that.
/// Quotas and the host limit the memory.
fn mount_huge_tmpfs() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "huge", "always")?;
    rustix::mount::fsconfig_set_string(&context, "size", "0")?;
    rustix::mount::fsconfig_create(&context)?;
    Ok(rustix::mount::fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_good_for_the_rights_it_was_handed_out_with() {
        for pages in [PageSize::Small, PageSize::Large] {
            let memory = SharedMemory::new("test", LARGE_PAGE_BYTES, pages).unwrap();
            assert!(!memory.is_handed_out());
            let flags = |file: &OwnedFd| rustix::fs::fcntl_getfl(file).unwrap() & OFlags::ACCMODE;
            let reader = memory.hand_out(Access::Read).unwrap();
            assert!(memory.is_handed_out());
            assert_eq!(flags(&reader), OFlags::RDONLY);
            let writer = memory.hand_out(Access::ReadWrite).unwrap();
            assert_eq!(flags(&writer), OFlags::RDWR);
            rustix::io::pwrite(&writer, b"causeway", 0).unwrap();
            let mut seen = [0; 8];
            rustix::io::pread(&reader, &mut seen, 0).unwrap();
            assert_eq!(&seen, b"causeway");
            assert!(rustix::io::pwrite(&reader, b"x", 0).is_err());
        }
    }

    #[test]
    fn large_pages_have_no_limit_but_that_of_the_host() {
        let memory = SharedMemory::new("test", LARGE_PAGE_BYTES, PageSize::Large).unwrap();
        if memory.pages() == PageSize::Small {
            eprintln!("skipped: no large pages");
            return;
        }
        let limits = rustix::fs::fstatvfs(memory.file()).unwrap();
        // What `df` shows for a tmpfs without a limit.
        assert_eq!((limits.f_blocks, limits.f_bavail), (0, 0));
    }
}
