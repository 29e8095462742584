//! Worker processes: how they end, and what they use.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, pidfd_send_signal, waitpid};

use super::starter::{Child, Starter};
use crate::memory_group;
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

/// A worker process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    ended: OnceLock<ExitStatus>,
    /// Held while the kernel is asked how the process ended: it says so once.
    asking: Mutex<()>,
    /// Level of log lines about this process's start and end.
    level: log::Level,
}

impl Process {
    /// Starts the worker process of a session, with `socket` as its standard input. The numbers
    /// are those of the session and of its partition.
    pub fn start(
        starter: &Starter,
        (session, partition): (u64, u32),
        socket: OwnedFd,
    ) -> io::Result<Self> {
        let child = starter.start(partition, socket)?;
        let level = level();
        let id = child.pid.as_raw_nonzero();
        log::log!(level, "worker process {id} starts, for session {session}");
        Ok(Self {
            child,
            ended: OnceLock::new(),
            asking: Mutex::default(),
            level,
        })
    }

    /// Returns the process ID (PID) of the worker process.
    pub fn id(&self) -> u32 {
        self.child.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Kills the process, if it still runs.
    pub fn kill(&self) {
        // An error means that it has ended.
        let _ = pidfd_send_signal(&self.child.descriptor, Signal::KILL);
    }

    /// Kills the process and waits until it has ended.
    pub fn finish(&self) {
        self.kill();
        if !self.wait(KILL_PATIENCE) {
            log::error!(
                "worker process {id} was killed but still runs, probably because a driver delays \
                 its end; this process no longer waits for it",
                id = self.id()
            );
        }
    }

    /// Waits until the process has ended, but no longer than `limit`. Returns whether it has ended;
    /// if so, it is also reaped, so that no zombie remains.
    pub fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if self.has_ended() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let left = Timespec::try_from(left).ok();
            let mut ended = [PollFd::new(&self.child.descriptor, PollFlags::IN)];
            // After a signal or an error, the loop looks once more.
            let _ = poll(&mut ended, left.as_ref());
        }
    }

    fn has_ended(&self) -> bool {
        let _asking = self.asking.lock();
        if self.ended.get().is_some() {
            return true;
        }
        let status = match waitpid(Some(self.child.pid), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => ExitStatus::from_raw(status.as_raw()),
            // The kernel tells nobody, as where SIGCHLD is ignored.
            Err(Errno::CHILD) => return true,
            Ok(None) | Err(_) => return false,
        };
        if self.ended.set(status).is_ok() {
            if let Some(group) = &self.child.group {
                memory_group::remove(group);
            }
            log::log!(self.level, "worker process {} {}", self.id(), how(status));
        }
        true
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
        let length = self.child.status.as_ref()?.read_at(&mut status, 0).ok()?;
        resident_bytes(&String::from_utf8_lossy(&status[..length]))
    }
}

/// Returns the resident memory in bytes, without shared memory, that a process's status tells
/// (proc(5), "/proc/pid/status").
fn resident_bytes(status: &str) -> Option<u64> {
    let kib = |field: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some((kib("RssAnon:")? + kib("RssFile:")?) << 10)
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
    use crate::parent::starter::Program;
    use crate::tests::rig::STARTER;

    #[test]
    fn resident_memory_is_that_of_the_process_and_of_files() {
        let status = "Name:\tx\nRssAnon:\t   12 kB\nRssFile:\t    5 kB\nRssShmem:\t  9 kB\n";
        assert_eq!(resident_bytes(status), Some(17 << 10));
        assert_eq!(resident_bytes("RssAnon:\t12 kB\n"), None);
    }

    fn run(script: &str) -> Process {
        let program = Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            starter: vec![STARTER.into()],
            groups: None,
        };
        let input = std::fs::File::open("/dev/null").unwrap();
        Process::start(&Starter::new(&program).unwrap(), (1, 0), input.into()).unwrap()
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
