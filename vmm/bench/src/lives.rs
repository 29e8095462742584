//! `causeway bench lives`: starts and ends VMs one after the other, kills some, and checks that
//! nothing is left of them.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_vmm::host::Host;
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};
use serde::Serialize;

use super::arguments::LivesArguments;
use causeway_bench_medians::Distribution;
use causeway_run::block_signals_with;
use causeway_run::progress::{Caption, Watch};
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure, Origin, ReportFile};

/// Name and version of the schema.
const SCHEMA: &str = "causeway.bench-lives/1";
/// Maximum time to wait until processes have ended and GPU memory is freed.
const SETTLE: Duration = Duration::from_secs(10);
/// Time from a signal to the end: the VM that runs ends, and what is left of it is looked for.
const GRACE: Duration = Duration::from_secs(20);

/// The report.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LivesReport {
    /// Name and version of this format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    schema: &'static str,
    /// Version of Causeway that made the report.
    causeway: &'static str,
    #[serde(flatten)]
    origin: Origin,
    /// The machine on which the benchmark ran.
    host: Host,
    /// Number of VMs.
    lives: u32,
    /// Number of VMs that have ended, for whatever reason: fewer than `lives` after a signal.
    ended: u32,
    /// Number of the signal that ended the benchmark early; absent if none did.
    signal: Option<i32>,
    /// VMs that were killed (SIGKILL to the VMM) at a random time.
    killed: u32,
    /// VMs that ended before they could be killed.
    ended_before_the_kill: u32,
    /// VMs that were not killed and did not pass.
    failed: u32,
    /// Durations of VMs that were not killed, from start to end of the process.
    life: Option<Distribution>,
    /// Free memory of the GPU before the first VM and after the last one, in bytes; absent without
    /// a GPU.
    free_gpu_bytes: Option<(u64, u64)>,
    /// Processes that VMs have left and that do not end.
    processes_left: usize,
    /// Number of files in /dev/shm at the end beyond those at the beginning.
    shared_files_left: usize,
    /// Whether no VM failed, nothing is left, and no signal ended the benchmark.
    passed: bool,
}

/// Returns the JSON schema of reports.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    terminal::schema_of::<LivesReport>(SCHEMA)
}

/// State of the host that VMs can change.
struct Traces {
    free_gpu_bytes: Option<u64>,
    processes: Vec<u32>,
    shared_files: usize,
}

/// Starts VMs one after the other, kills some of them, and prints what they have left behind:
/// processes, files and used GPU memory. Returns the exit code: 0 if no VM failed and nothing is
/// left. A signal ends the benchmark after the VM that runs.
///
/// # Errors
/// A usage failure if `--kill` is out of range; other failures if the GPU is not available, a
/// process cannot be started, or the report cannot be written.
pub fn run(arguments: &LivesArguments) -> Result<ExitCode, Failure> {
    let origin = Origin::now();
    if arguments.kills() > arguments.count {
        return Err(Failure::usage(format!(
            "invalid value {} for --kill: choose 0 to {}, the value of --count",
            arguments.kills(),
            arguments.count
        )));
    }
    let mut signals = block_signals_with(GRACE)?;
    let report_file = ReportFile::prepare(arguments.json.as_deref())?;
    let memory = crate::gpu::native::GpuMemory::of(&arguments.gpu)?;
    let free = || memory.as_ref().and_then(|memory| memory.free_bytes());
    // Otherwise the processes that a VM leaves would become children of another process.
    set_child_subreaper(Some(getpid())).map_err(|e| {
        Failure::new(
            Code::Crashed,
            "cannot set this process up to detect processes that VMs leave behind",
            e,
        )
    })?;
    // The first VM may leave state that all VMs share, such as that of the driver.
    outcome(spawn(arguments), None)?;
    let before = Traces::now(free());
    let mut report = LivesReport::new(arguments, origin);
    let shown = format!("{} lives", arguments.count);
    let caption: Caption = Arc::new(move || shown.clone());
    let watch = Watch::start(Some(caption)).map_err(|e| {
        Failure::new(
            Code::Crashed,
            "cannot start the thread that shows the progress",
            e,
        )
    })?;
    let mut times = Vec::new();
    for life in 0..arguments.count {
        let due = is_due(life, report.killed, arguments);
        let kill = due.then(|| random_delay(arguments.kill_within_ms));
        let begun = Instant::now();
        let status = outcome(spawn(arguments), kill)?;
        // The VM may have got the same signal, so its end says nothing.
        report.signal = signals.take();
        if report.signal.is_some() {
            break;
        }
        report.ended += 1;
        match (kill, status.signal()) {
            (Some(_), Some(9)) => report.killed += 1,
            (Some(_), _) => report.ended_before_the_kill += 1,
            (None, _) if status.success() => times.push(begun.elapsed().as_nanos() as f64),
            (None, _) => report.failed += 1,
        }
    }
    let after = settle(&before, free);
    watch.finish();
    report.conclude(times, &before, &after);
    report.origin = report.origin.ended();
    let mut printed = Ok(());
    if !report_file.is_output() {
        printed = terminal::print_results(&report.text());
    }
    let code = report.code();
    // Written even if the text could not be printed.
    report_file.write(&report)?;
    printed?;
    Ok(code)
}

fn spawn(arguments: &LivesArguments) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .args(["run", "--guest", "residue", "--arguments"])
        .arg(format!("rounds=2,mib={}", arguments.mib))
        .args(["--gpu", &arguments.gpu])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
}

/// Waits until a VM ends, or kills it after `kill`, if given.
fn outcome(child: io::Result<Child>, kill: Option<Duration>) -> Result<ExitStatus, Failure> {
    let fail = |e| {
        Failure::new(
            Code::Crashed,
            "cannot start a `causeway run` process for a VM, or wait for it",
            e,
        )
    };
    let mut child = child.map_err(fail)?;
    if let Some(delay) = kill {
        std::thread::sleep(delay);
        // Waited for also if the process has ended meanwhile.
        let _ = child.kill();
    }
    child.wait().map_err(fail)
}

/// Returns whether to kill VM number `life` after `killed` kills. Kills are spread evenly; if one
/// came too late, the next VM is killed instead.
fn is_due(life: u32, killed: u32, arguments: &LivesArguments) -> bool {
    let due = u64::from(life + 1) * u64::from(arguments.kills()) / u64::from(arguments.count);
    due > u64::from(killed)
}

/// Returns a time below the limit from the low digits of the clock. It only has to differ between
/// VMs.
fn random_delay(limit_ms: u32) -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |time| time.subsec_nanos());
    Duration::from_micros(u64::from(nanoseconds / 7) % (u64::from(limit_ms.max(1)) * 1000))
}

/// Waits until nothing is left, for at most [`SETTLE`].
fn settle(before: &Traces, free: impl Fn() -> Option<u64>) -> Traces {
    let deadline = Instant::now() + SETTLE;
    loop {
        let now = Traces::now(free());
        let clean =
            now.processes_beyond(before) == 0 && now.free_gpu_bytes >= before.free_gpu_bytes;
        if clean || Instant::now() > deadline {
            return now;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Traces {
    fn now(free_gpu_bytes: Option<u64>) -> Self {
        Self {
            free_gpu_bytes,
            processes: children(),
            shared_files: std::fs::read_dir("/dev/shm").map_or(0, Iterator::count),
        }
    }

    fn processes_beyond(&self, before: &Self) -> usize {
        let new = self
            .processes
            .iter()
            .filter(|pid| !before.processes.contains(pid));
        new.count()
    }
}

/// Returns the processes that VMs have left, which become children of this process. Ended ones are
/// reaped.
fn children() -> Vec<u32> {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // State and parent follow the name in parentheses.
        let behind = stat.rsplit(')').next().unwrap_or_default();
        behind.split_whitespace().nth(1) == Some(&own)
    };
    numbers.filter(is_child).collect()
}

impl LivesReport {
    fn new(arguments: &LivesArguments, origin: Origin) -> Self {
        Self {
            schema: SCHEMA,
            causeway: env!("CARGO_PKG_VERSION"),
            origin,
            host: Host::probe(),
            lives: arguments.count,
            ended: 0,
            signal: None,
            killed: 0,
            ended_before_the_kill: 0,
            failed: 0,
            life: None,
            free_gpu_bytes: None,
            processes_left: 0,
            shared_files_left: 0,
            passed: false,
        }
    }

    fn conclude(&mut self, times: Vec<f64>, before: &Traces, after: &Traces) {
        self.life = Distribution::of(times);
        self.free_gpu_bytes = before.free_gpu_bytes.zip(after.free_gpu_bytes);
        self.processes_left = after.processes_beyond(before);
        self.shared_files_left = after.shared_files.saturating_sub(before.shared_files);
        let memory_is_back = self
            .free_gpu_bytes
            .is_none_or(|(first, last)| last >= first);
        self.passed = self.signal.is_none()
            && self.failed == 0
            && self.processes_left == 0
            && self.shared_files_left == 0
            && memory_is_back;
    }

    fn code(&self) -> ExitCode {
        match self.signal {
            Some(signal) => Code::of_signal(signal).into(),
            None if self.passed => ExitCode::SUCCESS,
            None => Code::GuestFailed.into(),
        }
    }

    fn text(&self) -> String {
        let memory = self.free_gpu_bytes.map_or_else(
            || String::from("GPU memory not checked, because the back end is not cuda"),
            |(first, last)| {
                format!(
                    "free GPU memory {} MiB before, {} MiB after",
                    first >> 20,
                    last >> 20
                )
            },
        );
        let life = self.life.as_ref().map_or_else(String::new, |life| {
            format!(", a life takes {:.0} ms (median)", life.median_ns / 1e6)
        });
        let early = self.signal.map_or_else(String::new, |signal| {
            format!(" of {}, then signal {signal}", self.lives)
        });
        format!(
            "{}\n{} VMs one after the other{early}, {} killed ({} more had ended before), {} \
             failed{life}\n\
             {memory}; {} processes and {} files in /dev/shm left -> {}\n",
            self.origin.line(self.causeway),
            self.ended,
            self.killed,
            self.ended_before_the_kill,
            self.failed,
            self.processes_left,
            self.shared_files_left,
            if self.passed { "PASS" } else { "FAIL" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(count: u32, kill: u32) -> LivesArguments {
        LivesArguments {
            gpu: String::from("software"),
            count,
            kill: Some(kill),
            kill_within_ms: 10,
            mib: 16,
            json: None,
        }
    }

    /// Lives that are killed, when each `late`th kill comes too late.
    fn killed(arguments: &LivesArguments, late: u32) -> Vec<u32> {
        let mut tries = 0;
        let mut killed = Vec::new();
        for life in 0..arguments.count {
            if is_due(life, killed.len() as u32, arguments) {
                tries += 1;
                if tries % late != 0 {
                    killed.push(life);
                }
            }
        }
        killed
    }

    #[test]
    fn kills_are_as_many_as_wanted_and_spread() {
        for (count, kill) in [(500, 50), (7, 7), (7, 0), (10, 3)] {
            let killed = killed(&arguments(count, kill), u32::MAX);
            assert_eq!(killed.len(), kill as usize);
        }
        let ten = killed(&arguments(500, 50), u32::MAX);
        assert_eq!(ten[..3], [9, 19, 29]);
    }

    #[test]
    fn the_usual_kills_leave_a_life_to_be_timed() {
        for (count, kills) in [(1, 0), (2, 1), (9, 1), (20, 2), (500, 50)] {
            let arguments = LivesArguments {
                kill: None,
                ..arguments(count, 0)
            };
            assert_eq!(arguments.kills(), kills, "{count}");
        }
    }

    #[test]
    fn a_kill_that_comes_too_late_is_made_up_for() {
        let killed = killed(&arguments(500, 50), 2);
        assert_eq!(killed[..3], [9, 20, 30]);
        assert_eq!(killed.len(), 49, "only the last cannot be made up for");
    }

    #[test]
    fn anything_left_is_a_failure() {
        let traces = |free, processes: &[u32], shared_files| Traces {
            free_gpu_bytes: free,
            processes: processes.to_vec(),
            shared_files,
        };
        let before = traces(Some(100), &[1], 2);
        let passes = |after: &Traces| {
            let mut report = LivesReport::new(&arguments(1, 0), Origin::now());
            report.conclude(vec![1.0], &before, after);
            report.passed
        };
        assert!(passes(&traces(Some(100), &[1], 2)));
        assert!(!passes(&traces(Some(99), &[1], 2)));
        assert!(!passes(&traces(Some(100), &[1, 7], 2)));
        assert!(!passes(&traces(Some(100), &[1], 3)));
    }
}
