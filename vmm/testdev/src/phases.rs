//! Phases of a workload: what KVM and the VMM counted between two marks.
//!
//! A mark is one store to a port, hence one exit. The mark that begins a phase lies before the
//! first sample. The mark that ends it lies between the samples: that one exit is subtracted from
//! KVM's `io_exits` (from `insn_emulation` on a KVM by software, which emulates port accesses and
//! counts them there) and from the VMM's own count. KVM's `exits` stays as KVM gives it, with the
//! mark, because hosts differ in how many exits of the hardware a port access takes.
//!
//! With several virtual CPUs, an exit that another of them is in the middle of at a mark is on one
//! side of the mark for KVM and on the other for the VMM: the two counts may then differ by one for
//! each other virtual CPU.
//!
//! The duration runs from after the first sample to before the second. So it contains the return to
//! the guest and one exit, and no sampling.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use causeway_testdev_records::{PhasePath, RecordKind, Totals};
use causeway_vmm::exit_counts::VmExits;
use parking_lot::Mutex;
use serde::Serialize;

use crate::interval::{CountedExits, Interval, nanoseconds};
use crate::record::{RecordError, field};

/// Maximum number of phases that one guest can report.
pub const PHASES_MAX: usize = 4096;

/// What was counted and timed in one phase of a guest's run, after the phase has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// Name of the phase.
    pub name: String,
    /// What the phase exercises: `setup`, `control` (the control path) or `data` (the data path).
    pub path: &'static str,
    /// Number of operations that the guest did in the phase.
    pub operations: u64,
    /// Number of bytes that the guest moved in the phase.
    pub bytes: u64,
    /// Number of doorbells that the guest rang in the phase.
    pub doorbells: u64,
    /// Duration of the phase in nanoseconds.
    pub duration_ns: u64,
    /// Processor time that this process used in the phase, in nanoseconds: for all of its VMs, and
    /// for their sessions unless these are in worker processes.
    pub cpu_ns: u64,
    /// By how much each of KVM's statistics grew in the phase, summed over all virtual CPUs, by
    /// name. Empty if KVM keeps no statistics.
    pub kvm_exits: BTreeMap<String, u64>,
    /// Number of exits that the VMM counted in the phase, by reason, device and register. Entries
    /// that would be 0 are left out.
    pub vmm_exits: BTreeMap<String, u64>,
}

/// Begins and ends the phases of one guest, and keeps the counts of phases that have ended.
#[derive(Debug)]
pub struct PhaseRecorder {
    exits: VmExits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    finished: Vec<Phase>,
}

#[derive(Debug)]
struct Open {
    name: String,
    path: PhasePath,
    cpu: Duration,
    interval: Interval,
}

impl PhaseRecorder {
    /// Returns a recorder without phases. `exits` provides the counts of exits of the guest's VM.
    pub fn new(exits: VmExits) -> Self {
        Self {
            exits,
            state: Mutex::default(),
        }
    }

    /// Begins a phase with name `name`, in which the guest exercises `path`. If another phase is
    /// open, this call first ends it, with 0 operations.
    ///
    /// # Errors
    /// [`RecordError::TooMany`] if the guest has reported [`PHASES_MAX`] phases.
    pub fn begin(&self, name: String, path: PhasePath) -> Result<(), RecordError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(open) = state.open.take() {
            let phase = self.close(open, now, Totals::default());
            state.finished.push(phase);
        }
        if state.finished.len() >= PHASES_MAX {
            return Err(RecordError::TooMany {
                kind: RecordKind::PhaseBegin,
                max: PHASES_MAX,
            });
        }
        state.open = Some(Open {
            name,
            path,
            cpu: processor_time(),
            interval: Interval::begin(&self.exits),
        });
        Ok(())
    }

    /// Ends the open phase, in which the guest did `totals` by its own count.
    ///
    /// # Errors
    /// [`RecordError::Field`] if no phase is open.
    pub fn end(&self, totals: Totals) -> Result<(), RecordError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let open = state
            .open
            .take()
            .ok_or_else(|| field(RecordKind::PhaseEnd, "open phases", 0u32))?;
        let phase = self.close(open, now, totals);
        state.finished.push(phase);
        Ok(())
    }

    /// Sets what the guest did in the phase that ended last, by its own count.
    ///
    /// # Errors
    /// [`RecordError::Field`] if no phase has ended.
    pub fn set_totals(&self, totals: Totals) -> Result<(), RecordError> {
        let mut state = self.state.lock();
        let last = state.finished.last_mut();
        let phase = last.ok_or_else(|| field(RecordKind::PhaseEnd, "ended phases", 0u32))?;
        phase.operations = totals.operations;
        phase.bytes = totals.bytes;
        phase.doorbells = totals.doorbells;
        Ok(())
    }

    /// Returns the phases that have ended, in order.
    pub fn finished(&self) -> Vec<Phase> {
        self.state.lock().finished.clone()
    }

    fn close(&self, open: Open, now: Instant, totals: Totals) -> Phase {
        let cpu = processor_time().saturating_sub(open.cpu);
        let CountedExits {
            duration_ns,
            kvm_exits,
            vmm_exits,
        } = open.interval.end_at_mark(&self.exits, now);
        Phase {
            name: open.name,
            path: path_name(open.path),
            operations: totals.operations,
            bytes: totals.bytes,
            doorbells: totals.doorbells,
            duration_ns,
            cpu_ns: nanoseconds(cpu),
            kvm_exits,
            vmm_exits,
        }
    }
}

/// Processor time that this process has used.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.try_into().unwrap_or_default()
}

fn path_name(path: PhasePath) -> &'static str {
    match path {
        PhasePath::Setup => "setup",
        PhasePath::Control => "control",
        PhasePath::Data => "data",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::interval::MARKER;
    use causeway_vmm::counters::{ExitCounters, ExitKey};
    use causeway_vmm::statistics::VmStatistics;
    use std::sync::Arc;

    const DOORBELL: ExitKey = ExitKey::device("mmio", "registers", "control_doorbell");

    fn recorder() -> (PhaseRecorder, Arc<ExitCounters>) {
        let counters = Arc::new(ExitCounters::default());
        let statistics = Arc::<VmStatistics>::default();
        let recorder = PhaseRecorder::new(VmExits::new(statistics, vec![Arc::clone(&counters)]));
        (recorder, counters)
    }

    /// Acts on a mark, then counts it, as the exit handler does.
    fn mark<T>(counters: &ExitCounters, act: impl FnOnce() -> T) -> T {
        let result = act();
        counters.count(MARKER);
        result
    }

    #[test]
    fn the_closing_mark_is_not_part_of_the_phase() {
        let (recorder, counters) = recorder();
        mark(&counters, || {
            recorder.begin("empty".into(), PhasePath::Data)
        })
        .unwrap();
        let totals = Totals {
            operations: 5,
            bytes: 40,
            doorbells: 0,
        };
        mark(&counters, || recorder.end(totals)).unwrap();
        let [phase] = &recorder.finished()[..] else {
            panic!("one phase");
        };
        assert_eq!((phase.path, phase.operations, phase.bytes), ("data", 5, 40));
        assert!(phase.vmm_exits.is_empty(), "{:?}", phase.vmm_exits);
    }

    #[test]
    fn exits_within_are_counted_by_register() {
        let (recorder, counters) = recorder();
        counters.count(DOORBELL);
        mark(&counters, || {
            recorder.begin("control".into(), PhasePath::Control)
        })
        .unwrap();
        counters.count(DOORBELL);
        counters.count(MARKER);
        mark(&counters, || recorder.end(Totals::default())).unwrap();
        counters.count(DOORBELL);
        let wanted = [
            ("io:testdev:record".to_owned(), 1),
            ("mmio:registers:control_doorbell".to_owned(), 1),
        ];
        assert_eq!(recorder.finished()[0].vmm_exits, BTreeMap::from(wanted));
    }

    #[test]
    fn a_new_phase_ends_an_open_one_and_an_end_alone_is_refused() {
        let (recorder, counters) = recorder();
        assert!(recorder.end(Totals::default()).is_err());
        for name in ["first", "second"] {
            mark(&counters, || recorder.begin(name.into(), PhasePath::Setup)).unwrap();
        }
        mark(&counters, || recorder.end(Totals::default())).unwrap();
        let finished = recorder.finished();
        let names: Vec<_> = finished.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        assert!(finished[0].vmm_exits.is_empty());
    }

    #[test]
    fn totals_are_those_of_the_phase_that_ended_last() {
        let (recorder, counters) = recorder();
        let totals = |operations| Totals {
            operations,
            ..Totals::default()
        };
        assert!(recorder.set_totals(totals(1)).is_err(), "none has ended");
        for name in ["first", "second"] {
            mark(&counters, || recorder.begin(name.into(), PhasePath::Data)).unwrap();
        }
        recorder.set_totals(totals(7)).unwrap();
        mark(&counters, || recorder.end(Totals::default())).unwrap();
        recorder.set_totals(totals(8)).unwrap();
        let finished = recorder.finished();
        let operations: Vec<_> = finished.iter().map(|p| p.operations).collect();
        assert_eq!(operations, [7, 8]);
    }

    #[test]
    fn phases_are_bounded() {
        let (recorder, _) = recorder();
        for _ in 0..PHASES_MAX {
            recorder.begin(String::new(), PhasePath::Setup).unwrap();
        }
        assert!(recorder.begin(String::new(), PhasePath::Setup).is_err());
        assert_eq!(recorder.finished().len(), PHASES_MAX);
    }
}
