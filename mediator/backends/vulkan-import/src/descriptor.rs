//! Checks a descriptor as far as that is possible without its driver.

use std::os::fd::{AsFd, BorrowedFd};

use causeway_memory::PAGE_BYTES;
use rustix::fs::{FileType, SealFlags};

use crate::ImportError;

/// Checks that `file` can be `bytes` bytes of device memory. Seals a memory file, so that its owner
/// cannot shorten it later.
///
/// # Errors
/// [`ImportError`] has a variant for each check.
pub(crate) fn check(file: BorrowedFd<'_>, bytes: u64) -> Result<(), ImportError> {
    if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || i64::try_from(bytes).is_err() {
        return Err(ImportError::Bytes { bytes });
    }
    let status = rustix::fs::fstat(file).map_err(|e| ImportError::Examine(e.into()))?;
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => return check_file(file, bytes),
        // NVIDIA's descriptors are character devices, other drivers' have no type (dma-buf). The
        // driver knows its own.
        FileType::CharacterDevice | FileType::Unknown => return Ok(()),
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::BlockDevice => "block device",
    };
    Err(ImportError::Kind { kind })
}

/// Checks that a file has `wanted` bytes and keeps them. An access beyond the end of a file raises
/// SIGBUS, so the file must be sealed against becoming shorter. Only memory files can be sealed,
/// which also keeps out files of slow or foreign file systems.
fn check_file(file: BorrowedFd<'_>, wanted: u64) -> Result<(), ImportError> {
    let sealed = rustix::fs::fcntl_get_seals(file.as_fd());
    if !sealed.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK)
            .map_err(|e| ImportError::Seal(e.into()))?;
    }
    // The size that counts is that which it has from now on.
    let status = rustix::fs::fstat(file).map_err(|e| ImportError::Examine(e.into()))?;
    let has = u64::try_from(status.st_size).unwrap_or(0);
    if has < wanted {
        return Err(ImportError::Size { has, wanted });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::MemfdFlags;

    use super::*;

    fn memory_file(bytes: u64, flags: MemfdFlags) -> OwnedFd {
        let file = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&file, bytes).unwrap();
        file
    }

    #[test]
    fn a_memory_file_is_as_long_as_announced_and_stays_so() {
        let file = memory_file(8192, MemfdFlags::ALLOW_SEALING);
        check(file.as_fd(), 8192).unwrap();
        assert!(rustix::fs::ftruncate(&file, 4096).is_err());
        check(file.as_fd(), 8192).unwrap();
        let short = check(file.as_fd(), 12288).unwrap_err();
        assert!(matches!(
            short,
            ImportError::Size {
                has: 8192,
                wanted: 12288
            }
        ));
        let open_ended = memory_file(8192, MemfdFlags::empty());
        assert!(matches!(
            check(open_ended.as_fd(), 8192),
            Err(ImportError::Seal(_))
        ));
        let disk = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(matches!(
            check(disk.as_fd(), 4096),
            Err(ImportError::Seal(_))
        ));
    }

    #[test]
    fn what_cannot_be_memory_is_named() {
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pipe, _writer) = std::io::pipe().unwrap();
        let directory = std::fs::File::open("/").unwrap();
        for (file, name) in [
            (socket.as_fd(), "socket"),
            (pipe.as_fd(), "pipe"),
            (directory.as_fd(), "directory"),
        ] {
            let refused = check(file, 4096).unwrap_err();
            assert!(refused.to_string().contains(name), "{refused}");
        }
        for bytes in [0, 4095, u64::MAX, u64::MAX - 4095] {
            let refused = check(socket.as_fd(), bytes).unwrap_err();
            assert!(matches!(refused, ImportError::Bytes { .. }), "{refused}");
        }
    }
}
