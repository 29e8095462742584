//! Fabric handles: names of memory that all processes know which share a folder of accounts, as all
//! machines of an NVLink fabric do that have an IMEX channel.
//!
//! Such memory is a file of that folder. Its owner has it locked, so memory of a process that was
//! killed is found by nobody.

use std::fmt::Write;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// `CUmemFabricHandle`: [`MAGIC`], the number of the memory, zeros.
pub(crate) type Handle = [u8; 64];

/// How handles of this driver begin.
const MAGIC: &[u8; 16] = b"causeway-standin";

/// The name of memory, which ends with this.
#[derive(Debug)]
pub(crate) struct Named {
    path: PathBuf,
    number: [u8; 16],
}

impl Named {
    /// Makes an empty file in `folder`, which is there, whose name begins with `description`.
    pub(crate) fn create(folder: &Path, description: &str) -> io::Result<(File, Self)> {
        let mut number = [0; 16];
        // SAFETY: stores as many bytes as there are.
        let got = unsafe { libc::getrandom(number.as_mut_ptr().cast(), number.len(), 0) };
        if got != number.len().cast_signed() {
            return Err(io::Error::last_os_error());
        }
        let path = folder.join(format!("{description}{}", ending(&number)));
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        let named = Self { path, number };
        match lock(&file, libc::LOCK_EX) {
            true => Ok((file, named)),
            false => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the handle by which [`open`] finds the memory.
    pub(crate) fn handle(&self) -> Handle {
        let mut handle = [0; 64];
        handle[..16].copy_from_slice(MAGIC);
        handle[16..32].copy_from_slice(&self.number);
        handle
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // A confined process may not. Without the lock, nobody finds the file either.
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens the memory in `folder` that has a handle, if its owner lives and has not freed it.
pub(crate) fn open(folder: &Path, handle: &Handle) -> Option<File> {
    let (magic, rest) = handle.split_first_chunk::<16>()?;
    let (number, zeros) = rest.split_first_chunk::<16>()?;
    if magic != MAGIC || zeros.iter().any(|byte| *byte != 0) {
        return None;
    }
    let ending = ending(number);
    let entries = fs::read_dir(folder).ok()?.flatten();
    let mut found = entries.filter(|it| it.file_name().to_string_lossy().ends_with(&ending));
    let path = found.next()?.path();
    let file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
    // Others may look at the same time, but only the owner's lock is exclusive.
    (!lock(&file, libc::LOCK_SH)).then_some(file)
}

/// How the name of the file of memory ends.
fn ending(number: &[u8; 16]) -> String {
    let mut text = String::from(":");
    for byte in number {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn lock(file: &File, how: i32) -> bool {
    // SAFETY: takes a descriptor, and touches no memory.
    unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}
