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

use causeway_testdev_records::{PhasePath, RecordKind};
use causeway_vmm::counters::{self, ExitKey};
use causeway_vmm::exit_counts::{ExitSample, VmExits};
use parking_lot::Mutex;
use serde::Serialize;

use crate::record::{RecordError, field};

/// Maximum number of phases that one guest can report.
pub const PHASES_MAX: usize = 4096;
/// Key under which the VMM counts guests' stores to the record port of the test device.
pub const MARKER: ExitKey = ExitKey::device("io", "testdev", "record");
/// KVM's name for exits by port access. A KVM by software never counts any: it emulates the
/// instruction.
const KVM_IO_EXITS: &str = "io_exits";
/// KVM's name for instructions that it emulated.
const KVM_EMULATIONS: &str = "insn_emulation";

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
    exits: ExitSample,
    begin: Instant,
    cpu: Duration,
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
            let phase = self.close(open, now, [0; 3]);
            state.finished.push(phase);
        }
        if state.finished.len() >= PHASES_MAX {
            return Err(RecordError::TooMany {
                kind: RecordKind::PhaseBegin,
                max: PHASES_MAX,
            });
        }
        let exits = self.sample();
        state.open = Some(Open {
            name,
            path,
            exits,
            cpu: processor_time(),
            begin: Instant::now(),
        });
        Ok(())
    }

    /// Ends the open phase. By the guest's own count, it did `operations` operations, moved `bytes`
    /// bytes and rang `doorbells` doorbells in the phase.
    ///
    /// # Errors
    /// [`RecordError::Field`] if no phase is open.
    pub fn end(&self, operations: u64, bytes: u64, doorbells: u64) -> Result<(), RecordError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let open = state
            .open
            .take()
            .ok_or_else(|| field(RecordKind::PhaseEnd, "open phases", 0u32))?;
        let phase = self.close(open, now, [operations, bytes, doorbells]);
        state.finished.push(phase);
        Ok(())
    }

    /// Returns the phases that have ended, in order.
    pub fn finished(&self) -> Vec<Phase> {
        self.state.lock().finished.clone()
    }

    fn close(&self, open: Open, now: Instant, figures: [u64; 3]) -> Phase {
        let cpu = processor_time().saturating_sub(open.cpu);
        let end = self.sample();
        let mut kvm_exits = self.exits.kvm_between(&open.exits, &end);
        without_mark(&mut kvm_exits);
        let mut vmm_exits = counters::since(&open.exits.vmm, &end.vmm);
        if let Some(markers) = vmm_exits.get_mut(&MARKER) {
            *markers -= 1;
        }
        let [operations, bytes, doorbells] = figures;
        let duration = now.saturating_duration_since(open.begin);
        Phase {
            name: open.name,
            path: path_name(open.path),
            operations,
            bytes,
            doorbells,
            duration_ns: nanoseconds(duration),
            cpu_ns: nanoseconds(cpu),
            kvm_exits,
            vmm_exits: counters::named(&vmm_exits),
        }
    }

    /// Samples both counts at a mark. KVM counts the exit of the mark itself when the exit begins,
    /// the VMM only after the device has returned: so the mark is added to the VMM's count here.
    fn sample(&self) -> ExitSample {
        let mut sample = self.exits.sample();
        *sample.vmm.entry(MARKER).or_default() += 1;
        sample
    }
}

/// Processor time that this process has used.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.try_into().unwrap_or_default()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Takes the closing mark's own exit out of KVM's count, from wherever this KVM counts port
/// accesses.
fn without_mark(kvm_exits: &mut BTreeMap<String, u64>) {
    for name in [KVM_IO_EXITS, KVM_EMULATIONS] {
        if let Some(count @ 1..) = kvm_exits.get_mut(name) {
            *count -= 1;
            return;
        }
    }
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

    use causeway_vmm::counters::ExitCounters;
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
        mark(&counters, || recorder.end(5, 40, 0)).unwrap();
        let [phase] = &recorder.finished()[..] else {
            panic!("one phase");
        };
        assert_eq!((phase.path, phase.operations, phase.bytes), ("data", 5, 40));
        assert!(phase.vmm_exits.is_empty(), "{:?}", phase.vmm_exits);
    }

    #[test]
    fn the_closing_mark_is_taken_from_where_this_kvm_counts_it() {
        let counts = |io, emulated| {
            BTreeMap::from([
                (KVM_IO_EXITS.to_owned(), io),
                (KVM_EMULATIONS.to_owned(), emulated),
            ])
        };
        for (before, after) in [((3, 5), (2, 5)), ((0, 5), (0, 4)), ((0, 0), (0, 0))] {
            let mut kvm = counts(before.0, before.1);
            without_mark(&mut kvm);
            assert_eq!(kvm, counts(after.0, after.1));
        }
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
        mark(&counters, || recorder.end(1, 0, 0)).unwrap();
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
        assert!(recorder.end(0, 0, 0).is_err());
        for name in ["first", "second"] {
            mark(&counters, || recorder.begin(name.into(), PhasePath::Setup)).unwrap();
        }
        mark(&counters, || recorder.end(0, 0, 0)).unwrap();
        let finished = recorder.finished();
        let names: Vec<_> = finished.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        assert!(finished[0].vmm_exits.is_empty());
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
