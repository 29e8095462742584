//! The test device: an optional device at I/O ports, by which a guest reports phases, figures and
//! results, and ends its VM.
//!
//! [`TestDevice`] is attached to one VM ([`causeway_vmm::vm::VmConfig::attached`]). Whoever starts
//! the VM keeps it, and asks it for the [`Report`] of the guest when the VM has ended. The layouts
//! of records are in the crate `causeway-testdev-records`, which guests share.
//!
//! Records are copied out of guest memory once, and the copy is checked. A guest can make the
//! device keep a bounded number of them.

use std::sync::Arc;

use causeway_testdev_records::{PORT_EXIT, PORTS};
use causeway_vmm::bus::Port;
use causeway_vmm::counters::ExitKey;
use causeway_vmm::outcome::VmResult;
use causeway_vmm::vm::{Attach, AttachError, Bay};
use parking_lot::Mutex;

mod baseline;
mod comparison;
mod interval;
mod mailboxes;
mod marks;
mod memory;
mod phases;
mod ports;
mod program;
mod record;
mod recorder;

pub use comparison::{Counterpart, SAMPLES_MAX, SINGLES_RECORDS_MAX, Sample, Singles};
pub use interval::{CountedExits, MARKER};
pub use mailboxes::Mailboxes;
pub use memory::RecordMemory;
pub use phases::{EndedBy, PHASES_MAX, Phase, PhaseRecorder};
pub use record::{Figure, PanicInfo, RecordError, Recorded};
pub use recorder::{FIGURES_MAX, Recorder, Report, RunContext};

use ports::Ports;

/// The test device of one VM, which keeps what the guest reports. Attaching the device to a VM
/// discards earlier reports.
#[derive(Debug, Default)]
pub struct TestDevice {
    context: RunContext,
    recorder: Mutex<Option<Arc<Recorder>>>,
}

impl TestDevice {
    /// Creates the test device of a VM. `context` says which VM of the run that is, and what the
    /// VMs of the run share.
    pub fn new(context: RunContext) -> Self {
        Self {
            context,
            recorder: Mutex::default(),
        }
    }

    /// Returns what the guest has reported so far. The report is empty if the device was never
    /// attached to a VM.
    pub fn report(&self) -> Report {
        let recorder = self.recorder.lock().clone();
        recorder.map_or_else(Report::default, |recorder| recorder.report())
    }
}

impl Attach for TestDevice {
    fn attach(&self, bay: &Bay<'_>) -> Result<(), AttachError> {
        let recorder = Arc::new(Recorder::new(
            RecordMemory {
                ram: Arc::clone(bay.ram),
                aperture: Arc::clone(bay.aperture),
            },
            self.context.clone(),
            bay.exits.clone(),
            bay.tsc_khz,
            Arc::clone(bay.stop),
        ));
        let ports = Ports(Arc::clone(&recorder));
        bay.ports
            .insert(Port(PORT_EXIT), PORTS.into(), Arc::new(ports))?;
        *self.recorder.lock() = Some(recorder);
        Ok(())
    }

    fn ending(&self, exit: Option<ExitKey>) {
        let recorder = self.recorder.lock().clone();
        if let Some(recorder) = recorder {
            recorder.vm_ends(exit);
        }
    }

    fn wake(&self) {
        if let Some(mailboxes) = &self.context.mailboxes {
            mailboxes.wake();
        }
    }

    fn vm_ended(&self, result: &VmResult) {
        if let Some(mailboxes) = &self.context.mailboxes
            && !result.passed()
        {
            mailboxes.sender_failed();
        }
    }

    fn failure(&self) -> Option<String> {
        let panic = self.recorder.lock().as_ref()?.panic()?;
        Some(format!(
            "at {}:{}: {}",
            panic.file, panic.line, panic.message
        ))
    }
}

#[cfg(test)]
mod tests;
