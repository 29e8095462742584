//! The process that starts workers for a VMM, whose threads have given up that right.

mod fork;

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use fork::Forked;
use rustix::process::{Signal, pidfd_send_signal};
use zerocopy::IntoBytes;

use crate::served::process::{die_with, take_input};
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::{Kind, StartWorker, WorkerStarted};
use crate::{MemoryGroups, ServeError};

/// Starts worker processes for the VMM with process ID (PID) `parent`, until the VMM closes the
/// socket that is this process's standard input. The workers are children of the VMM, and the
/// kernel kills them when it ends. The VMM says once which program they execute, before it has
/// anything of a guest.
///
/// # Errors
/// [`ServeError::NotStarted`] if standard input is not a socket, [`ServeError::Orphan`] if the VMM
/// has ended, [`ServeError::Begin`] if a message of the VMM is malformed.
pub fn start_workers(parent: u32) -> Result<(), ServeError> {
    let control = take_input().map_err(ServeError::NotStarted)?;
    die_with(parent)?;
    let control = Socket::from_descriptor(control);
    let mut room = buffer();
    let first = control.receive(&mut room)?;
    if first.kind != Kind::Program {
        return Err(SocketError::Malformed("the first message of the VMM names no program").into());
    }
    let orders = Orders::read(parent, first.bytes)?;
    loop {
        match control.receive(&mut room) {
            Ok(request) => obey(&control, &orders, request)?,
            Err(SocketError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// What the VMM has said once.
struct Orders {
    vmm: u32,
    groups: Option<MemoryGroups>,
    /// The path and the arguments of workers.
    program: Vec<CString>,
}

impl Orders {
    fn read(vmm: u32, bytes: &[u8]) -> Result<Self, SocketError> {
        let malformed = || SocketError::Malformed("the VMM names no program");
        let words = bytes.split_inclusive(|byte| *byte == 0);
        let words: Result<Vec<_>, _> = words
            .map(|word| CString::from_vec_with_nul(word.to_vec()))
            .collect();
        let mut words = words.map_err(|_| malformed())?.into_iter();
        let (folder, bytes) = words.next().zip(words.next()).ok_or_else(malformed)?;
        let bytes = bytes.to_str().ok().and_then(|text| text.parse().ok());
        let groups = MemoryGroups {
            folder: OsStr::from_bytes(folder.as_bytes()).into(),
            memory_max_bytes: bytes.ok_or_else(malformed)?,
        };
        let program: Vec<_> = words.collect();
        match program.is_empty() {
            true => Err(malformed()),
            false => Ok(Self {
                vmm,
                groups: (!folder.is_empty()).then_some(groups),
                program,
            }),
        }
    }
}

/// Starts a worker, and tells the VMM.
fn obey(control: &Socket, orders: &Orders, mut request: Datagram<'_>) -> Result<(), SocketError> {
    if request.kind != Kind::StartWorker {
        return Err(SocketError::Malformed("the VMM asks for no worker"));
    }
    let StartWorker { partition } = request.body()?;
    let started = match request.descriptor() {
        Ok(input) => start(orders, partition, &input),
        Err(SocketError::Shortage) => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        Err(error) => return Err(error),
    };
    let none = |e: io::Error| (0, e.raw_os_error().unwrap_or(libc::EIO), Vec::new());
    let (pid, errno, files) = started.unwrap_or_else(none);
    let answer = WorkerStarted {
        pid,
        errno: errno.cast_unsigned(),
    };
    let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    control.send(Kind::WorkerStarted, &[answer.as_bytes()], &files)
}

/// Starts a worker. Returns its process ID, the error if it could not be executed, its pidfd, and
/// `/proc/PID/status` if it can be opened: the VMM may not open it.
///
/// A worker does nothing before the VMM sends it a message, so it is in its group in time.
fn start(orders: &Orders, partition: u32, input: &OwnedFd) -> io::Result<(u32, i32, Vec<OwnedFd>)> {
    let partition = CString::new(partition.to_string())?;
    let words = orders.program.iter().chain([&partition]);
    let words = words.map(CString::as_c_str).collect::<Vec<_>>();
    let Forked {
        pid,
        pidfd,
        mut errno,
    } = fork::start(&words, input)?;
    if errno == 0
        && let Some(groups) = &orders.groups
        && let Err(e) = groups.enter(orders.vmm, pid)
    {
        log::error!(
            "a worker process gets no control group in {}: {e}",
            groups.folder.display()
        );
        errno = e.raw_os_error().unwrap_or(libc::EIO);
        // An error means that it has ended.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    let status = File::open(format!("/proc/{pid}/status")).map(OwnedFd::from);
    let files = [pidfd].into_iter().chain(status.ok());
    Ok((pid, errno, files.collect()))
}
