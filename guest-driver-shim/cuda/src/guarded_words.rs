//! Words of memory that another process may take away at any time. A load or a store of the process
//! would end it then, so the kernel does them: it finds out that there is nothing.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::OnceLock;

use parking_lot::Mutex;

/// Looks at a word until two give the same: the kernel copies bytes.
const LOOKS: usize = 8;

/// A memory file through which words go.
static FILE: OnceLock<Option<Mutex<File>>> = OnceLock::new();

fn file() -> Option<&'static Mutex<File>> {
    let made = FILE.get_or_init(|| {
        // SAFETY: the name ends in NUL.
        let descriptor =
            unsafe { libc::memfd_create(c"causeway-word".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: fresh from the kernel, owned by nobody else.
        (descriptor >= 0).then(|| Mutex::new(unsafe { File::from_raw_fd(descriptor) }))
    });
    if made.is_none() {
        log::warn!("no memory file: {}", io::Error::last_os_error());
    }
    made.as_ref()
}

/// Copies 8 bytes from one address to another. Returns whether both are there.
fn copy(from: u64, to: u64) -> bool {
    let Some(file) = file() else {
        return false;
    };
    let file = file.lock();
    let descriptor = file.as_raw_fd();
    // SAFETY: the kernel only reads, and refuses addresses where nothing is.
    let read = unsafe { libc::pwrite(descriptor, from as *const _, 8, 0) };
    // SAFETY: the caller's word, or memory of the device; the kernel refuses other addresses.
    read == 8 && unsafe { libc::pread(descriptor, to as *mut _, 8, 0) } == 8
}

/// Returns the word at an address; `None` if nothing is there.
pub(crate) fn load(address: u64) -> Option<u64> {
    let look = || {
        let mut word = 0_u64;
        copy(address, &raw mut word as u64).then_some(word)
    };
    let mut last = look()?;
    for _ in 0..LOOKS {
        let next = look()?;
        if next == last {
            break;
        }
        last = next;
    }
    Some(last)
}

/// Stores a word at an address of the device's memory. Returns whether it is there.
pub(crate) fn store(address: u64, word: u64) -> bool {
    copy(&raw const word as u64, address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_gone_harm_nothing() {
        let mut word = 7_u64;
        let address = &raw mut word as u64;
        assert_eq!(load(address), Some(7));
        assert!(store(address, u64::MAX));
        assert_eq!(load(address), Some(u64::MAX));
        // SAFETY: fresh addresses, without rights.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0)
        };
        for gone in [0, page as u64] {
            assert_eq!(load(gone), None);
            assert!(!store(gone, 1));
        }
    }
}
