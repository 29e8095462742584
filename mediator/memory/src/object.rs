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
    /// 2 MiB pages, for objects of 2 MiB and more where the host can provide them. Such objects cannot
    /// be sealed. Memory whose descriptors go to strangers therefore has small pages: a touch beyond
    /// the end of an object that was cut short is SIGBUS.
    #[default]
    Large,
}

/// Why memory could not be had, mapped or placed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// No memory object of that size.
    #[error("cannot create a memory object of {bytes} bytes")]
    Create {
        /// Size asked for.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A descriptor from another process is not what it should be.
    #[error("the descriptor is not a memory object (a file of a tmpfs, not empty)")]
    Adopt {
        /// What the kernel said.
        source: io::Error,
    },
    /// The range is outside the object or the window.
    #[error("range {offset:#x}+{bytes:#x} is outside the {size:#x} bytes there are")]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Size of the object or window.
        size: u64,
    },
    /// No address range.
    #[error("cannot map {bytes} bytes")]
    Map {
        /// Bytes to be mapped.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A device's memory cannot be shown to CPUs.
    #[error("cannot map {bytes} bytes of device memory: {reason}")]
    Device {
        /// Bytes to be mapped.
        bytes: u64,
        /// What the device's driver said.
        reason: String,
    },
    /// No pages behind the address range.
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
/// Its size is sealed where the file system can, so that nobody it is handed to can cut it short
/// under a mapping.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    bytes: u64,
    pages: PageSize,
    /// Whether somebody has a descriptor who may keep it.
    handed_out: AtomicBool,
}

impl SharedMemory {
    /// `bytes` bytes of zeroed memory. With [`PageSize::Large`], objects of 2 MiB and more get 2 MiB
    /// pages where the host can provide them (see [`huge_pages_available`]).
    ///
    /// # Errors
    /// [`MemoryError::Create`], if the kernel refuses.
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
        // Files of a mounted tmpfs cannot be sealed; nobody outside this process is given one unsealed.
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

    /// An object that another process made, as large as it is now. `pages` is what that process says it has: a hint.
    ///
    /// The other process may cut it short at any time unless it is sealed; a touch beyond its end is then SIGBUS.
    ///
    /// # Errors
    /// [`MemoryError::Adopt`], if the descriptor is no memory object.
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

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Page size it has.
    pub fn pages(&self) -> PageSize {
        self.pages
    }

    /// The descriptor, to hand to another process or to map by other means.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A descriptor for a stranger, who may keep it for as long as it likes, good for no more than `access`: without the right
    /// to write it maps for reading only. Who has the right to open the file anew, as the same user has, is not held to that.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn hand_out(&self, access: Access) -> io::Result<OwnedFd> {
        self.handed_out.store(true, Ordering::SeqCst);
        if access == Access::ReadWrite {
            return self.file.try_clone();
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// Whether [`Self::hand_out`] has ever given a descriptor away: then somebody may still have the memory.
    pub fn is_handed_out(&self) -> bool {
        self.handed_out.load(Ordering::SeqCst)
    }

    /// Maps `[offset, offset + bytes)` at an address of the kernel's choice, 2 MiB-aligned for large pages.
    ///
    /// # Errors
    /// [`MemoryError::Range`] and [`MemoryError::Map`].
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

/// Whether objects can have 2 MiB pages here.
///
/// `memfd` has them only where the administrator enabled them for shmem, or reserved hugetlb pages.
/// A tmpfs of our own, mounted nowhere with `huge=always`, needs neither: only the right to mount.
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

/// A detached tmpfs with `huge=always`: it has no path, and ends with the process.
///
/// `size=0` is a tmpfs without a limit of its own, as `memfd` has none. By default a tmpfs ends at half of
/// the host's memory: a touch beyond that would be SIGBUS, also for who was given less than that. How much
/// memory there may be is for quotas and the host to say.
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
