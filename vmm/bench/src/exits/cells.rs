//! Results of each cell, from samples and phases.

use causeway_bench_mechanisms::{Measurement, SingleTimes};
use causeway_bench_workloads::singles::{SINGLES_MIN, Single};
use causeway_bench_workloads::{Cell, MechanismKind};
use serde::Serialize;

use super::counts::{ExitReport, KvmCounts, disagreement};
use causeway_bench_medians::{
    self as medians, Distribution, NotTimed, Quoted, Ratio, Singles, median_of,
};
use causeway_run::report::PhaseReport;

// A guest takes as many single times as a percentile needs.
const _: () = assert!(SINGLES_MIN == medians::SINGLES_MIN);

/// Largest ratio of the ends of a steady interval.
const STEADY: f64 = 2.0;

/// Results of one cell of the table: a workload at one size by one mechanism.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellReport {
    /// Name of the workload.
    pub workload: &'static str,
    /// What one operation of the workload does.
    pub what: &'static str,
    /// Size of the workload, in `unit`.
    pub size: u64,
    /// Unit of `size`: `B` for bytes, or what is counted.
    pub unit: &'static str,
    /// Name of the mechanism.
    pub mechanism: &'static str,
    /// Number of operations in each sample. The times in this report are those of one operation.
    pub operations: u64,
    /// Number of samples that were taken.
    pub samples: usize,
    /// Times of one operation.
    pub time: Distribution,
    /// Whether the confidence interval of the median time spans more than a factor of two.
    pub unsteady: bool,
    /// Ratio of this time to the host's time in the same repetition, on memory of the same kind;
    /// absent for cells of the host.
    pub over_native: Option<Ratio>,
    /// Processor time that this process used for one operation, in nanoseconds: the median over the
    /// samples.
    pub cpu_ns: Option<f64>,
    /// Times of operations that were timed one by one, after all samples.
    pub single: Singles,
    /// VM exits during the samples; absent for cells of the host, and if exits were not counted in
    /// one of the samples.
    pub exits: Option<ExitReport>,
    /// Results of the same cell while the other side's process held no context on the GPU; absent
    /// if that was not measured, as on the software back end.
    pub alone: Option<AloneReport>,
    /// The less favourable of the ratios to the host alone and in turn; absent unless both were
    /// measured.
    pub quoted: Option<Quoted>,
}

/// Results of a cell that was measured alone.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AloneReport {
    /// Times of one operation.
    pub time: Distribution,
    /// Ratio of the median time to that of the host alone; absent for the host, and if the host was
    /// not measured.
    pub over_native: Option<Ratio>,
    /// Times of operations that were timed one by one.
    pub single: Singles,
}

impl CellReport {
    /// Returns the results of a cell, or `None` if it has no samples. `taken` are the samples of
    /// all cells; `counted` are the phases in which exits were counted for this cell, without that
    /// of the warm-up; `counts` says how KVM counts exits on this host.
    pub fn of(
        cell: &Cell,
        taken: &[Measurement],
        counted: &[&PhaseReport],
        counts: KvmCounts,
    ) -> Option<Self> {
        let description = cell.workload.description();
        let mine: Vec<&Measurement> = taken.iter().filter(|t| t.sample.cell == *cell).collect();
        let phases = paired(counted, mine.len());
        let time = Distribution::of(mine.iter().map(|taken| per_operation(taken)).collect())?;
        let is_native = cell.mechanism.is_native();
        Some(Self {
            workload: description.name,
            what: description.what,
            size: cell.size,
            unit: description.unit,
            mechanism: cell.mechanism.name(),
            operations: cell.operations,
            samples: mine.len(),
            unsteady: is_unsteady(time.interval()),
            time,
            over_native: over_native(cell, &mine, taken).filter(|_| !is_native),
            cpu_ns: cpu_ns(&mine, phases.unwrap_or_default()),
            single: not_timed(description.single).into(),
            exits: phases
                .filter(|_| !is_native)
                .and_then(|phases| ExitReport::of(phases, counts)),
            alone: None,
            quoted: None,
        })
    }

    /// Returns what identifies the cell: workload, size and mechanism.
    pub const fn key(&self) -> (&'static str, u64, &'static str) {
        (self.workload, self.size, self.mechanism)
    }

    /// Returns whether the host does the work itself.
    pub fn is_native(&self) -> bool {
        MechanismKind::named(self.mechanism).is_some_and(MechanismKind::is_native)
    }
}

/// Returns why single operations of a workload have no times, if none were taken.
const fn not_timed(single: Single) -> NotTimed {
    match single {
        Single::ByItself => NotTimed::NotReached,
        Single::InLoop => NotTimed::InLoop,
        Single::OfMany => NotTimed::OfMany,
    }
}

impl CellReport {
    /// Takes the times of single operations of this cell from those of all cells, if they were
    /// taken.
    pub fn take_singles(&mut self, all: &[SingleTimes]) {
        let found = all.iter().find(|times| {
            let SingleTimes { cell, .. } = times;
            (cell.workload.name(), cell.size) == (self.workload, self.size)
                && cell.mechanism.name() == self.mechanism
        });
        let Some(SingleTimes {
            timer_ns, times_ns, ..
        }) = found
        else {
            return;
        };
        let times: Vec<f64> = times_ns.iter().map(|ns| *ns as f64).collect();
        self.single = match times.is_empty() {
            true => NotTimed::TooLong.into(),
            false => Singles::of(&times, Some(*timer_ns as f64)),
        };
    }
}

/// Returns the phases of `samples` samples, if each has one. There may be one more phase, of a
/// sample that the guest did not hand over.
fn paired<'p, 's>(counted: &'p [&'s PhaseReport], samples: usize) -> Option<&'p [&'s PhaseReport]> {
    counted.get(..samples)
}

/// Returns whether a confidence interval spans more than a factor of two.
pub fn is_unsteady(interval: Option<(f64, f64)>) -> bool {
    interval.is_some_and(|(low, high)| high > STEADY * low)
}

/// Returns the processor time of an operation: from the samples for the host, from the phases for a
/// guest.
fn cpu_ns(mine: &[&Measurement], phases: &[&PhaseReport]) -> Option<f64> {
    let natively = mine.iter().filter_map(|taken| {
        let operations = taken.sample.cell.operations.max(1);
        Some(taken.cpu_ns? as f64 / operations as f64)
    });
    let in_guest = phases.iter().map(|phase| {
        let phase = &phase.phase;
        phase.cpu_ns as f64 / phase.operations.max(1) as f64
    });
    median_of(&natively.chain(in_guest).collect::<Vec<_>>())
}

/// Returns a message for each phase of a cell whose exits were not counted, or counted differently
/// by KVM and the VMM. `samples` is the number of samples that were taken.
pub fn faults_of_counting(
    cell: &Cell,
    samples: usize,
    counted: &[&PhaseReport],
    counts: KvmCounts,
) -> Vec<String> {
    if cell.mechanism.is_native() {
        return Vec::new();
    }
    let count = counted.len();
    let mut faults = Vec::new();
    if count < samples {
        faults.push(format!(
            "{samples} samples were taken, but exits were counted in {count} phases only"
        ));
    }
    faults.extend(counted.iter().zip(1..).filter_map(|(phase, number)| {
        let what = disagreement(phase, counts)?;
        Some(format!("phase {number} of {count}: {what}"))
    }));
    faults
}

fn per_operation(taken: &Measurement) -> f64 {
    taken.sample.ns as f64 / taken.sample.cell.operations.max(1) as f64
}

/// Returns the ratio of each sample to that of the host in the same repetition, on memory of the
/// same kind.
fn over_native(cell: &Cell, mine: &[&Measurement], taken: &[Measurement]) -> Option<Ratio> {
    let native = |repetition: u64| {
        taken.iter().find(|other| {
            let sample = &other.sample;
            sample.cell.mechanism == cell.mechanism.counterpart()
                && sample.repetition == repetition
                && (sample.cell.workload, sample.cell.size) == (cell.workload, cell.size)
        })
    };
    Ratio::of(mine.iter().filter_map(|taken| {
        let native = native(taken.sample.repetition)?;
        Some((per_operation(taken), per_operation(native)))
    }))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::exits::counts::tests::phase as counted;
    use causeway_bench_workloads::WorkloadKind;
    use causeway_bench_workloads::host_interface::sample::Sample;
    use causeway_bench_workloads::measurement_plan::Effort;

    /// A launch, waited for.
    pub fn cell(mechanism: MechanismKind) -> Cell {
        let cell = WorkloadKind::LaunchAndWait.cell(mechanism, Effort::Quick, 1);
        cell.unwrap()
    }

    /// A sample of it, whose operations took so long each.
    pub fn taken(mechanism: MechanismKind, repetition: u64, ns_each: u64) -> Measurement {
        let cell = cell(mechanism);
        let is_native = mechanism.is_native();
        Measurement {
            sample: Sample {
                cell,
                repetition,
                ns: ns_each * cell.operations,
            },
            cpu_ns: is_native.then_some(ns_each * cell.operations),
        }
    }

    /// A phase of it in which each operation is so many accesses to memory by the VMM, and by KVM.
    pub fn phase(mechanism: MechanismKind, by_vmm: u64, by_kvm: u64) -> PhaseReport {
        let cell = cell(mechanism);
        let [vmm, kvm] = [by_vmm, by_kvm].map(|each| each * cell.operations);
        counted(&cell.to_string(), cell.operations, [vmm, 0], [kvm, 0, kvm])
    }

    #[test]
    fn a_cell_is_compared_with_the_host_in_the_same_repetition() {
        let samples = [
            taken(MechanismKind::Native, 0, 10),
            taken(MechanismKind::Trap, 0, 30),
            taken(MechanismKind::Trap, 1, 100),
            taken(MechanismKind::Native, 1, 50),
            // The host's was not taken any more.
            taken(MechanismKind::Trap, 2, 999),
        ];
        let report = |mechanism| {
            let cell = cell(mechanism);
            CellReport::of(&cell, &samples, &[], KvmCounts::Emulations)
        };
        let trap = report(MechanismKind::Trap).unwrap();
        assert_eq!(trap.time.samples_ns, [30.0, 100.0, 999.0]);
        assert_eq!(trap.over_native.unwrap().median, 2.5);
        assert!(trap.exits.is_none(), "not counted");
        assert_eq!((trap.samples, trap.cpu_ns), (3, None));
        let native = report(MechanismKind::Native).unwrap();
        assert_eq!((native.cpu_ns, native.time.median_ns), (Some(30.0), 30.0));
        assert!(native.over_native.is_none() && native.exits.is_none());
        assert!(report(MechanismKind::Forward).is_none(), "no samples");
    }

    #[test]
    fn a_device_is_compared_with_the_host_on_that_device() {
        let samples = [
            taken(MechanismKind::Native, 0, 10),
            taken(MechanismKind::Passthrough, 0, 90),
            taken(MechanismKind::NativeBar, 0, 30),
        ];
        let report =
            |mechanism| CellReport::of(&cell(mechanism), &samples, &[], KvmCounts::Ports).unwrap();
        let passed = report(MechanismKind::Passthrough);
        assert_eq!(passed.over_native.unwrap().median, 3.0);
        let natively = report(MechanismKind::NativeBar);
        assert!(natively.over_native.is_none() && natively.exits.is_none());
    }

    #[test]
    fn each_sample_has_its_phase_and_no_other_counts() {
        let kind = MechanismKind::Trap;
        let samples = [0, 1, 2].map(|repetition| taken(kind, repetition, 30));
        let mut phases = [5, 5, 5, 99].map(|each| phase(kind, each, each));
        phases[1].phase.cpu_ns *= 1000;
        let phases: Vec<&PhaseReport> = phases.iter().collect();
        let report = CellReport::of(&cell(kind), &samples, &phases, KvmCounts::Emulations);
        let report = report.unwrap();
        assert_eq!(report.exits.unwrap().user_space_per_operation, 5.0);
        assert_eq!(report.cpu_ns, Some(7.0), "the median, not the mean");
    }

    #[test]
    fn a_sample_without_a_phase_is_a_fault_and_no_zero() {
        let kind = MechanismKind::Mediated;
        let samples = [taken(kind, 0, 30), taken(kind, 1, 30)];
        let (cell, counts) = (cell(kind), KvmCounts::Ports);
        let one = phase(kind, 0, 0);
        for phases in [&[][..], &[&one][..]] {
            let report = CellReport::of(&cell, &samples, phases, counts).unwrap();
            assert!(report.exits.is_none() && report.cpu_ns.is_none());
            let faults = faults_of_counting(&cell, 2, phases, counts);
            assert_eq!(faults.len(), 1);
            assert!(faults[0].contains("2 samples"), "{faults:?}");
        }
        let two = [&one, &one];
        assert!(faults_of_counting(&cell, 2, &two, counts).is_empty());
        assert!(
            CellReport::of(&cell, &samples, &two, counts)
                .unwrap()
                .exits
                .is_some()
        );
    }

    #[test]
    fn counts_that_differ_within_phases_are_found_though_their_sums_are_equal() {
        let kind = MechanismKind::Trap;
        let (more, fewer) = (phase(kind, 5, 6), phase(kind, 6, 5));
        let phases = [&more, &fewer];
        let faults = faults_of_counting(&cell(kind), 2, &phases, KvmCounts::Emulations);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[1].starts_with("phase 2 of 2: KVM"), "{faults:?}");
    }

    #[test]
    fn single_operations_have_a_percentile_or_the_reason_why_not() {
        let kind = MechanismKind::Mediated;
        let with = |times_ns: &[u64]| {
            let samples = [taken(kind, 0, 30)];
            let report = CellReport::of(&cell(kind), &samples, &[], KvmCounts::Ports);
            let mut report = report.unwrap();
            assert_eq!(report.single.reason(), Some(NotTimed::NotReached));
            // Those of another mechanism are not this cell's.
            let singles = |kind, times_ns: &[u64]| SingleTimes {
                cell: cell(kind),
                timer_ns: 10,
                times_ns: times_ns.to_vec(),
            };
            let native = singles(MechanismKind::Native, &[999; 100]);
            report.take_singles(&[native, singles(kind, times_ns)]);
            report.single
        };
        let mut times = [200; 100];
        times[7] = 5000;
        times[8] = 4000;
        assert_eq!(with(&times).timed().unwrap().p99_ns, 4000.0);
        assert_eq!(with(&[]).reason(), Some(NotTimed::TooLong));
        assert_eq!(with(&[99; 100]).reason(), Some(NotTimed::TooShort));
    }

    #[test]
    fn an_interval_of_more_than_a_factor_of_two_is_unsteady() {
        let kind = MechanismKind::Native;
        let steady = |times: [u64; 6]| {
            let samples: Vec<Measurement> =
                (0..).zip(times).map(|(r, ns)| taken(kind, r, ns)).collect();
            let report = CellReport::of(&cell(kind), &samples, &[], KvmCounts::Ports);
            !report.unwrap().unsteady
        };
        assert!(steady([10, 20, 11, 12, 13, 14]));
        assert!(!steady([10, 21, 11, 12, 13, 14]));
        assert!(!is_unsteady(None), "nothing is known");
    }
}
