//! Tracepoints of KVM, as a third witness of exits: the Linux kernel counts how often they are
//! passed, with no part in it of KVM's statistics or of the VMM.
//!
//! `kvm:kvm_exit` is passed at each exit from the guest, `kvm:kvm_userspace_exit` at each return
//! from `KVM_RUN` to the VMM (include/trace/events/kvm.h, arch/x86/kvm/trace.h). A KVM by software
//! (PVM) passes only the latter.
//!
//! Counting takes a fraction of a microsecond for each exit.
#![allow(unsafe_code)] // A system call that has no wrapper, and the descriptor that it returns.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};

/// Where tracefs is mounted; the second place is that of older systems.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const KVM_EXIT: &str = "kvm_exit";
const KVM_USERSPACE_EXIT: &str = "kvm_userspace_exit";

/// `PERF_TYPE_TRACEPOINT` (include/uapi/linux/perf_event.h, like all below).
const TYPE_TRACEPOINT: u32 = 2;
/// Bit `inherit` of the flags: threads that the counted thread starts later are counted, too.
const INHERIT: u64 = 1 << 1;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: u64 = 1 << 3;

/// `struct perf_event_attr` as far as its first version goes (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// Why exits cannot be counted by tracepoints.
#[derive(Debug, thiserror::Error)]
pub enum TracepointError {
    /// The number of a tracepoint cannot be read.
    #[error(
        "cannot read {path}, the number of a tracepoint of KVM: run as root, and mount tracefs \
         (mount -t tracefs tracefs /sys/kernel/tracing)"
    )]
    Number {
        /// File with the number.
        path: PathBuf,
        /// The error of the read.
        source: io::Error,
    },
    /// Linux does not count the tracepoint for this process.
    #[error(
        "cannot count tracepoint {name}: this takes the capability CAP_PERFMON, or 1 or less in \
         /proc/sys/kernel/perf_event_paranoid"
    )]
    Open {
        /// Name of the tracepoint.
        name: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A count cannot be read.
    #[error("cannot read the count of a tracepoint")]
    Read(#[source] io::Error),
}

/// Counters of KVM's tracepoints, for the threads that this thread starts after it has opened them.
#[derive(Debug)]
pub struct Tracepoints {
    exits: File,
    returns: File,
}

/// How often threads have passed the tracepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracepointCounts {
    /// Exits from guests to KVM.
    pub kvm_exit: u64,
    /// Returns from `KVM_RUN` to the VMM.
    pub kvm_userspace_exit: u64,
}

impl Tracepoints {
    /// Starts to count. Threads that run virtual CPUs must start later, and by this thread.
    ///
    /// # Errors
    /// [`TracepointError::Number`] if tracefs cannot be read, `Open` if the Linux kernel refuses to
    /// count.
    pub fn open() -> Result<Self, TracepointError> {
        Ok(Self {
            exits: counter(KVM_EXIT)?,
            returns: counter(KVM_USERSPACE_EXIT)?,
        })
    }

    /// Returns the current counts of all threads, also of those that have ended.
    ///
    /// # Errors
    /// [`TracepointError::Read`] if a count cannot be read.
    pub fn counts(&self) -> Result<TracepointCounts, TracepointError> {
        let count = |mut file: &File| {
            let mut bytes = [0; 8];
            let read = file.read_exact(&mut bytes);
            read.map(|()| u64::from_ne_bytes(bytes))
                .map_err(TracepointError::Read)
        };
        Ok(TracepointCounts {
            kvm_exit: count(&self.exits)?,
            kvm_userspace_exit: count(&self.returns)?,
        })
    }
}

/// Opens the counter of a tracepoint of KVM.
fn counter(name: &'static str) -> Result<File, TracepointError> {
    let folder = TRACEFS.into_iter().map(Path::new);
    let mut mounted = folder.filter(|folder| folder.join("events").exists());
    let folder = mounted.next().unwrap_or(Path::new(TRACEFS[0]));
    let attributes = Attributes {
        kind: TYPE_TRACEPOINT,
        size: size_of::<Attributes>() as u32,
        config: number(folder, name)?,
        flags: INHERIT,
        ..Attributes::default()
    };
    let failed = |source| TracepointError::Open { name, source };
    // This thread, on all processors, in no group.
    let (thread, processor, group) = (0, -1, -1);
    // SAFETY: the attributes are valid for the call and have the size that they state; the call
    // changes nothing but our table of descriptors.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            processor,
            group,
            CLOSE_ON_EXEC,
        )
    };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
    let fd = fd.ok_or_else(|| failed(io::Error::last_os_error()))?;
    // SAFETY: the descriptor is fresh, and nobody else knows of it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Reads the number of a tracepoint of KVM from tracefs, which is mounted at `folder`.
fn number(folder: &Path, name: &str) -> Result<u64, TracepointError> {
    let path = folder.join("events/kvm").join(name).join("id");
    let read = std::fs::read_to_string(&path).and_then(|text| {
        let number = text.trim().parse();
        number.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    });
    read.map_err(|source| TracepointError::Number { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_where_tracefs_is_mounted() {
        let name = format!("causeway-tracefs-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let event = folder.join("events/kvm/kvm_exit");
        std::fs::create_dir_all(&event).unwrap();
        let error = number(&folder, KVM_EXIT).unwrap_err().to_string();
        assert!(
            error.contains("kvm_exit/id") && error.contains("mount -t"),
            "{error}"
        );
        std::fs::write(event.join("id"), "103\n").unwrap();
        assert_eq!(number(&folder, KVM_EXIT).unwrap(), 103);
        std::fs::write(event.join("id"), "nonsense").unwrap();
        assert!(number(&folder, KVM_EXIT).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
