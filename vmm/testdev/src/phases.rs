//! Phases of a workload: what KVM and the VMM counted between two marks.
//!
//! A mark is one store to a port, hence one exit. The mark that begins a phase lies before the
//! first sample. The mark that ends it lies between the samples: that one exit is subtracted from
//! KVM's `io_exits` (from `insn_emulation` on a KVM by software, which emulates port accesses and
//! counts them there) and from the VMM's own count. KVM's `exits` stays as KVM gives it, with the
//! mark, because hosts differ in how many exits of the hardware a port access takes.
//!
//! A phase that the guest leaves open ends with its VM. If the guest ends the VM, it does so by one
//! exit (a store to the exit port or to a power register, a triple fault), which is left out like a
//! closing mark. If the host does (a time limit, a signal), all counts up to then are in the phase,
//! and none of the exits by which the host then stops the virtual CPUs.
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
use causeway_vmm::counters::ExitKey;
use causeway_vmm::exit_counts::VmExits;
use parking_lot::Mutex;
use serde::Serialize;

use crate::interval::{CountedExits, Interval, nanoseconds};
use crate::record::{RecordError, field};

/// Maximum number of phases that one guest can report.
pub const PHASES_MAX: usize = 4096;

/// What was counted and timed in one phase of a guest's run, after the phase has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Phase {
    /// Name of the phase.
    pub name: String,
    /// What the phase exercises: `setup`, `control` (the control path) or `data` (the data path).
    pub path: &'static str,
    /// Number of operations that the guest did in the phase.
    pub operations: u64,
    /// Number of bytes that the guest moved in the phase.
    pub bytes: u64,
    /// Number of doorbells that the guest rang in the phase, by its own count.
    pub doorbells: u64,
    /// Number of stores to doorbells that KVM took without the VMM, as the host counts them; absent
    /// if the host does not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm_doorbells: Option<u64>,
    /// What ended the phase.
    pub ended_by: EndedBy,
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

/// What ended a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// A mark or record of the guest.
    Mark,
    /// The exit by which the guest ended its VM, while the phase was open.
    Exit,
    /// The host, which ended the VM while the phase was open, or asked for a report. Also the end
    /// of a VM whose virtual CPUs have all parked.
    Host,
}

/// Begins and ends the phases of one guest, and keeps their counts.
#[derive(Debug)]
pub struct PhaseRecorder {
    exits: VmExits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    finished: Vec<Phase>,
    refused: u64,
    /// Whether the VM has come to its end, after which no phase begins.
    vm_ended: bool,
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
    /// [`RecordError::TooMany`] if the guest has reported [`PHASES_MAX`] phases, or
    /// [`RecordError::Ended`] if the VM has come to its end.
    pub fn begin(&self, name: String, path: PhasePath) -> Result<(), RecordError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.vm_ended {
            return Err(RecordError::Ended);
        }
        if let Some(open) = state.open.take() {
            let phase = self.close(open, now, Totals::default());
            state.finished.push(phase);
        }
        if state.finished.len() >= PHASES_MAX {
            state.refused += 1;
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

    /// Ends the open phase, if there is one, because the VM has come to its end: by `exit` of the
    /// guest, which both counters have, or by the host. No phase begins after that. Calls after the
    /// first do nothing.
    pub fn vm_ends(&self, exit: Option<ExitKey>) {
        let mut state = self.state.lock();
        state.vm_ended = true;
        let Some(open) = state.open.take() else {
            return;
        };
        let cpu = open.processor_time();
        let (counted, ended_by) = match exit {
            Some(exit) => (open.interval.end_at_exit(&self.exits, exit), EndedBy::Exit),
            None => (open.interval.until_now(&self.exits), EndedBy::Host),
        };
        let phase = open.phase(counted, cpu, Totals::default(), ended_by);
        state.finished.push(phase);
    }

    /// Returns the phases of the guest, in order. A phase that is open has its counts up to now.
    pub fn phases(&self) -> Vec<Phase> {
        let state = self.state.lock();
        let open = state.open.as_ref().map(|open| {
            let counted = open.interval.until_now(&self.exits);
            let cpu = open.processor_time();
            open.phase(counted, cpu, Totals::default(), EndedBy::Host)
        });
        state.finished.iter().cloned().chain(open).collect()
    }

    /// Returns the number of phases that [`Self::begin`] has refused because there were too many.
    pub fn refused(&self) -> u64 {
        self.state.lock().refused
    }

    fn close(&self, open: Open, now: Instant, totals: Totals) -> Phase {
        let cpu = open.processor_time();
        let counted = open.interval.end_at_mark(&self.exits, now);
        open.phase(counted, cpu, totals, EndedBy::Mark)
    }
}

impl Open {
    /// Processor time that this process has used since the phase began.
    fn processor_time(&self) -> Duration {
        processor_time().saturating_sub(self.cpu)
    }

    fn phase(
        &self,
        counted: CountedExits,
        cpu: Duration,
        totals: Totals,
        ended_by: EndedBy,
    ) -> Phase {
        let CountedExits {
            duration_ns,
            kvm_exits,
            vmm_exits,
            kvm_doorbells,
        } = counted;
        Phase {
            name: self.name.clone(),
            path: path_name(self.path),
            operations: totals.operations,
            bytes: totals.bytes,
            doorbells: totals.doorbells,
            kvm_doorbells,
            ended_by,
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
    use causeway_vmm::counters::ExitCounters;
    use causeway_vmm::statistics::VmStatistics;
    use std::sync::Arc;

    const DOORBELL: ExitKey = ExitKey::device("mmio", "registers", "control_doorbell");

    impl PhaseRecorder {
        /// Keeps phases from beginning or ending until the result is dropped.
        pub(crate) fn hold(&self) -> impl Sized + '_ {
            self.state.lock()
        }
    }

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
        let [phase] = &recorder.phases()[..] else {
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
        assert_eq!(recorder.phases()[0].vmm_exits, BTreeMap::from(wanted));
    }

    #[test]
    fn a_new_phase_ends_an_open_one_and_an_end_alone_is_refused() {
        let (recorder, counters) = recorder();
        assert!(recorder.end(Totals::default()).is_err());
        for name in ["first", "second"] {
            mark(&counters, || recorder.begin(name.into(), PhasePath::Setup)).unwrap();
        }
        mark(&counters, || recorder.end(Totals::default())).unwrap();
        let finished = recorder.phases();
        let names: Vec<_> = finished.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        assert!(finished[0].vmm_exits.is_empty());
    }

    /// Ends the VM by this exit, which the VMM has counted before.
    fn end_vm(recorder: &PhaseRecorder, counters: &ExitCounters, exit: ExitKey) {
        counters.count(exit);
        recorder.vm_ends(Some(exit));
    }

    #[test]
    fn a_phase_that_is_left_open_ends_with_the_vm_but_for_the_exit_that_ends_it() {
        let exit = ExitKey::device("io", "testdev", "exit");
        for (doorbells, wanted) in [(0, vec![]), (2, vec![(DOORBELL.to_string(), 2)])] {
            let (recorder, counters) = recorder();
            mark(&counters, || recorder.begin("left".into(), PhasePath::Data)).unwrap();
            (0..doorbells).for_each(|_| counters.count(DOORBELL));
            end_vm(&recorder, &counters, exit);
            // The host stops the others.
            counters.count(ExitKey::plain("signal"));
            recorder.vm_ends(None);
            let [phase] = &recorder.phases()[..] else {
                panic!("one phase");
            };
            assert_eq!(phase.ended_by, EndedBy::Exit);
            assert_eq!(phase.vmm_exits, wanted.into_iter().collect());
            let late = mark(&counters, || recorder.begin("late".into(), PhasePath::Data));
            assert_eq!(late, Err(RecordError::Ended));
            assert_eq!(recorder.refused(), 0, "it is no phase of the guest's run");
        }
    }

    #[test]
    fn a_phase_in_which_the_host_ends_the_vm_has_all_exits_so_far() {
        let (recorder, counters) = recorder();
        mark(&counters, || recorder.begin("left".into(), PhasePath::Data)).unwrap();
        counters.count(DOORBELL);
        let wanted = BTreeMap::from([(DOORBELL.to_string(), 1)]);
        for _ in 0..2 {
            let phases = recorder.phases();
            assert_eq!((phases.len(), phases[0].ended_by), (1, EndedBy::Host));
            assert_eq!(phases[0].vmm_exits, wanted);
            recorder.vm_ends(None);
        }
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
        let finished = recorder.phases();
        let operations: Vec<_> = finished.iter().map(|p| p.operations).collect();
        assert_eq!(operations, [7, 8]);
    }

    #[test]
    fn phases_are_bounded() {
        let (recorder, _) = recorder();
        for _ in 0..PHASES_MAX {
            recorder.begin(String::new(), PhasePath::Setup).unwrap();
        }
        assert_eq!(recorder.refused(), 0);
        for refused in 1..3 {
            assert!(recorder.begin(String::new(), PhasePath::Setup).is_err());
            assert_eq!(recorder.refused(), refused);
        }
        assert_eq!(recorder.phases().len(), PHASES_MAX);
    }
}
