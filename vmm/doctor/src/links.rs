//! How fast pairs of GPUs copy to each other. A process of its own measures that, so that a driver
//! that crashes or hangs with it costs the figures and nothing else.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use causeway_cuda::{PairTrial, TrialError, try_pairs};
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure};
use serde::{Deserialize, Serialize};

/// When the process that measures is ended. It takes 10 s for the pairs, and some for the contexts.
const LIMIT: Duration = Duration::from_secs(30);
/// Time that the process has to end after it was killed.
const GRACE: Duration = Duration::from_secs(2);

/// What was measured between two GPUs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairLink {
    /// Their numbers counted by PCI address.
    pub gpus: [u32; 2],
    /// The link between them in words; absent if NVML is absent, or does not tell.
    pub link: Option<String>,
    /// Copies from memory of the first to that of the second, and back.
    pub ways: [Way; 2],
}

/// Copies in one direction: how fast they are, or why that was not measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Way {
    /// Measured.
    Speed {
        /// Bandwidth in bytes per nanosecond.
        gb_per_s: f64,
        /// Median time of a copy of 4 bytes and a wait, in microseconds.
        latency_us: f64,
    },
    /// Not measured.
    Unknown {
        /// Why.
        reason: String,
        /// Whether copies brought wrong data.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        wrong: bool,
    },
}

impl From<PairTrial> for PairLink {
    fn from(trial: PairTrial) -> Self {
        Self {
            gpus: trial.gpus,
            link: trial.link.map(str::to_owned),
            ways: trial.ways.map(|way| match way {
                Ok(speed) => Way::Speed {
                    gb_per_s: speed.gb_per_s,
                    latency_us: speed.latency_ns / 1e3,
                },
                Err(error) => Way::Unknown {
                    reason: error.to_string(),
                    wrong: matches!(error, TrialError::Content),
                },
            }),
        }
    }
}

/// What the process that measures has told, and why it has not told more.
#[derive(Debug)]
pub struct Links {
    /// The pairs that were tried.
    pub pairs: Vec<PairLink>,
    /// How the process ended, for the pairs that are missing.
    pub end: String,
}

/// Measures all pairs of GPUs, and prints a line for each for the process that started this one.
///
/// # Errors
/// A GPU failure if there is no driver, a report failure if standard output cannot be written.
pub fn print() -> Result<ExitCode, Failure> {
    let mut printed = Ok(());
    let tell = |trial: PairTrial| {
        let text = serde_json::to_string(&PairLink::from(trial));
        let text = text.map_err(|e| Failure::new(Code::Report, "cannot encode a pair", e));
        let print = |text: String| terminal::print_results(&format!("{text}\n"));
        if let Err(failure) = text.and_then(print) {
            printed = Err(failure);
        }
    };
    try_pairs(tell).map_err(|e| Failure::new(Code::Gpu, "cannot measure pairs of GPUs", e))?;
    printed.map(|()| ExitCode::SUCCESS)
}

/// Starts a process that measures all pairs of GPUs, and returns what it tells within 30 s.
pub fn ask() -> Links {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("causeway").arg("gpu-links");
    listen(command, LIMIT)
}

/// Collects what a process tells, line by line, until it ends or `limit` has passed.
fn listen(mut command: Command, limit: Duration) -> Links {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut links = Links {
        pairs: Vec::new(),
        end: String::from("the process that measures cannot be started"),
    };
    let Ok(mut child) = command.spawn() else {
        return links;
    };
    let (sender, lines) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        // Ends with the process, whose output it reads.
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
    }
    let deadline = Instant::now() + limit;
    let is_late = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => links
                .pairs
                .extend(serde_json::from_str::<PairLink>(&line).ok()),
            Err(error) => break error == RecvTimeoutError::Timeout,
        }
    };
    links.end = match is_late {
        true => {
            // Fails only if it has just ended.
            let _ = child.kill();
            let _ = ended(&mut child, GRACE);
            format!("the driver took more than {} s", limit.as_secs())
        }
        false => ended(&mut child, GRACE),
    };
    links
}

/// Waits for the end of a process, and says how it ended. One that the kernel does not end is left
/// alone.
fn ended(child: &mut Child, grace: Duration) -> String {
    let deadline = Instant::now() + grace;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return format!("the process that measures ended with {status}"),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => break,
        }
    }
    String::from("the process that measures does not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = r#"{"gpus":[0,1],"link":null,"ways":[{"gb_per_s":2.5,"latency_us":9.0},
        {"reason":"no memory"}]}"#;

    fn shell(script: &str, limit: Duration) -> Links {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", &PAIR.replace('\n', "")]);
        listen(command, limit)
    }

    #[test]
    fn what_was_told_before_a_crash_is_kept() {
        let links = shell(r#"echo "$1"; kill -SEGV $$"#, LIMIT);
        let [pair] = &links.pairs[..] else {
            panic!("{links:?}");
        };
        let speed = Way::Speed {
            gb_per_s: 2.5,
            latency_us: 9.0,
        };
        let reason = String::from("no memory");
        let wrong = false;
        assert_eq!(pair.ways, [speed, Way::Unknown { reason, wrong }]);
        assert!(links.end.contains("signal: 11"), "{links:?}");
    }

    #[test]
    fn a_process_that_hangs_is_ended() {
        let links = shell(r#"echo "$1"; exec sleep 60"#, Duration::from_secs(1));
        assert_eq!(links.pairs.len(), 1);
        assert!(links.end.contains("more than 1 s"), "{links:?}");
    }
}
