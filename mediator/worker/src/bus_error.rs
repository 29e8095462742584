//! Memory that a worker cuts short under the VMM, or under another worker that it exported the
//! memory to.
//!
//! Objects of 2 MiB pages lie on a tmpfs, where sizes cannot be sealed, and a worker that shares
//! one can make it shorter. A touch beyond the end is SIGBUS, which would end the VMM with all its
//! guests, or the other's worker. The handler here puts zeroed memory in the place of what is gone:
//! the guest whose memory it was has spoilt it for itself.
#![allow(unsafe_code)] // A signal handler, and memory that it maps.

use std::io;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t};
use vmm_sys_util::signal::register_signal_handler;

const PAGE_BYTES: usize = 4096;

/// Makes this process survive accesses beyond the end of a file from now on. Other causes of
/// SIGBUS, such as a failure of the host's memory, still end it.
///
/// # Errors
/// The kernel's error, if it does not accept the signal handler.
pub(crate) fn survive() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let done = DONE.get_or_init(|| {
        register_signal_handler(libc::SIGBUS, handle).map_err(|error| error.errno())
    });
    done.map_err(io::Error::from_raw_os_error)
}

/// Only what may be called in a signal handler (signal-safety(7)) is called.
extern "C" fn handle(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid structure, in which SIGBUS has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    if code == libc::BUS_ADRERR && replace(address as usize & !(PAGE_BYTES - 1)) {
        return;
    }
    // SAFETY: restoring the default is always possible; the fault comes again and then ends the
    // process.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Puts a zeroed page where one of a file is missing.
fn replace(page: usize) -> bool {
    // SAFETY: BUS_ADRERR says that this address is mapped to a part of a file that is not there.
    // Nothing but volatile accesses ever goes to memory of files here, and none of them relies on
    // what it finds.
    let mapped = unsafe {
        libc::mmap(
            page as *mut c_void,
            PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_memory::{PageSize, SharedMemory};
    use causeway_protocol::Access;

    #[test]
    fn memory_that_was_cut_short_reads_as_zero_instead_of_ending_the_process() {
        survive().unwrap();
        for pages in [PageSize::Small, PageSize::Large] {
            let bytes = 4 << 20;
            // Unsealed, as large objects are.
            let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, bytes).unwrap();
            let memory = match pages {
                PageSize::Small => SharedMemory::adopt(file, pages).unwrap(),
                PageSize::Large => SharedMemory::new("test", bytes, pages).unwrap(),
            };
            let mapping = memory.map(0, bytes, Access::ReadWrite).unwrap();
            mapping.write(bytes - 8, b"here yet").unwrap();
            if rustix::fs::ftruncate(memory.file(), 4096).is_err() {
                eprintln!("skipped: {pages:?} objects are sealed here");
                continue;
            }
            let mut seen = [1; 8];
            mapping.read(bytes - 8, &mut seen).unwrap();
            assert_eq!(seen, [0; 8]);
            mapping.write(bytes / 2, b"nowhere").unwrap();
        }
    }
}
