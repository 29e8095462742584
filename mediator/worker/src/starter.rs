//! The process that starts workers for a VMM, whose threads have given up that right.

mod fork;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fork::Forked;
use zerocopy::IntoBytes;

use crate::ServeError;
use crate::served::process::{die_with, take_input};
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::{Kind, StartWorker, WorkerStarted};

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
    let words = words(first.bytes)?;
    loop {
        match control.receive(&mut room) {
            Ok(request) => obey(&control, &words, request)?,
            Err(SocketError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the path and the arguments that the VMM has sent.
fn words(bytes: &[u8]) -> Result<Vec<CString>, SocketError> {
    let words = bytes.split_inclusive(|byte| *byte == 0);
    let words: Result<Vec<_>, _> = words
        .map(|word| CString::from_vec_with_nul(word.to_vec()))
        .collect();
    words
        .ok()
        .filter(|words| !words.is_empty())
        .ok_or(SocketError::Malformed("the VMM names no program"))
}

/// Starts a worker, and tells the VMM.
fn obey(control: &Socket, words: &[CString], mut request: Datagram<'_>) -> Result<(), SocketError> {
    if request.kind != Kind::StartWorker {
        return Err(SocketError::Malformed("the VMM asks for no worker"));
    }
    let StartWorker { partition } = request.body()?;
    let started = match request.descriptor() {
        Ok(input) => start(words, partition, &input),
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
fn start(
    words: &[CString],
    partition: u32,
    input: &OwnedFd,
) -> io::Result<(u32, i32, Vec<OwnedFd>)> {
    let partition = CString::new(partition.to_string())?;
    let words = words.iter().chain([&partition]).map(CString::as_c_str);
    let Forked { pid, pidfd, errno } = fork::start(&words.collect::<Vec<_>>(), input)?;
    let status = File::open(format!("/proc/{pid}/status")).map(OwnedFd::from);
    let files = [pidfd].into_iter().chain(status.ok());
    Ok((pid, errno, files.collect()))
}
