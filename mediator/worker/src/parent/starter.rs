//! The VMM's side of the process that starts workers ([`crate::start_workers`]).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};
use zerocopy::IntoBytes;

use super::channel::expect;
use super::{descriptors, living};
use crate::MemoryGroups;
use crate::socket::{Socket, SocketError, buffer};
use crate::wire::{Kind, StartWorker, WorkerStarted};

/// Variables of the environment that a worker inherits; and all that begin with `CAUSEWAY_`.
const VARIABLES: [&str; 9] = [
    "RUST_LOG",
    "RUST_BACKTRACE",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_MPS_PIPE_DIRECTORY",
    "VK_DRIVER_FILES",
    "VK_ADD_DRIVER_FILES",
    "VK_ICD_FILENAMES",
];

/// The program that a VMM starts as a worker process. The program must call [`crate::serve`].
#[derive(Clone, Debug)]
pub struct Program {
    /// Path of the executable.
    pub path: PathBuf,
    /// Arguments of the program. Two more are appended: the process ID (PID) of the VMM, and the
    /// number of the GPU's partition that the session holds, counted from 0. Sessions that are open
    /// at the same time hold different partitions.
    pub arguments: Vec<OsString>,
    /// Environment variables of the program, in addition to those that a worker inherits from the
    /// VMM.
    pub environment: Vec<(OsString, OsString)>,
    /// Arguments with which the VMM's own executable calls [`crate::start_workers`]. One more is
    /// appended: the process ID (PID) of the VMM.
    pub starter: Vec<OsString>,
    /// What bounds the host memory of each worker; `None` for nothing but its session's limits.
    pub groups: Option<MemoryGroups>,
}

impl Program {
    /// Returns the command of the process that starts workers, with its socket as its standard
    /// input. Workers have its environment.
    fn starter(&self, socket: OwnedFd) -> Command {
        let mut command = Command::new("/proc/self/exe");
        let kept = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            VARIABLES.contains(&&*name) || name.starts_with("CAUSEWAY_")
        });
        command
            .args(&self.starter)
            .arg(process::id().to_string())
            .env_clear()
            .envs(kept.collect::<Vec<_>>())
            // No guest may find on disk what another has compiled.
            .env("CUDA_CACHE_DISABLE", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(socket))
            .stdout(Stdio::null());
        command
    }

    /// Returns the groups, the path and the arguments of all workers, each ended by a zero byte.
    fn words(&self) -> Vec<u8> {
        let vmm = OsString::from(process::id().to_string());
        let groups = self.groups.as_ref();
        let folder = groups.map_or(OsStr::new(""), |groups| groups.folder.as_os_str());
        let bytes = groups.map_or(0, |groups| groups.memory_max_bytes);
        let bytes = OsString::from(bytes.to_string());
        let words = [folder, &bytes, self.path.as_os_str()].into_iter();
        let words = words.chain(self.arguments.iter().map(OsString::as_os_str));
        let mut bytes = Vec::new();
        for word in words.chain([vmm.as_os_str()]) {
            bytes.extend(word.as_bytes());
            bytes.push(0);
        }
        bytes
    }
}

/// A process that was started for this one, and is its child.
#[derive(Debug)]
pub(super) struct Child {
    pub pid: Pid,
    /// Its pidfd.
    pub descriptor: Arc<OwnedFd>,
    /// `/proc/PID/status`; `None` if it could not be opened.
    pub status: Option<File>,
    /// The folder of its control group, if it has one of its own.
    pub group: Option<PathBuf>,
}

/// The process that starts workers. It is told once which program, so a VMM that a guest has taken
/// over can start no other one.
///
/// The kernel kills it and its workers when the *thread* ends that has created this object.
#[derive(Debug)]
pub(super) struct Starter {
    /// `None` when it has ended.
    control: Mutex<Option<Socket>>,
    process: Mutex<process::Child>,
    groups: Option<MemoryGroups>,
    _pidfd: Arc<OwnedFd>,
}

impl Starter {
    /// Starts the process that starts `program`.
    pub fn new(program: &Program) -> io::Result<Arc<Self>> {
        if let Err(e) = descriptors::keep() {
            log::warn!(
                "worker processes may inherit files that libraries opened, because close_range \
                 failed: {e}"
            );
        }
        let (control, end) = Socket::pair()?;
        control
            .send(Kind::Program, &[&program.words()], &[])
            .map_err(failure)?;
        let process = program.starter(end.into_descriptor()).spawn()?;
        let pidfd = pidfd_open(Pid::from_child(&process), PidfdFlags::empty())?;
        Ok(Arc::new(Self {
            control: Mutex::new(Some(control)),
            process: Mutex::new(process),
            groups: program.groups.clone(),
            _pidfd: living::register(pidfd),
        }))
    }

    /// Starts a worker with `input` as its standard input, for a session with this partition.
    pub fn start(&self, partition: u32, input: OwnedFd) -> io::Result<Child> {
        let mut kept = self.control.lock();
        let gone = || io::Error::other("the process that starts workers has ended");
        let control = kept.as_ref().ok_or_else(gone)?;
        let asked = ask(control, partition, &input);
        if asked.is_err() {
            // Its answer, if one comes yet, is not one to the next request.
            *kept = None;
        }
        let (started, descriptors) = asked.map_err(failure)?;
        let pid = Pid::from_raw(started.pid.cast_signed());
        let pid = match (pid, started.errno.cast_signed()) {
            (Some(pid), 0) => pid,
            (pid, errno) => {
                // It ends, as a child of this process.
                pid.map(|pid| waitpid(Some(pid), WaitOptions::empty()));
                return Err(io::Error::from_raw_os_error(errno));
            }
        };
        let mut descriptors = descriptors.into_iter();
        // Without a pidfd the worker is left to itself. It ends at once: the caller closes the
        // other end of its standard input.
        let descriptor = descriptors.next().ok_or(SocketError::Shortage);
        let descriptor = descriptor.map_err(failure)?;
        Ok(Child {
            pid,
            descriptor: living::register(descriptor),
            status: descriptors.next().map(File::from),
            group: self
                .groups
                .as_ref()
                .map(|groups| groups.group_of(process::id(), started.pid)),
        })
    }

    /// Ends the process, and waits for its end. Workers live on.
    pub fn end(&self) {
        // It ends when its socket is closed.
        drop(self.control.lock().take());
        if let Err(e) = self.process.lock().wait() {
            log::debug!("the process that starts workers was not seen to end: {e}");
        }
    }
}

/// Asks for a worker. Returns what has become of it, and its descriptors.
fn ask(
    control: &Socket,
    partition: u32,
    input: &OwnedFd,
) -> Result<(WorkerStarted, Vec<OwnedFd>), SocketError> {
    let request = StartWorker { partition };
    control.send(Kind::StartWorker, &[request.as_bytes()], &[input.as_fd()])?;
    let mut room = buffer();
    let reply = loop {
        match control.receive(&mut room) {
            // A signal has come, as virtual CPUs get them.
            Err(SocketError::Timeout) => {}
            received => break received?,
        }
    };
    expect(&reply, Kind::WorkerStarted)?;
    Ok((reply.body()?, reply.descriptors))
}

fn failure(error: SocketError) -> io::Error {
    match error {
        SocketError::Failed(error) => error.into(),
        error => io::Error::other(format!("the process that starts workers: {error}")),
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rig::STARTER;
    use rustix::process::{Signal, kill_process, test_kill_process};
    use vmm_sys_util::signal::{Killable, SIGRTMIN, register_signal_handler};

    fn program(path: &str) -> Program {
        Program {
            path: path.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            starter: vec![STARTER.into()],
            groups: None,
        }
    }

    fn input() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn what_is_started_is_a_child_of_this_process_with_the_arguments_of_a_worker() {
        let mut program = program("/bin/sh");
        // Behind them come this process's ID and the number of the partition.
        let script = "test $PPID = $0 && exit $1";
        program.arguments = vec!["-c".into(), script.into()];
        let starter = Starter::new(&program).unwrap();
        let child = starter.start(7, input()).unwrap();
        assert!(child.status.is_some());
        let (_, status) = waitpid(Some(child.pid), WaitOptions::empty())
            .unwrap()
            .unwrap();
        assert_eq!(status.exit_status(), Some(7));
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_told_with_the_reason() {
        let starter = Starter::new(&program("/nowhere/worker")).unwrap();
        let refused = starter.start(0, input()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn no_second_program_is_taken() {
        let starter = Starter::new(&program("/bin/true")).unwrap();
        let second = program("/bin/false").words();
        let control = starter.control.lock();
        let control = control.as_ref().unwrap();
        control.send(Kind::Program, &[&second], &[]).unwrap();
        let answer = control.receive(&mut buffer()).map(|reply| reply.kind);
        assert!(matches!(answer, Err(SocketError::Closed)), "{answer:?}");
    }

    #[test]
    fn after_its_end_nothing_is_started() {
        let starter = Starter::new(&program("/bin/true")).unwrap();
        starter.end();
        let refused = starter.start(0, input()).unwrap_err().to_string();
        assert!(refused.contains("has ended"), "{refused}");
    }

    /// As virtual CPUs get it that are to leave their guest.
    #[test]
    fn a_signal_does_not_mix_up_the_answers() {
        extern "C" fn handle(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
        register_signal_handler(SIGRTMIN(), handle).unwrap();
        let starter = Starter::new(&program("/bin/true")).unwrap();
        let process = Pid::from_child(&starter.process.lock());
        kill_process(process, Signal::STOP).unwrap();
        let asking = {
            let starter = Arc::clone(&starter);
            std::thread::spawn(move || starter.start(1, input()).map(|child| child.pid))
        };
        // Some of these come while it waits for the answer.
        for _ in 0..50 {
            asking.kill(SIGRTMIN()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        kill_process(process, Signal::CONT).unwrap();
        let first = asking.join().unwrap().unwrap();
        let second = starter.start(2, input()).unwrap().pid;
        assert_ne!(first, second);
        for pid in [first, second] {
            waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        }
    }

    #[test]
    fn nothing_is_left_of_it_when_it_is_dropped() {
        let starter = Starter::new(&program("/bin/true")).unwrap();
        let process = Pid::from_child(&starter.process.lock());
        test_kill_process(process).unwrap();
        drop(starter);
        assert!(test_kill_process(process).is_err(), "not even a zombie");
    }
}
