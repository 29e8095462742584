//! The command on the stand-in driver: a GPU that is none, with the properties that a test wants.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::command::{Outcome, Running, Scratch};
use crate::report::{self, Report};
use crate::visible;

/// How the stand-in calls its device.
pub const NAME: &str = "Causeway stand-in (no GPU)";

/// A machine with a GPU, as far as the command can tell.
pub struct Machine {
    scratch: Scratch,
    environment: Vec<(String, OsString)>,
    /// Where the driver accounts for memory. Beside the scratch directory, because the accounts
    /// stay.
    state: PathBuf,
}

impl Machine {
    /// One GPU with 4 GiB, and no Vulkan that knows it.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("standin-{}-{number}", std::process::id());
        let state = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let machine = Self {
            scratch: Scratch::new(),
            environment: Vec::new(),
            state,
        };
        let state = machine.state.clone();
        // Workers can write to it only if it is there when they start.
        fs::create_dir_all(&state).unwrap();
        machine
            .variable("LD_LIBRARY_PATH", causeway_standin_cuda::directory())
            .variable("CAUSEWAY_STANDIN_STATE", &state)
            // Real drivers write nowhere.
            .variable("CAUSEWAY_SANDBOX_WRITABLE", state)
    }

    /// A driver that has a property that others do not: the settings of the stand-in, without their
    /// prefix.
    pub fn with(self, setting: &str, value: impl ToString) -> Self {
        let name = format!("CAUSEWAY_STANDIN_{setting}");
        self.variable(&name, value.to_string())
    }

    /// NVML is installed, and tells of the same devices.
    pub fn with_nvml(self) -> Self {
        let folder = self.scratch.path("nvml");
        fs::create_dir_all(&folder).unwrap();
        let library = causeway_standin_cuda::library().unwrap();
        std::os::unix::fs::symlink(library, folder.join("libnvidia-ml.so.1")).unwrap();
        let driver = causeway_standin_cuda::directory();
        let folders = std::env::join_paths([driver, folder]).unwrap();
        self.variable("LD_LIBRARY_PATH", folders)
    }

    /// Another machine whose driver shares accounts with this one's: both are of one fabric.
    pub fn beside(&self) -> Self {
        Self::new()
            .with("FABRIC", 1)
            .with("STATE", self.state.display())
            .variable("CAUSEWAY_SANDBOX_WRITABLE", &self.state)
    }

    /// Any other variable of the environment.
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// The GPU's memory can be shown to CPUs, by lavapipe; none where that is not installed.
    pub fn with_vulkan(mut self, test: &str) -> Option<Self> {
        for (name, value) in visible::lavapipe(test)?.settings() {
            self = self.variable(name, value);
        }
        Some(self)
    }

    /// The directory of its files.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Starts the command.
    pub fn start(&self, words: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.args(words);
        let environment = self.environment.iter();
        command.envs(environment.map(|(name, value)| (name, value)));
        self.scratch.start_command(command)
    }

    /// Runs the command to its end.
    pub fn run(&self, words: &[&str]) -> Outcome {
        self.start(words).finish()
    }

    /// Runs guests, and parses their report.
    pub fn guests(&self, words: &[&str]) -> (Outcome, Report) {
        let outcome = self.run(&report::words(words));
        let report = report::read(&self.scratch, &outcome);
        (outcome, report)
    }

    /// Memory of the GPU that living processes have, in bytes.
    pub fn used_bytes(&self) -> u64 {
        let accounts = fs::read_dir(&self.state).into_iter().flatten().flatten();
        let pid = |name: &str| name.strip_prefix("process-")?.parse::<u32>().ok();
        let alive = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
        accounts
            .filter(|account| {
                account
                    .file_name()
                    .to_str()
                    .and_then(pid)
                    .is_some_and(alive)
            })
            .filter_map(|account| fs::read(account.path()).ok())
            .filter_map(|account| Some(u64::from_le_bytes(*account.first_chunk()?)))
            .sum()
    }

    /// Each CUDA context ever made, in order: the process that made it, and how many contexts other
    /// processes had at that time.
    pub fn contexts(&self) -> Vec<(i32, u64)> {
        let list = fs::read_to_string(self.state.join("contexts")).unwrap();
        let line = |line: &str| {
            let (process, others) = line.split_once(' ')?;
            Some((process.parse().ok()?, others.parse().ok()?))
        };
        list.lines().map(|text| line(text).unwrap()).collect()
    }

    /// Waits until a call of the driver hangs.
    pub fn await_hang(&self, running: &Running) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.state.join("hangs").exists() {
            assert!(Instant::now() < deadline, "{}", running.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A file that the command has written.
    pub fn json(&self, name: &str) -> serde_json::Value {
        let text = fs::read_to_string(self.scratch.path(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.state);
    }
}
