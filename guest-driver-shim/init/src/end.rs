//! Ends the guest: reports the status to the VMM and turns the machine off.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use causeway_testdev_records::PORT_EXIT;
use rustix::process::WaitStatus;
use rustix::system::{RebootCommand, reboot};

use crate::console::{drain, say};
use crate::port;

/// Value that `/init` stores to the test device's exit port if it could not run the program. It is
/// larger than every exit status.
pub const NOT_RUN: u32 = 0x100;

/// How long the kernel may write nothing while this process waits for it. What serves a disk or a
/// folder may have died, and then nothing ever answers.
const STUCK: Duration = Duration::from_secs(30);
/// Time between two looks at what was written.
const LOOK: Duration = Duration::from_secs(1);

/// How the guest's program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The program ended by itself with this exit status.
    Exited(u8),
    /// The signal with this number killed the program.
    Killed(u8),
    /// The program could not be run.
    NotRun,
}

impl Status {
    /// Returns the value to store to the test device's exit port: the program's exit status, 128
    /// plus the number of the signal that killed it (as shells do), or [`NOT_RUN`].
    #[must_use]
    pub fn value(self) -> u32 {
        match self {
            Self::Exited(status) => status.into(),
            Self::Killed(signal) => 128 + u32::from(signal & 127),
            Self::NotRun => NOT_RUN,
        }
    }

    /// Converts the status of a process.
    pub(crate) fn of(status: WaitStatus) -> Self {
        let byte = |value: i32| u8::try_from(value & 0xff).unwrap_or(u8::MAX);
        match (status.exit_status(), status.terminating_signal()) {
            (Some(exited), _) => Self::Exited(byte(exited)),
            (None, Some(signal)) => Self::Killed(byte(signal)),
            (None, None) => Self::NotRun,
        }
    }
}

/// Calls `write`, which has the kernel write what it has in memory, and ends the VM. On other
/// machines than Causeway's, nothing answers at the port, and the machine is turned off.
pub(crate) fn machine(status: Status, write: fn()) -> ! {
    if !is_written(write, written_pages, STUCK) {
        let seconds = STUCK.as_secs();
        say(&format!(
            "a disk or a folder has not answered for {seconds} s: what the guest has written there \
             may be lost"
        ));
    }
    drain();
    if let Err(error) = port::write_u32(PORT_EXIT, status.value()) {
        say(&format!(
            "cannot report the exit status {}: {error}",
            status.value()
        ));
        drain();
    }
    loop {
        if let Err(error) = reboot(RebootCommand::PowerOff) {
            say(&format!("cannot turn the machine off: {error}"));
        }
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Calls `write` and waits for its end. Returns false if it is not over, and `progress` has not
/// changed for `patience`.
fn is_written(write: fn(), progress: fn() -> Option<String>, patience: Duration) -> bool {
    let (sender, end) = mpsc::channel();
    let begun = std::thread::Builder::new().spawn(move || {
        write();
        let _ = sender.send(());
    });
    if begun.is_err() {
        write();
        return true;
    }
    let (mut seen, mut since) = (progress(), Instant::now());
    while since.elapsed() < patience {
        match end.recv_timeout(LOOK.min(patience)) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            // Also if it has panicked.
            _ => return true,
        }
        let now = progress();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    false
}

/// Returns the line that says how many pages the kernel has written (proc(5), "/proc/vmstat").
fn written_pages() -> Option<String> {
    let table = std::fs::read_to_string("/proc/vmstat").ok()?;
    let mut lines = table.lines();
    let line = lines.find(|line| line.starts_with("nr_written "))?;
    Some(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_write_is_waited_for_as_long_as_something_is_written() {
        let patience = Duration::from_millis(20);
        fn stuck() {
            std::thread::sleep(Duration::from_secs(3600));
        }
        assert!(!is_written(stuck, || None, patience));
        fn slow() {
            std::thread::sleep(Duration::from_millis(300));
        }
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        let looks = || Some(LOOKS.fetch_add(1, Ordering::Relaxed).to_string());
        assert!(is_written(slow, looks, patience));
        assert!(LOOKS.load(Ordering::Relaxed) > 2);
        assert!(is_written(|| {}, || None, Duration::from_secs(100)));
        assert!(written_pages().is_some());
    }

    #[test]
    fn values_are_those_of_shells_and_none_is_that_of_a_program_not_run() {
        assert_eq!(Status::Exited(0).value(), 0);
        assert_eq!(Status::Exited(7).value(), 7);
        assert_eq!(Status::Killed(11).value(), 139);
        for byte in 0..=u8::MAX {
            assert!(Status::Exited(byte).value() < NOT_RUN);
            assert!(Status::Killed(byte).value() < NOT_RUN);
        }
        assert_eq!(Status::NotRun.value(), NOT_RUN);
    }
}
