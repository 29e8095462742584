//! Commands that end in time.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use causeway_vmm::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Time between two looks for signals.
const LOOK: Duration = Duration::from_millis(100);
/// Time that a command has to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How a command ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself, this long after its start.
    Alone(ExitStatus, Duration),
    /// It ran longer than it may.
    Overdue,
    /// This signal came to this process.
    Signal(i32),
}

/// Runs a command until it ends, `limit` is over, or a signal arrives. In the last two cases the
/// command is asked to end, then made to.
///
/// # Errors
/// Errors of the start, and of waiting.
pub fn run(command: &mut Command, limit: Duration, signals: &mut Signals) -> io::Result<Ended> {
    signals.let_through(command);
    let begun = Instant::now();
    let mut child = command.spawn()?;
    let ended = loop {
        let left = limit.saturating_sub(begun.elapsed());
        if let Some(status) = wait(&mut child, left.min(LOOK))? {
            return Ok(Ended::Alone(status, begun.elapsed()));
        }
        if let Some(signal) = signals.take() {
            break Ended::Signal(signal);
        }
        if begun.elapsed() >= limit {
            break Ended::Overdue;
        }
    };
    // It may have ended meanwhile.
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    if wait(&mut child, GRACE)?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(ended)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_ended_even_if_it_will_not() {
        let mut signals = Signals::block().unwrap();
        let mut quick = Command::new("true");
        let ended = run(&mut quick, Duration::from_secs(60), &mut signals).unwrap();
        assert!(matches!(ended, Ended::Alone(status, _) if status.success()));
        let mut slow = Command::new("sleep");
        let ended = run(slow.arg("600"), Duration::from_millis(50), &mut signals).unwrap();
        assert!(matches!(ended, Ended::Overdue));
        let mut none = Command::new("/nothing/here");
        run(&mut none, Duration::ZERO, &mut signals).unwrap_err();
    }
}
