//! Who has how much memory of the devices, and how many contexts: a file per process, and the sum
//! of those whose processes live.
//!
//! A process keeps its file locked. A file that can be locked is left from a process that has
//! ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::driver::{Driver, lock};
use crate::error::{Answer, Code};

/// The accounts of all processes that share a folder.
#[derive(Debug)]
pub(crate) struct Ledger {
    folder: PathBuf,
    own: Mutex<Own>,
}

#[derive(Debug)]
struct Own {
    file: File,
    used: Vec<u64>,
}

impl Ledger {
    /// Opens an account for this process, with nothing in it.
    pub(crate) fn open(folder: &Path, devices: usize) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let _all = lock_all(folder)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .read(true)
            .open(folder.join(format!("process-{}", std::process::id())))?;
        try_lock(&file)?;
        // Contexts are counted behind the devices, and other objects behind contexts.
        let used = vec![0; devices + 2];
        write(&file, &used)?;
        Ok(Self {
            folder: folder.to_owned(),
            own: Mutex::new(Own { file, used }),
        })
    }

    /// Bytes of a device that all processes have.
    pub(crate) fn used(&self, device: usize) -> io::Result<u64> {
        let own = lock(&self.own);
        // An account that is just being opened must not be taken for one that was left behind.
        let _all = lock_all(&self.folder)?;
        Ok(own.used[device] + others(&self.folder, device)?)
    }

    /// Takes bytes of a device that has `total`; false if they are not there.
    pub(crate) fn take(&self, device: usize, bytes: u64, total: u64) -> io::Result<bool> {
        let mut own = lock(&self.own);
        let _all = lock_all(&self.folder)?;
        let used = own.used[device] + others(&self.folder, device)?;
        if used.checked_add(bytes).is_none_or(|sum| sum > total) {
            return Ok(false);
        }
        own.used[device] += bytes;
        write(&own.file, &own.used)?;
        Ok(true)
    }

    /// Counts a context that is about to be made, and adds a line to the list of all contexts ever
    /// made: the process, and how many contexts other processes have.
    pub(crate) fn enter(&self) -> io::Result<()> {
        let mut own = lock(&self.own);
        let _all = lock_all(&self.folder)?;
        let slot = own.used.len() - 2;
        let line = format!("{} {}\n", std::process::id(), others(&self.folder, slot)?);
        own.used[slot] += 1;
        write(&own.file, &own.used)?;
        self.append("contexts", &line)
    }

    /// Adds a line to the list of streams that have had a kernel: the priority.
    pub(crate) fn note_priority(&self, priority: i32) -> io::Result<()> {
        let _all = lock_all(&self.folder)?;
        self.append("priorities", &format!("{priority}\n"))
    }

    fn append(&self, list: &str, line: &str) -> io::Result<()> {
        let list = self.folder.join(list);
        let mut list = OpenOptions::new().create(true).append(true).open(list)?;
        list.write_all(line.as_bytes())
    }

    /// Takes a context off the count.
    pub(crate) fn leave(&self) {
        let slot = lock(&self.own).used.len() - 2;
        self.give(slot, 1);
    }

    /// Counts one more array, texture or surface.
    fn count(&self) -> io::Result<()> {
        let mut own = lock(&self.own);
        let slot = own.used.len() - 1;
        own.used[slot] += 1;
        write(&own.file, &own.used)
    }

    /// Takes one of them off the count.
    fn uncount(&self) {
        let slot = lock(&self.own).used.len() - 1;
        self.give(slot, 1);
    }

    /// Gives bytes back.
    pub(crate) fn give(&self, device: usize, bytes: u64) {
        let mut own = lock(&self.own);
        own.used[device] = own.used[device].saturating_sub(bytes);
        if let Err(e) = write(&own.file, &own.used) {
            eprintln!("stand-in driver: cannot account for memory given back: {e}");
        }
    }
}

/// Counts an array, texture or surface as long as it exists.
pub(crate) struct Counted(&'static Driver);

impl Counted {
    /// Counts one more.
    pub(crate) fn new(driver: &'static Driver) -> Answer<Self> {
        driver.ledger.count().map_err(|e| {
            eprintln!("stand-in driver: cannot account for an object: {e}");
            Code::OPERATING_SYSTEM
        })?;
        Ok(Self(driver))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.ledger.uncount();
    }
}

/// Keeps others from opening or changing accounts until dropped.
fn lock_all(folder: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join("lock"))?;
    // SAFETY: locks a descriptor that is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

fn try_lock(file: &File) -> io::Result<()> {
    // SAFETY: locks a descriptor that is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What other living processes have; files of those that have ended are removed.
fn others(folder: &Path, device: usize) -> io::Result<u64> {
    let own = format!("process-{}", std::process::id());
    let mut sum = 0_u64;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("process-") || name == own {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else {
            continue;
        };
        if try_lock(&file).is_ok() {
            let _ = fs::remove_file(entry.path());
            continue;
        }
        let mut bytes = [0; 8];
        if file.read_exact_at(&mut bytes, 8 * device as u64).is_ok() {
            sum = sum.saturating_add(u64::from_le_bytes(bytes));
        }
    }
    Ok(sum)
}

fn write(file: &File, used: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = used.iter().flat_map(|used| used.to_le_bytes()).collect();
    file.write_all_at(&bytes, 0)
}
