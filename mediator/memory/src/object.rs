//! Memory objects.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_protocol::Access;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::{LARGE_PAGE_BYTES, Mapping};

/// What a tmpfs calls itself (linux/magic.h); memory file descriptors lie on one.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The size of the pages that hold the content of a memory object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB pages. The size of the object is sealed: no holder of a descriptor can cut it short.
    Small,
    /// 2 MiB pages, for objects of 2 MiB and more where the host can provide them. The size of
    /// these objects cannot be sealed: a process with a descriptor can cut the object short, and an
    /// access beyond its end then raises SIGBUS. Memory whose descriptors are sent to untrusted
    /// processes therefore has small pages.
    #[default]
    Large,
}

/// Why the kernel refused to create, map or place memory.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel creates no memory object of that size.
    #[error("cannot create shared memory of {bytes} bytes")]
    Create {
        /// Size asked for.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// A descriptor from another process is not a memory object.
    #[error(
        "the file descriptor that another process sent is not shared memory: it must be a tmpfs \
         file that is not empty"
    )]
    Adopt {
        /// The kernel's error.
        source: io::Error,
    },
    /// The range is outside the object or the window.
    #[error(
        "invalid range of {bytes:#x} bytes at offset {offset:#x} of shared memory or of a guest's \
         aperture: the range must not be empty, and must lie within the {size:#x} bytes of this \
         memory or aperture"
    )]
    Range {
        /// Offset of the first byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// Size of the object or window.
        size: u64,
    },
    /// The kernel does not map the memory.
    #[error("cannot map {bytes} bytes of memory into this process")]
    Map {
        /// Number of bytes to map.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The device's driver does not map the device's memory for CPUs.
    #[error("cannot map {bytes} bytes of device memory into this process: {reason}")]
    Device {
        /// Number of bytes to map.
        bytes: u64,
        /// Reason that the device's driver gives.
        reason: String,
    },
    /// The kernel does not place memory on a NUMA node.
    #[error(
        "cannot place {bytes} bytes of memory on NUMA node {node} by mbind(2), which containers \
         forbid without CAP_SYS_NICE"
    )]
    Node {
        /// Number of bytes to place.
        bytes: u64,
        /// Number of the node.
        node: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel has no pages for the address range.
    #[error("the host's Linux kernel cannot allocate pages for {bytes} bytes of mapped memory")]
    Populate {
        /// Length of the address range in bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
}

impl MemoryError {
    /// Returns a function that makes a [`Self::Map`] of the kernel's error.
    pub(crate) fn map(bytes: u64) -> impl Fn(Errno) -> Self {
        move |error| Self::Map {
            bytes,
            source: error.into(),
        }
    }
}

/// Checks that the `bytes` bytes at `offset` are within memory of `size` bytes.
///
/// # Errors
/// [`MemoryError::Range`] if they are not, or `bytes` is 0.
pub fn check_range(offset: u64, bytes: u64, size: u64) -> Result<(), MemoryError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= size && bytes != 0 => Ok(()),
        _ => Err(MemoryError::Range {
            offset,
            bytes,
            size,
        }),
    }
}

/// A memory object: memory behind a file descriptor, which processes share by sending the
/// descriptor to each other. New memory is filled with zeros, and the kernel clears freed memory
/// before it gives the memory to another process.
///
/// The size of an object with pages of 4 KiB is sealed: no process that receives its descriptor can
/// shrink the object while others have it mapped.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    bytes: u64,
    pages: PageSize,
    /// Whether another process may hold a descriptor.
    handed_out: AtomicBool,
}

impl SharedMemory {
    /// Creates a memory object of `bytes` bytes, filled with zeros. If `wanted` is
    /// [`PageSize::Large`], an object of 2 MiB or more gets 2 MiB pages where the host can provide
    /// them (see [`huge_pages_available`]). `name` shows in `/proc/PID/maps`.
    ///
    /// # Errors
    /// [`MemoryError::Create`] if the process has no free file descriptor left or the kernel
    /// refuses the size.
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

    /// Returns the memory object behind `file`, a descriptor that another process sent. `pages` is
    /// the page size that the other process states; if it is wrong, accesses may be slower, but
    /// nothing else changes.
    ///
    /// Unless the size of the object is sealed, the other process may shrink the object at any
    /// time; an access beyond its new end then raises SIGBUS.
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

    /// Returns the size of the object in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the size of the object's pages.
    pub fn pages(&self) -> PageSize {
        self.pages
    }

    /// Returns the object's descriptor, by which it can be mapped or sent to another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Creates a file descriptor of the object, to be sent to another process. If `access` does not
    /// include writing, the descriptor can be mapped only for reading; but a process of the same
    /// user can use it to open the object again with all rights.
    ///
    /// # Errors
    /// The kernel's error, if this process has no free file descriptor left or `/proc` is not
    /// mounted.
    pub fn hand_out(&self, access: Access) -> io::Result<OwnedFd> {
        self.handed_out.store(true, Ordering::SeqCst);
        if access == Access::ReadWrite {
            return self.file.try_clone();
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// Returns whether [`Self::hand_out`] was ever called. If so, another process may still use the
    /// memory.
    pub fn is_handed_out(&self) -> bool {
        self.handed_out.load(Ordering::SeqCst)
    }

    /// Maps `bytes` bytes of the object, from `offset`, into this process with the rights `access`.
    /// The kernel chooses the address, which is a multiple of 2 MiB if the object has large pages.
    ///
    /// # Errors
    /// [`MemoryError::Range`] if the range is empty or not within the object, [`MemoryError::Map`]
    /// if the kernel refuses to map it.
    pub fn map(&self, offset: u64, bytes: u64, access: Access) -> Result<Mapping, MemoryError> {
        check_range(offset, bytes, self.bytes)?;
        Mapping::new(self, offset, bytes, access)
    }

    /// Maps `bytes` bytes of the object, from `offset`, into this process at `address`, with the
    /// rights `access`. All numbers are multiples of 4 KiB.
    ///
    /// # Errors
    /// As for [`Self::map`]. The source of [`MemoryError::Map`] is EEXIST if something else is
    /// mapped there.
    pub fn map_at(
        &self,
        address: u64,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Mapping, MemoryError> {
        check_range(offset, bytes, self.bytes)?;
        Mapping::new_at(address, self, offset, bytes, access)
    }
}

/// Returns whether memory objects can have 2 MiB pages on this host.
///
/// The pages come from a private tmpfs, which this process mounts with the option `huge=always`.
/// The result is false if it cannot: it needs the right to mount (CAP_SYS_ADMIN). `memfd_create` is
/// no alternative, because its files have 2 MiB pages only if the administrator has enabled them.
pub fn huge_pages_available() -> bool {
    huge_tmpfs().is_some()
}

/// Returns the folder in which this process makes the files behind objects of 2 MiB pages; `None`
/// if there are none ([`huge_pages_available`]). A process that gives up rights calls this first:
/// the first call mounts the folder.
pub fn large_page_folder() -> Option<BorrowedFd<'static>> {
    huge_tmpfs().map(AsFd::as_fd)
}

fn large_page_file() -> Option<OwnedFd> {
    let mount = huge_tmpfs()?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(mount, ".", flags, Mode::RUSR | Mode::WUSR)
        .inspect_err(|e| {
            log::debug!("cannot create a file with 2 MiB pages, using 4 KiB pages instead: {e}")
        })
        .ok()
}

fn sealable_file(name: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create(
        name,
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?)
}

fn huge_tmpfs() -> Option<&'static OwnedFd> {
    static MOUNT: LazyLock<Option<OwnedFd>> = LazyLock::new(|| {
        mount_huge_tmpfs()
            .inspect_err(|e| {
                log::debug!("cannot mount a tmpfs with 2 MiB pages (fsopen/fsmount): {e}")
            })
            .ok()
    });
    MOUNT.as_ref()
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
    use crate::PAGE_BYTES;

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
    fn only_files_of_a_tmpfs_with_content_are_adopted() {
        let own = SharedMemory::new("test", 3 * PAGE_BYTES, PageSize::Small).unwrap();
        let sent = own.hand_out(Access::Read).unwrap();
        let adopted = SharedMemory::adopt(sent, PageSize::Small).unwrap();
        assert_eq!(adopted.bytes(), 3 * PAGE_BYTES);
        let open = |path: &str| rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
        for (what, file) in [
            ("an empty file", sealable_file("test").unwrap()),
            // It has a size, and lies on a tmpfs.
            ("a folder", open("/dev/shm")),
            // It is a regular file with a size.
            (
                "a file of another file system",
                open("/sys/kernel/uevent_seqnum"),
            ),
        ] {
            let refused = SharedMemory::adopt(file, PageSize::Small);
            assert!(matches!(refused, Err(MemoryError::Adopt { .. })), "{what}");
        }
    }

    #[test]
    fn programs_that_this_process_starts_get_no_descriptor_of_memory() {
        for pages in [PageSize::Small, PageSize::Large] {
            let memory = SharedMemory::new("test", LARGE_PAGE_BYTES, pages).unwrap();
            assert!(pages == PageSize::Large || memory.pages() == PageSize::Small);
            let reader = memory.hand_out(Access::Read).unwrap();
            let writer = memory.hand_out(Access::ReadWrite).unwrap();
            for file in [memory.file(), reader.as_fd(), writer.as_fd()] {
                let flags = rustix::io::fcntl_getfd(file).unwrap();
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "{pages:?}");
            }
        }
    }

    #[test]
    fn nobody_cuts_small_pages_short() {
        let memory = SharedMemory::new("test", 3 * PAGE_BYTES, PageSize::Small).unwrap();
        for bytes in [PAGE_BYTES, 4 * PAGE_BYTES] {
            let changed = rustix::fs::ftruncate(memory.file(), bytes);
            assert_eq!(changed, Err(Errno::PERM));
        }
        let unsealed = rustix::fs::fcntl_add_seals(memory.file(), SealFlags::WRITE);
        assert_eq!(unsealed, Err(Errno::PERM));
    }

    #[test]
    fn objects_are_mapped_at_free_addresses_that_are_chosen() {
        let memory = SharedMemory::new("test", 4 * PAGE_BYTES, PageSize::Small).unwrap();
        let address = 0x2100_0000_0000;
        let map = |address, offset, bytes| memory.map_at(address, offset, bytes, Access::ReadWrite);
        let mapping = map(address, PAGE_BYTES, 2 * PAGE_BYTES).unwrap();
        assert_eq!(mapping.as_ptr().addr().get() as u64, address);
        mapping.write(0, b"causeway").unwrap();
        let mut seen = [0; 8];
        rustix::io::pread(memory.file(), &mut seen, PAGE_BYTES).unwrap();
        assert_eq!(&seen, b"causeway");
        let taken = map(address + PAGE_BYTES, 0, PAGE_BYTES).unwrap_err();
        assert!(matches!(taken, MemoryError::Map { .. }), "{taken}");
        assert!(map(address, 0, 5 * PAGE_BYTES).is_err());
        drop(mapping);
        map(address + PAGE_BYTES, 0, PAGE_BYTES).unwrap();
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
