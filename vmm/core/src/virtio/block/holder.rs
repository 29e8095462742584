//! Who has an image locked. The kernel does not name the holder of a lock of an open file
//! description, but shows every lock with the descriptor it was taken through.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::console::printable;

/// The process that has locked a disk image, if it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This process: the user gave it the same image twice.
    Myself,
    /// Another process of this machine.
    Process {
        /// Process ID.
        pid: u32,
        /// Name of the process, from `/proc/PID/comm`.
        name: String,
    },
    /// The process was not found: this process may not read its descriptors, or it runs on another
    /// machine.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Myself => f.write_str("this command itself: the image was given twice"),
            Self::Process { pid, name } => write!(f, "process {pid} ({name})"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

impl Holder {
    /// Returns what the user can do so that the image can be opened, as a clause for an error
    /// message.
    pub fn way_out(&self) -> &'static str {
        match self {
            Self::Myself => "give the image once, or each time with ,ro after its name",
            Self::Process { .. } | Self::Unknown => {
                "end that process, or open the image read-only everywhere (,ro after its name)"
            }
        }
    }

    /// Finds out which process has locked a disk image whose metadata is `file`, from the lists of
    /// locks in `/proc/*/fdinfo`.
    pub fn of(file: &fs::Metadata) -> Self {
        let inode = format!(":{}", file.ino());
        let Ok(processes) = fs::read_dir("/proc") else {
            return Self::Unknown;
        };
        for process in processes.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            if has_lock(&process.path(), &inode, file) {
                return Self::named(pid, &process.path());
            }
        }
        Self::Unknown
    }

    fn named(pid: u32, process: &Path) -> Self {
        if pid == std::process::id() {
            return Self::Myself;
        }
        // The process that locks the file chooses this name.
        let name = fs::read(process.join("comm")).unwrap_or_default();
        Self::Process {
            pid,
            name: printable(name.trim_ascii()),
        }
    }
}

/// Returns whether a process has a descriptor of `file` through which a lock was taken. `inode` is
/// how the kernel's list of locks names it, but for the device, whose notation differs from file
/// system to file system.
fn has_lock(process: &Path, inode: &str, file: &fs::Metadata) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fdinfo")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        // Documentation/filesystems/proc.rst, 3.8: "lock:  1: OFDLCK  ADVISORY  WRITE -1 00:19:1234
        // 0 EOF".
        let info = fs::read_to_string(descriptor.path()).unwrap_or_default();
        let locks = info.lines().filter(|line| line.starts_with("lock:"));
        let mut places = locks.flat_map(str::split_whitespace);
        let open = process.join("fd").join(descriptor.file_name());
        places.any(|word| word.ends_with(inode))
            && fs::metadata(open).is_ok_and(|m| (m.dev(), m.ino()) == (file.dev(), file.ino()))
    })
}
