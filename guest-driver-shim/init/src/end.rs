//! Ends the guest: reports the status to the VMM and turns the machine off.

use std::time::Duration;

use causeway_testdev_records::PORT_EXIT;
use rustix::process::WaitStatus;
use rustix::system::{RebootCommand, reboot};

use crate::console::{drain, say};
use crate::port;

/// Value that `/init` stores to the test device's exit port if it could not run the program. It is
/// larger than every exit status.
pub const NOT_RUN: u32 = 0x100;

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

/// Ends the VM. On other machines than Causeway's, nothing answers at the port, and the machine is
/// turned off.
pub(crate) fn machine(status: Status) -> ! {
    rustix::fs::sync();
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

#[cfg(test)]
mod tests {
    use super::*;

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
