//! Runs the command in a scratch directory, and checks that nothing is left behind.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

/// Longest that any run may take before the test gives it up.
const PATIENCE: Duration = Duration::from_secs(240);

/// Exit code of a command with a bad argument.
const USAGE: i32 = 2;

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code, or the negative number of the signal that killed it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How long it took.
    pub duration: Duration,
}

/// A directory that holds what a run reads and writes.
pub struct Scratch {
    directory: PathBuf,
    /// Where processes with guests can be found.
    runtime: PathBuf,
    /// Whether the folder above is another's.
    is_beside: bool,
}

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{}-{number}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&directory).unwrap();
        let parent = directory.with_extension("run");
        fs::create_dir_all(&parent).unwrap();
        Self {
            runtime: parent.join("causeway"),
            directory,
            is_beside: false,
        }
    }

    /// Another directory, for commands that find those of `other`.
    pub fn beside(other: &Self) -> Self {
        let mut beside = Self::new();
        let _ = fs::remove_dir(beside.runtime_parent());
        beside.runtime.clone_from(&other.runtime);
        beside.is_beside = true;
        beside
    }

    /// Where processes with guests can be found. It is there only while there are any.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// What a command is told of that: the folder in which it is.
    pub fn runtime_parent(&self) -> &Path {
        self.runtime.parent().unwrap()
    }

    /// Path of a file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file and gives its path as an argument.
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Names of the files in the directory.
    pub fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.directory).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Runs the command to its end.
    pub fn run(&self, words: &[&str]) -> Outcome {
        self.start(words).finish()
    }

    /// Starts the command.
    pub fn start(&self, words: &[&str]) -> Running {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.args(words);
        self.start_command(command)
    }

    /// Starts a command that, in the end, becomes the one under test.
    pub fn start_command(&self, mut command: std::process::Command) -> Running {
        let objects = shared_objects();
        let files = self.names();
        command
            .current_dir(&self.directory)
            .env("TMPDIR", &self.directory)
            .env("CAUSEWAY_RUNTIME_DIR", self.runtime_parent())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(self.output("stdout"))
            .stderr(self.output("stderr"))
            .process_group(0);
        let child = command.spawn().unwrap();
        let socket = self.runtime.join(child.id().to_string());
        Running {
            child,
            started: Instant::now(),
            directory: self.directory.clone(),
            socket,
            files,
            objects,
        }
    }

    /// Outputs go to files beside the directory: a pipe that nobody reads could hold the command
    /// up.
    fn output(&self, name: &str) -> fs::File {
        fs::File::create(self.directory.with_extension(name)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
        if !self.is_beside {
            let _ = fs::remove_dir_all(self.runtime_parent());
        }
        for output in ["stdout", "stderr"] {
            let _ = fs::remove_file(self.directory.with_extension(output));
        }
    }
}

/// A command under way.
pub struct Running {
    child: Child,
    started: Instant,
    directory: PathBuf,
    /// At which it is found, if it has guests.
    socket: PathBuf,
    files: BTreeSet<String>,
    objects: BTreeSet<String>,
}

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Number of the process, and of its group.
    pub fn id(&self) -> i32 {
        self.pid().as_raw_nonzero().get()
    }

    /// Stops the process, and waits until it does nothing more.
    pub fn stop(&self) {
        stop(self.pid());
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// What standard output holds so far.
    pub fn stdout(&self) -> String {
        fs::read_to_string(self.directory.with_extension("stdout")).unwrap()
    }

    /// What standard error holds so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.directory.with_extension("stderr")).unwrap()
    }

    /// Waits for the end, and checks that no process and no file but a report is left.
    pub fn finish(mut self) -> Outcome {
        let status = self.wait();
        let (stdout, stderr) = (self.stdout(), self.stderr());
        let code = status
            .code()
            .unwrap_or_else(|| -status.signal().unwrap_or(0));
        let outcome = Outcome {
            code,
            stdout,
            stderr,
            duration: self.started.elapsed(),
        };
        let group = test_kill_process_group(self.pid());
        assert_eq!(
            group,
            Err(Errno::SRCH),
            "processes are left behind: {outcome:?}"
        );
        let published = code >= 0 && self.socket.exists();
        assert!(!published, "its socket is left behind: {outcome:?}");
        for name in Scratch::names_in(&self.directory).difference(&self.files) {
            let report = [".json", ".csv", ".html", ".log", ".1"];
            assert!(
                report.iter().any(|end| name.ends_with(end)),
                "{name} is left behind: {outcome:?}"
            );
        }
        let left: Vec<_> = shared_objects()
            .difference(&self.objects)
            .cloned()
            .collect();
        assert!(left.is_empty(), "{left:?} are left behind: {outcome:?}");
        outcome
    }

    fn wait(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if self.started.elapsed() > PATIENCE {
                let _ = kill_process_group(self.pid(), Signal::KILL);
                let _ = self.child.wait();
                panic!("no end after {PATIENCE:?}: {}", self.stderr());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Stops a process and waits until all its threads are stopped: until each has seen the signal, it
/// still answers.
#[track_caller]
pub fn stop(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let is_stopped = || {
        fs::read_dir(&tasks).unwrap().flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The state follows the name, which is in parentheses.
            stat.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    };
    let begun = Instant::now();
    while !is_stopped() {
        assert!(begun.elapsed() < PATIENCE, "{process:?} does not stop");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Scratch {
    fn names_in(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

/// Shared memory objects with a name of ours: there should never be one.
fn shared_objects() -> BTreeSet<String> {
    let names = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.contains("causeway")).collect()
}

impl Outcome {
    /// Asserts a refusal: this exit code, nothing on standard output, and one message that names
    /// what is wrong.
    #[track_caller]
    pub fn assert_refused(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let messages = self.stderr.lines();
        let messages = messages.filter(|line| line.starts_with("causeway: "));
        let messages: Vec<&str> = messages.collect();
        assert_eq!(messages.len(), 1, "there must be one message: {self:?}");
        let lines = self.stderr.lines().count();
        assert!(
            code != USAGE || lines == 1,
            "there must be one line: {self:?}"
        );
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "`{part}` is not named: {self:?}"
            );
        }
    }

    /// Asserts that all guests passed.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert_eq!(self.code, 0, "{self:?}");
    }
}

/// Whether there is a KVM to run guests on. Where it must be there, it is an error if it is not.
pub fn kvm(test: &str) -> bool {
    let usable = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm");
    if let Err(error) = &usable {
        assert!(
            std::env::var_os("CAUSEWAY_REQUIRE_KVM").is_none(),
            "/dev/kvm: {error}"
        );
        eprintln!("skipped: no KVM ({test}): {error}");
    }
    usable.is_ok()
}

/// Held by tests whose guests compute for long, so that they do not slow each other down.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
