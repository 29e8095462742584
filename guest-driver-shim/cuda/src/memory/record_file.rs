//! Small memory files that hold a record. A program passes their descriptors to other processes,
//! which read the record with this library.

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use crate::error::{Answer, Code};

/// Nobody can change the content or the size, or allow that again.
const SEALS: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Makes a file with `record`, which nobody can change.
pub(super) fn make(record: &[u8]) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends in NUL.
    let descriptor = unsafe { libc::memfd_create(c"causeway-memory".as_ptr(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh from the kernel, owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(record)?;
    // SAFETY: takes a number, and changes nothing but the file.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads the record of a descriptor, which stays the caller's. What it says is to be checked: any
/// process can have written it.
///
/// # Errors
/// `INVALID_VALUE` if `descriptor` is none of a file, or the file has another size.
pub(super) fn read<const BYTES: usize>(descriptor: usize) -> Answer<[u8; BYTES]> {
    let descriptor = i32::try_from(descriptor).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: only read from, which fails if it is no descriptor, and never closed.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let metadata = file.metadata().map_err(|_| Code::INVALID_VALUE)?;
    if !metadata.is_file() || metadata.len() != BYTES as u64 {
        return Err(Code::INVALID_VALUE);
    }
    let mut record = [0; BYTES];
    let read = file.read_exact_at(&mut record, 0);
    read.map_err(|_| Code::INVALID_VALUE).map(|()| record)
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_cannot_be_changed() {
        let file = make(b"record").unwrap();
        let descriptor = file.as_raw_fd() as usize;
        assert_eq!(read::<6>(descriptor), Ok(*b"record"));
        assert_eq!(read::<5>(descriptor), Err(Code::INVALID_VALUE));
        assert_eq!(read::<7>(descriptor), Err(Code::INVALID_VALUE));
        assert!(file.write_all_at(b"x", 0).is_err());
        assert!(file.set_len(3).is_err());
    }

    #[test]
    fn what_is_no_file_has_no_record() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = ours.into_raw_fd() as usize;
        for wrong in [socket, usize::MAX, 1 << 31, i32::MAX as usize] {
            assert_eq!(read::<0>(wrong), Err(Code::INVALID_VALUE), "{wrong}");
        }
        // SAFETY: this test's own.
        unsafe { libc::close(socket as i32) };
    }
}
