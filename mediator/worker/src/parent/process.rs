//! Starting worker processes, and seeing them end.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::descriptors;
use crate::socket::SocketError;

/// Longest wait for a process that has closed its sockets, to learn how it ended.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for a killed process: the kernel may have to end a GPU context first.
const KILL_PATIENCE: Duration = Duration::from_secs(20);

/// Number of worker processes whose starts and ends are info lines of the log; later ones have
/// level debug, because a guest can cause any number of them.
const INFO_LINES: u64 = 256;

/// More bytes than `/proc/PID/status` has (proc_pid_status(5)).
const STATUS_BYTES_MAX: usize = 8192;

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
}

impl Program {
    /// Returns the command that starts the program, with the worker's socket as its standard input.
    fn command(&self, partition: u32, socket: OwnedFd) -> Command {
        let mut command = Command::new(&self.path);
        let kept = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            VARIABLES.contains(&&*name) || name.starts_with("CAUSEWAY_")
        });
        command
            .args(&self.arguments)
            .arg(std::process::id().to_string())
            .arg(partition.to_string())
            .env_clear()
            .envs(kept.collect::<Vec<_>>())
            // No guest may find on disk what another has compiled.
            .env("CUDA_CACHE_DISABLE", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(socket))
            .stdout(Stdio::null());
        command
    }
}

type Started = io::Result<(Child, Files)>;
type Request = (Command, Sender<Started>);

/// The thread that starts all workers. The kernel kills them when it ends, so it lives as long as
/// they do.
#[derive(Debug)]
pub(super) struct Spawner {
    requests: Mutex<Sender<Request>>,
}

impl Spawner {
    pub fn new() -> io::Result<Arc<Self>> {
        let (requests, queue) = channel::<Request>();
        std::thread::Builder::new()
            .name("workers".to_owned())
            .spawn(move || {
                for (mut command, reply) in queue {
                    if let Err(e) = descriptors::keep() {
                        log::warn!(
                            "worker processes may inherit files that libraries opened, because \
                             close_range failed: {e}"
                        );
                    }
                    // The caller waits for the reply.
                    let _ = reply.send(command.spawn().and_then(with_files));
                }
            })?;
        Ok(Arc::new(Self {
            requests: Mutex::new(requests),
        }))
    }

    fn spawn(&self, command: Command) -> Started {
        let gone = || io::Error::other("the thread that starts workers has ended");
        let (reply, answer) = channel();
        let sent = {
            let requests = self.requests.lock();
            requests.send((command, reply))
        };
        sent.map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

/// Files of a worker process. The thread that starts it opens them: those that serve guests may be
/// confined, and could not.
#[derive(Debug)]
struct Files {
    descriptor: OwnedFd,
    /// `/proc/PID/status`; `None` if it could not be opened.
    status: Option<File>,
}

fn with_files(mut child: Child) -> Started {
    let descriptor = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let descriptor = descriptor.inspect_err(|_| {
        // A process without a descriptor cannot be monitored: end it.
        let _ = child.kill().and_then(|()| child.wait());
    })?;
    let status = File::open(format!("/proc/{}/status", child.id())).ok();
    Ok((child, Files { descriptor, status }))
}

/// A worker process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Mutex<Child>,
    id: u32,
    files: Files,
    ended: OnceLock<ExitStatus>,
    /// Level of log lines about this process's start and end.
    level: log::Level,
    _spawner: Arc<Spawner>,
}

impl Process {
    /// Starts `program` as the worker process of a session, with `socket` as its standard input.
    /// The numbers are those of the session and of its partition.
    pub fn start(
        spawner: &Arc<Spawner>,
        program: &Program,
        (session, partition): (u64, u32),
        socket: OwnedFd,
    ) -> io::Result<Self> {
        let (child, files) = spawner.spawn(program.command(partition, socket))?;
        let level = level();
        log::log!(
            level,
            "worker process {} starts, for session {session}",
            child.id()
        );
        Ok(Self {
            id: child.id(),
            child: Mutex::new(child),
            files,
            ended: OnceLock::new(),
            level,
            _spawner: Arc::clone(spawner),
        })
    }

    /// Returns the process ID (PID) of the worker process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Kills the process, if it still runs.
    pub fn kill(&self) {
        // An error means that it has ended.
        let _ = pidfd_send_signal(&self.files.descriptor, Signal::KILL);
    }

    /// Kills the process and waits until it has ended.
    pub fn finish(&self) {
        self.kill();
        if !self.wait(KILL_PATIENCE) {
            log::error!(
                "worker process {id} was killed but still runs, probably because a driver delays \
                 its end; this process no longer waits for it",
                id = self.id
            );
        }
    }

    /// Waits until the process has ended, but no longer than `limit`. Returns whether it has ended;
    /// if so, it is also reaped, so that no zombie remains.
    pub fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if self.ended.get().is_some() {
                return true;
            }
            let mut child = self.child.lock();
            if let Ok(Some(status)) = child.try_wait() {
                if self.ended.set(status).is_ok() {
                    log::log!(self.level, "worker process {} {}", self.id, how(status));
                }
                return true;
            }
            drop(child);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let left = Timespec::try_from(left).ok();
            let mut ended = [PollFd::new(&self.files.descriptor, PollFlags::IN)];
            // After a signal or an error, the loop looks once more.
            let _ = poll(&mut ended, left.as_ref());
        }
    }

    /// Returns the end of a sentence that says how the process failed, after `error` occurred on
    /// its socket; for example "was killed by signal 9" or "did not answer in time". If the process
    /// has closed the socket, first waits up to one second for it to end.
    pub fn failure(&self, error: &SocketError) -> String {
        match error {
            SocketError::Closed => {
                self.wait(END_PATIENCE);
                let how = self.ending();
                how.unwrap_or_else(|| "closed its sockets".to_owned())
            }
            SocketError::Timeout => "did not answer in time".to_owned(),
            SocketError::Malformed(what) => format!("broke the protocol: {what}"),
            SocketError::Shortage => format!("is given up: {error}"),
            SocketError::Failed(error) => format!("cannot be reached: {error}"),
        }
    }

    /// Returns the end of a sentence that says how the process ended, for example "ended with code
    /// 3"; `None` unless [`Self::wait`] has seen it end.
    pub fn ending(&self) -> Option<String> {
        self.ended.get().map(|status| how(*status))
    }

    /// Returns the resident memory of the process in bytes, without shared memory such as guest
    /// RAM; `None` if the process has ended.
    pub fn rss_bytes(&self) -> Option<u64> {
        let mut status = [0; STATUS_BYTES_MAX];
        let length = self.files.status.as_ref()?.read_at(&mut status, 0).ok()?;
        let status = String::from_utf8_lossy(&status[..length]);
        let kib = |field: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.trim().strip_suffix("kB")?.trim().parse().ok()
        };
        Some((kib("RssAnon:")? + kib("RssFile:")?) << 10)
    }
}

/// Returns the end of a sentence that says how a process ended.
fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) if signal == Signal::SYS.as_raw() => {
            "was ended by its sandbox: its last line on standard error names the system call"
                .to_owned()
        }
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Returns the level of log lines about the next process.
fn level() -> log::Level {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    match STARTED.fetch_add(1, Ordering::Relaxed) {
        ..INFO_LINES => log::Level::Info,
        _ => log::Level::Debug,
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.get().is_none() {
            self.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Process {
        let program = Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
        };
        let input = std::fs::File::open("/dev/null").unwrap();
        Process::start(&Spawner::new().unwrap(), &program, (1, 0), input.into()).unwrap()
    }

    #[test]
    fn how_a_process_ended_is_known() {
        let process = run("exit 3");
        assert!(process.wait(Duration::from_secs(20)));
        assert_eq!(process.ending().unwrap(), "ended with code 3");
        let process = run("kill -SYS $$");
        assert!(process.wait(Duration::from_secs(20)));
        assert!(process.ending().unwrap().contains("by its sandbox"));
        let process = run("sleep 60");
        assert!(!process.wait(Duration::from_millis(1)));
        assert!(process.rss_bytes().is_some());
        process.finish();
        assert_eq!(process.ending().unwrap(), "was killed by signal 9");
        assert!(process.rss_bytes().is_none(), "it is no zombie");
    }

    #[test]
    fn the_environment_is_not_inherited() {
        for (name, inherited) in [
            ("PATH", false),
            ("CARGO_PKG_NAME", false),
            ("CUDA_CACHE_DISABLE", true),
        ] {
            assert!(
                inherited || std::env::var_os(name).is_some(),
                "{name}: or it shows nothing"
            );
            // What the kernel passed on: a shell sets some variables by itself.
            let process = run(&format!(
                "/bin/grep -qz ^{name}= /proc/$$/environ && exit 2; exit 3"
            ));
            assert!(process.wait(Duration::from_secs(20)));
            let code = if inherited { 2 } else { 3 };
            assert_eq!(
                process.ending().unwrap(),
                format!("ended with code {code}"),
                "{name}"
            );
        }
    }

    #[test]
    fn descriptors_are_not_inherited() {
        let (reader, _writer) = std::io::pipe().unwrap();
        // As a library may have opened it.
        rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let process = run(&format!("test -e /proc/$$/fd/{number} && exit 2; exit 3"));
        assert!(process.wait(Duration::from_secs(20)));
        assert_eq!(process.ending().unwrap(), "ended with code 3");
    }
}
