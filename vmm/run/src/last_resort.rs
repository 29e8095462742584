//! What a command says and does when it has to end without having ended in order.

use std::time::{Duration, Instant};

use causeway_terminal::{Code, Failure, undo_leftovers, unstopped};
use causeway_vmm::signals::{LastResort, Signals, Terms, Unheeded};
use causeway_vmm::waits;
use causeway_worker::kill_workers;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

/// Time from a signal, or from the last progress after it, until a command that has not ended is
/// ended.
pub const GRACE: Duration = Duration::from_secs(2);
/// Longest time from a signal until a command is ended that makes progress.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for the ends of killed child processes.
const REAPED: Duration = Duration::from_millis(200);
/// Number of waits that the message names.
const WAITS_TOLD: usize = 3;

/// Makes a signal end this process, whatever its threads wait for: within `grace`, or if it makes
/// progress, `grace` after its last progress and 30 s after the signal. Each end of a wait counts
/// as progress, such as that for the GPU session of a VM to close. `signals` are the blocked
/// signals. Call this function before other threads start.
///
/// # Errors
/// A failure with [`Code::Crashed`] if a thread cannot be started.
pub fn watch_signals(signals: Signals, grace: Duration) -> Result<Signals, Failure> {
    let resort = LastResort {
        terms: terms(grace),
        // Whoever waits for a worker process that hangs goes on, and can still end in order.
        help: Box::new(|| {
            let ended = kill_workers(Duration::ZERO);
            if ended != 0 {
                log::warn!(
                    "killed {ended} worker processes, because the command has not ended after a \
                     signal"
                );
            }
        }),
        last_words: Box::new(|unheeded| {
            unstopped(|| {
                undo_leftovers();
                kill_workers(REAPED);
                reap(&children());
                let text = text(unheeded, &waits::current());
                Failure::without_cause(Code::of_signal(unheeded.signal), text).print();
            });
        }),
        status: |signal| Code::of_signal(signal) as i32,
    };
    signals.watched(resort).map_err(|e| {
        let message = "cannot start the threads that end the command after a signal such as \
                       SIGINT (Ctrl-C)";
        Failure::new(Code::Crashed, message, e)
    })
}

/// Returns how long a command may take to end that has `grace` without progress.
fn terms(grace: Duration) -> Terms {
    Terms {
        grace,
        limit: LIMIT.max(grace),
        progress: waits::ended,
    }
}

/// Kills `children` and waits until they have ended, for a short time: those that a driver holds in
/// the kernel end later.
fn reap(children: &[Pid]) {
    let deadline = Instant::now() + REAPED;
    for child in children {
        // It may have ended, and another thread may wait for it.
        let _ = kill_process(*child, Signal::KILL);
        while matches!(waitpid(Some(*child), WaitOptions::NOHANG), Ok(None))
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Returns the child processes of this process; none if this thread is confined. Those of a
/// confined VMM are workers, or end with it.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // State and parent follow the name in parentheses.
        let behind = stat.rsplit(')').next().unwrap_or_default();
        behind.split_whitespace().nth(1) == Some(&own)
    };
    numbers.filter(is_child).filter_map(Pid::from_raw).collect()
}

/// Returns why the process ends now. `waits` is what it still waits for.
fn text(unheeded: &Unheeded, waits: &[String]) -> String {
    let Unheeded {
        signal,
        waited,
        is_repeated,
    } = unheeded;
    let seconds = waited.as_secs();
    let reason = match waits {
        [] => String::from("the command had not ended"),
        waits => {
            let told = &waits[..waits.len().min(WAITS_TOLD)];
            let more = waits.len() - told.len();
            let more = (more != 0).then(|| format!(" (and {more} more)"));
            let more = more.unwrap_or_default();
            format!("the command waited for {}{more}", told.join(" and "))
        }
    };
    let when = match is_repeated {
        true => format!("a second signal came after signal {signal}, and {reason}"),
        false => format!("{seconds} s after signal {signal}, {reason}"),
    };
    format!("{when}; it ends now, without the results that it had not written yet")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// As those for the sessions of many VMs to close, one after the other.
    #[test]
    fn a_wait_that_ends_is_progress() {
        let Terms { progress, .. } = terms(GRACE);
        let wait = waits::Wait::begin("a session to close");
        let before = progress();
        drop(wait);
        assert!(progress() > before);
    }

    #[test]
    fn children_are_killed_and_reaped() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(children().contains(&pid));
        reap(&[pid]);
        assert!(!children().contains(&pid));
        assert!(child.try_wait().is_err(), "somebody else has reaped it");
    }

    #[test]
    fn the_message_says_what_the_command_waited_for() {
        let mut unheeded = Unheeded {
            signal: 15,
            waited: GRACE,
            is_repeated: false,
        };
        assert_eq!(
            text(&unheeded, &[]),
            "2 s after signal 15, the command had not ended; it ends now, without the results that \
             it had not written yet"
        );
        unheeded.is_repeated = true;
        let waits = ["a", "b", "c", "d"].map(String::from);
        assert_eq!(
            text(&unheeded, &waits),
            "a second signal came after signal 15, and the command waited for a and b and c (and 1 \
             more); it ends now, without the results that it had not written yet"
        );
    }
}
