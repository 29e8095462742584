//! Clients of the device whose processes have died.
//!
//! Page c of BAR 0 belongs to the process that holds a lock on byte c of the function's `resource0`. The kernel drops the
//! lock when the process dies; what its client owned stays until somebody stores to the page's reset register.
#![allow(unsafe_code)] // Device registers, and a lock that belongs to an open file, have no safe form.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use causeway_protocol::registers::{CLIENTS, PAGE_BYTES, RESET_KEY, Register, status};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::console::say;
use crate::function::Function;

/// Resets every client that owns something and has no process.
pub(crate) fn reap(function: &Function) {
    match Registers::open(function) {
        Ok(registers) => registers.reap(),
        Err(error) => {
            let file = function.file("resource0");
            say(&format!("cannot map {}: {error}", file.display()));
        }
    }
}

/// The control registers of all clients, as an open file and a mapping of it.
struct Registers {
    file: File,
    base: NonNull<u8>,
    bytes: usize,
}

impl Registers {
    fn open(function: &Function) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(function.file("resource0"))?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses addresses that are free.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                rights,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { file, base, bytes })
    }

    /// Number of pages; page 0 is the whole session's, and nobody's to reap.
    fn clients(&self) -> u64 {
        (self.bytes as u64 / PAGE_BYTES).min(CLIENTS.into())
    }

    fn reap(&self) {
        for client in 1..self.clients() {
            // Asked again under the lock: the client may be another one by then.
            if self.owns(client) && self.lock(client).is_ok() {
                if self.owns(client) {
                    self.store(client, Register::Reset, RESET_KEY);
                }
                self.unlock(client);
            }
        }
    }

    fn owns(&self, client: u64) -> bool {
        let word = self.load(client, Register::Status);
        // All-ones is what a machine without the register gives.
        word != u32::MAX && word & status::OWNS != 0
    }

    /// Takes the lock of a client, or fails at once because a process has it.
    fn lock(&self, client: u64) -> io::Result<()> {
        self.set_lock(client, libc::F_WRLCK)
    }

    fn unlock(&self, client: u64) {
        if let Err(error) = self.set_lock(client, libc::F_UNLCK) {
            // It goes with the open file, in a moment.
            say(&format!("cannot unlock client {client}: {error}"));
        }
    }

    fn set_lock(&self, client: u64, kind: libc::c_int) -> io::Result<()> {
        let lock = libc::flock {
            l_type: i16::try_from(kind).map_err(io::Error::other)?,
            l_whence: i16::try_from(libc::SEEK_SET).map_err(io::Error::other)?,
            l_start: i64::try_from(client).map_err(io::Error::other)?,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: the lock is read by the call, and nothing else of this process is touched.
        match unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn register(&self, client: u64, register: Register) -> *mut u32 {
        let offset = client * PAGE_BYTES + u64::from(register as u32);
        debug_assert!(offset + 4 <= self.bytes as u64);
        self.base.as_ptr().wrapping_add(offset as usize).cast()
    }

    fn load(&self, client: u64, register: Register) -> u32 {
        // SAFETY: a register of a client below `clients`, so within the mapping, and aligned.
        unsafe { self.register(client, register).read_volatile() }
    }

    fn store(&self, client: u64, register: Register, value: u32) {
        // SAFETY: as for a load; the store changes the device, and no memory of this process.
        unsafe { self.register(client, register).write_volatile(value) }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and used by nobody else.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A folder that looks like a function with four clients, of which these own something.
    fn function(name: &str, owners: &[u64]) -> (Function, PathBuf) {
        let folder =
            std::env::temp_dir().join(format!("causeway-init-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut bytes = vec![0; 4 * PAGE_BYTES as usize];
        for owner in owners {
            let at = (owner * PAGE_BYTES) as usize + Register::Status as usize;
            bytes[at..at + 4].copy_from_slice(&(status::READY | status::OWNS).to_le_bytes());
        }
        fs::write(folder.join("resource0"), bytes).unwrap();
        (Function::at(&folder), folder)
    }

    fn resets(folder: &std::path::Path) -> Vec<u64> {
        let bytes = fs::read(folder.join("resource0")).unwrap();
        let word = |client: u64| {
            let at = (client * PAGE_BYTES) as usize + Register::Reset as usize;
            u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
        };
        (0..4).filter(|client| word(*client) == RESET_KEY).collect()
    }

    #[test]
    fn clients_that_own_something_and_have_no_process_are_reset_and_no_others() {
        let (function, folder) = function("reap", &[0, 1, 2]);
        let alive = Registers::open(&function).unwrap();
        alive.lock(2).unwrap();
        reap(&function);
        assert_eq!(
            resets(&folder),
            [1],
            "0 is the session, 2 is alive, 3 owns nothing"
        );
        drop(alive);
        reap(&function);
        assert_eq!(resets(&folder), [1, 2]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn locks_are_given_back() {
        let (function, folder) = function("locks", &[1]);
        let reaping = Registers::open(&function).unwrap();
        reaping.reap();
        let next = Registers::open(&function).unwrap();
        next.lock(1).unwrap();
        assert!(reaping.lock(1).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
