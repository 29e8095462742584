//! Commands that end in time, and leave no process behind.

use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use causeway_vmm::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Time between two looks for signals and at the output.
const LOOK: Duration = Duration::from_millis(100);
/// Time that a command has to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);
/// Most bytes that a command may print.
pub const OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// How a command ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself, this long after its start.
    Alone(ExitStatus, Duration),
    /// It ran longer than it may.
    Overdue,
    /// It printed more than it may.
    Noisy,
    /// This signal came to this process.
    Signal(i32),
}

/// Runs a command, which writes to `output`, until it ends, `limit` is over, it has printed too
/// much, or a signal arrives. In the other cases than the first the command is asked to end, then
/// made to. Processes that it leaves behind are killed. It has a process group of its own, so that
/// keys of the terminal do not reach it.
///
/// # Errors
/// Errors of the start, and of waiting.
pub fn run(
    command: &mut Command,
    output: &Path,
    limit: Duration,
    signals: &mut Signals,
) -> io::Result<Ended> {
    signals.let_through(command);
    let begun = Instant::now();
    let mut child = command.process_group(0).spawn()?;
    let group = Pid::from_child(&child);
    let ended = watch(&mut child, output, (begun, limit), signals);
    let reaped = match &ended {
        Ok(Ended::Alone(..)) => Ok(()),
        _ => end(&mut child, group),
    };
    // Of the group, nobody may be left.
    let _ = kill_process_group(group, Signal::KILL);
    reaped.and(ended)
}

/// Waits for the end of a command, or for a reason to end it.
fn watch(
    child: &mut Child,
    output: &Path,
    (begun, limit): (Instant, Duration),
    signals: &mut Signals,
) -> io::Result<Ended> {
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        if let Some(status) = wait(child, left.min(LOOK))? {
            return Ok(Ended::Alone(status, begun.elapsed()));
        }
        if let Some(signal) = signals.take() {
            return Ok(Ended::Signal(signal));
        }
        if begun.elapsed() >= limit {
            return Ok(Ended::Overdue);
        }
        if fs::metadata(output).is_ok_and(|it| it.len() > OUTPUT_BYTES_MAX) {
            return Ok(Ended::Noisy);
        }
    }
}

/// Asks a command to end, then makes it end.
fn end(child: &mut Child, group: Pid) -> io::Result<()> {
    // It may have ended meanwhile.
    let _ = kill_process_group(group, Signal::TERM);
    if wait(child, GRACE)?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// Waits until the command ends, for at most `patience`.
fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut polled = [PollFd::new(&end, PollFlags::IN)];
    // A few seconds at most.
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    retry_on_intr(|| poll(&mut polled, Some(&patience)))?;
    child.try_wait()
}

/// Returns an exit status as a shell has it: 128 and the number of a signal that ended a program.
pub fn shell_status(status: ExitStatus) -> u8 {
    let signal = status.signal().map_or(0, |signal| 128 + signal);
    u8::try_from(status.code().unwrap_or(signal)).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_or_prints_too_much_is_ended() {
        let mut signals = Signals::block().unwrap();
        let output = std::env::temp_dir().join(format!("causeway-limited-{}", std::process::id()));
        let mut run = |command: &mut Command, limit: Duration| {
            let file = fs::File::create(&output).unwrap();
            super::run(command.stdout(file), &output, limit, &mut signals)
        };
        let (soon, late) = (Duration::from_millis(50), Duration::from_secs(60));
        let ended = run(&mut Command::new("true"), late).unwrap();
        assert!(matches!(ended, Ended::Alone(status, _) if status.success()));
        let ended = run(Command::new("sleep").arg("600"), soon).unwrap();
        assert!(matches!(ended, Ended::Overdue));
        let ended = run(&mut Command::new("yes"), late).unwrap();
        assert!(matches!(ended, Ended::Noisy));
        run(&mut Command::new("/nothing/here"), late).unwrap_err();
        let mut leaves = Command::new("sh");
        leaves.args(["-c", "sleep 600 & echo $!"]);
        run(&mut leaves, late).unwrap();
        let left = fs::read_to_string(&output).unwrap();
        // A killed process takes a moment to end, and its entry stays until somebody reaps it.
        let stat = format!("/proc/{}/stat", left.trim());
        let runs = || fs::read_to_string(&stat).is_ok_and(|state| !state.contains(") Z "));
        let begun = Instant::now();
        while runs() {
            assert!(begun.elapsed() < late, "{left} still runs");
            std::thread::sleep(Duration::from_millis(5));
        }
        fs::remove_file(&output).unwrap();
    }
}
