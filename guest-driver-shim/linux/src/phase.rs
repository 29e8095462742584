//! Phases of a program in a guest, for which the host counts exits.
//!
//! A phase begins and ends by marks for the VM's test device: stores to I/O ports, which need
//! neither the Causeway function nor a transport. So a program can mark phases before it opens the
//! device, and one process can end a phase that another has begun.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;

use causeway_sysfs::{PciFunction, PciFunctionError};
use causeway_testdev_records::{
    MARK_DONE, MARK_REFUSED, PORT_EXIT, PORT_MARK, PORT_TEXT, PORTS, PhasePath, PortStore, Totals,
    begin_phase, end_phase, report_totals,
};
use rustix::termios::tcdrain;

use crate::ports::IoPorts;

/// The kernel's console, whose output causes exits.
const CONSOLE: &str = "/dev/console";
/// Number of ports from [`PORT_TEXT`] on that marks need.
const MARK_PORTS: u16 = PORT_EXIT + PORTS - PORT_TEXT;

/// Why a program cannot begin or end a phase.
#[derive(Debug, thiserror::Error)]
pub enum PhaseError {
    /// This machine is no guest of Causeway: it has no Causeway function. No port was touched.
    #[error("cannot mark a phase, because only guests of Causeway have phases")]
    NoGuest(#[source] PciFunctionError),
    /// This process may not use I/O ports.
    #[error("cannot mark a phase, because this process may not use I/O ports: run it as root")]
    Ports(#[source] io::Error),
    /// The VM has no test device, or one that knows no marks.
    #[error(
        "cannot mark a phase, because the VM has no test device that answers: run the guest with \
         `causeway run`"
    )]
    NoTestDevice,
    /// No phase is open, so none can end.
    #[error("no phase is open: begin one first")]
    NotOpen,
}

/// A phase of this program's run, for which the host counts exits. Phases do not nest: a new phase
/// ends one that is open. So does the end of the program that `causeway run --program` started.
#[derive(Debug)]
#[must_use = "a phase lasts until it is ended"]
pub struct Phase(());

impl Phase {
    /// Begins a phase called `name`, of which the host keeps 48 bytes. `path` says which exits the
    /// phase may have: any (setup), few (control path) or none (data path).
    ///
    /// Waits first until the console has sent what was printed there: the kernel writes to a serial
    /// port in the background, by a few exits for each character. Print nothing there before the
    /// phase ends.
    ///
    /// # Errors
    /// [`PhaseError::NoGuest`] outside of a guest, [`PhaseError::Ports`] if this process is not
    /// root's, [`PhaseError::NoTestDevice`] if nothing in the VM counts phases.
    pub fn begin(path: PhasePath, name: &str) -> Result<Self, PhaseError> {
        let ports = mark_ports()?;
        if ![MARK_DONE, MARK_REFUSED].contains(&ports.read(PORT_MARK)) {
            return Err(PhaseError::NoTestDevice);
        }
        drain_console();
        begin_phase(path, name).for_each(|store| make(&ports, store));
        Ok(Self(()))
    }

    /// Takes over the phase that another process of this guest has begun, to end it. Causes no VM
    /// exit, so none that would be counted in the phase.
    ///
    /// # Errors
    /// [`PhaseError::NoGuest`] outside of a guest, [`PhaseError::Ports`] if this process is not
    /// root's.
    pub fn adopt() -> Result<Self, PhaseError> {
        mark_ports().map(|_| Self(()))
    }

    /// Ends the phase, and reports `totals`: how many operations, bytes and doorbells it had. The
    /// first exit of this call ends the phase, and is not counted in it.
    ///
    /// # Errors
    /// [`PhaseError::NotOpen`] if the phase was adopted and none was open, [`PhaseError::Ports`] if
    /// this thread may not use I/O ports.
    pub fn end(self, totals: Totals) -> Result<(), PhaseError> {
        // This may be another thread than the one that began the phase.
        let ports = IoPorts::open(PORT_TEXT, MARK_PORTS).map_err(PhaseError::Ports)?;
        make(&ports, end_phase());
        if ports.read(PORT_MARK) != MARK_DONE {
            return Err(PhaseError::NotOpen);
        }
        report_totals(totals).for_each(|store| make(&ports, store));
        Ok(())
    }
}

/// Opens the ports of marks, without an exit. Touches no port of a machine that is no guest of
/// Causeway, where something else may have these ports.
fn mark_ports() -> Result<IoPorts, PhaseError> {
    PciFunction::find().map_err(PhaseError::NoGuest)?;
    IoPorts::open(PORT_TEXT, MARK_PORTS).map_err(PhaseError::Ports)
}

fn make(ports: &IoPorts, store: PortStore) {
    ports.write(store.port, store.value);
}

/// Waits until terminals have sent what was printed. What is no terminal, or cannot be opened, has
/// nothing to send.
fn drain_console() {
    let _ = tcdrain(io::stdout().as_fd());
    let _ = tcdrain(io::stderr().as_fd());
    // Outputs may go to files, while other processes print there.
    if let Ok(console) = OpenOptions::new().write(true).open(CONSOLE) {
        let _ = tcdrain(console.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_a_guest_no_phase_begins_or_ends() {
        if PciFunction::find().is_ok() {
            return;
        }
        let begun = Phase::begin(PhasePath::Data, "loads");
        assert!(matches!(begun, Err(PhaseError::NoGuest(_))), "{begun:?}");
        let adopted = Phase::adopt();
        assert!(
            matches!(adopted, Err(PhaseError::NoGuest(_))),
            "{adopted:?}"
        );
    }
}
