//! The program: how it is started, gets signals, and ends.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use causeway_embedded_libraries::foreign_runtime;
use causeway_initramfs::Links;
use causeway_terminal::{Code, Failure, shown_path};
use causeway_vmm::signals::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// What a shell adds to the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

/// A running program.
pub struct Program(Child);

impl Program {
    /// Starts `words[0]` with the other words as arguments. It finds the library in `folder` and
    /// the server at `socket`, and receives the signals that `signals` blocks here.
    pub fn start(
        words: &[OsString],
        folder: &Path,
        socket: &Path,
        signals: &Signals,
    ) -> Result<Self, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::usage("PROGRAM is missing"));
        };
        check_runtime(Path::new(program))?;
        let path = std::env::var_os("LD_LIBRARY_PATH");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("CAUSEWAY_SOCKET", socket)
            .env("LD_LIBRARY_PATH", prepended(folder, path.as_deref()));
        signals.let_through(&mut command);
        let child = command.spawn();
        child
            .map(Self)
            .map_err(|e| Failure::usage_from("PROGRAM", &program.to_string_lossy(), e))
    }

    /// Waits for the program's end, and passes signals on to it. Returns its exit status as a shell
    /// has it.
    pub fn wait(mut self, signals: &mut Signals) -> Result<u8, Failure> {
        let failed = |e| Failure::new(Code::Crashed, "cannot wait for the program's end", e);
        let pid = Pid::from_child(&self.0);
        let end = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
        loop {
            let mut polled = [
                PollFd::new(&end, PollFlags::IN),
                PollFd::from_borrowed_fd(borrow(signals), PollFlags::IN),
            ];
            retry_on_intr(|| poll(&mut polled, None)).map_err(failed)?;
            if !polled[0].revents().is_empty() {
                break;
            }
            while let Some(arrived) = signals.take_arrived() {
                // The terminal has sent its signals to the program, too.
                if !arrived.is_of_terminal
                    && let Some(signal) = Signal::from_named_raw(arrived.signal)
                {
                    // The program may have ended meanwhile.
                    let _ = kill_process(pid, signal);
                }
            }
        }
        let status = self
            .0
            .wait()
            .map_err(|e| Failure::new(Code::Crashed, "cannot wait for the program's end", e))?;
        Ok(code_of(status))
    }
}

/// Largest file whose needs are looked at.
const LOOKED_AT_BYTES_MAX: u64 = 256 << 20;

/// Refuses a program that needs the runtime library of another CUDA. A file that cannot be read as
/// a program is for the loader to judge, and so is one that is found in `PATH`.
fn check_runtime(program: &Path) -> Result<(), Failure> {
    let is_path = program.components().count() > 1;
    let fits = |it: std::fs::Metadata| it.is_file() && it.len() <= LOOKED_AT_BYTES_MAX;
    let content = if is_path && std::fs::metadata(program).is_ok_and(fits) {
        std::fs::read(program).ok()
    } else {
        None
    };
    let links = content.and_then(|content| Links::of_library(&content).ok());
    let needed = links.map_or_else(Vec::new, |links| links.needed);
    let found = needed
        .iter()
        .find_map(|name| Some((name, foreign_runtime(name)?)));
    let Some((name, cuda)) = found else {
        return Ok(());
    };
    Err(Failure::usage(format!(
        "{} was built for CUDA {cuda}: it needs {}, and Causeway has the runtime libraries of CUDA \
         12 and 13: build it with nvcc of CUDA 12 or 13.0",
        shown_path(program),
        name.display()
    )))
}

/// Returns the list of folders `path` with `folder` in front.
fn prepended(folder: &Path, path: Option<&OsStr>) -> OsString {
    let mut all = folder.as_os_str().to_owned();
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        all.push(":");
        all.push(path);
    }
    all
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().map_or(0, |signal| SIGNALLED + signal);
    let code = status.code().unwrap_or(signal);
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[allow(unsafe_code)] // `Signals` has no `AsFd`.
fn borrow(signals: &Signals) -> BorrowedFd<'_> {
    // SAFETY: the descriptor stays open as long as the signals are borrowed.
    unsafe { BorrowedFd::borrow_raw(signals.as_raw_fd()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_before_others() {
        let joined = |path: Option<&str>| prepended(Path::new("/own"), path.map(OsStr::new));
        assert_eq!(joined(None), "/own");
        // An empty entry would mean the working directory.
        assert_eq!(joined(Some("")), "/own");
        assert_eq!(joined(Some("/a:/b")), "/own:/a:/b");
    }

    #[test]
    fn an_end_by_a_signal_is_128_and_its_number() {
        assert_eq!(code_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code_of(ExitStatus::from_raw(9)), 137);
    }
}
