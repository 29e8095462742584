//! What was measured of each cell, put together from samples and phases.

use std::collections::BTreeMap;

use causeway_laboratory::Taken;
use causeway_laboratory_workloads::Cell;
use causeway_vmm::harness::Phase;
use serde::Serialize;

use crate::bench::statistics::{Distribution, Ratio};

/// A cell of the table.
#[derive(Debug, Serialize)]
pub struct CellReport {
    /// Workload.
    pub workload: &'static str,
    /// What one operation of it is.
    pub what: &'static str,
    /// Size, in the unit.
    pub size: u64,
    /// Unit of the size.
    pub unit: &'static str,
    /// Mechanism.
    pub mechanism: &'static str,
    /// Operations of each sample; times and exits are of one operation.
    pub operations: u64,
    /// Times.
    pub time: Distribution,
    /// Time over that of the host in the same repetition, on memory of the same kind.
    pub over_native: Option<Ratio>,
    /// Processor time of the process for one operation, in nanoseconds.
    pub cpu_ns: f64,
    /// Exits; none of the host's own.
    pub exits: Option<ExitReport>,
}

/// Exits of all samples of a cell.
#[derive(Debug, Default, Serialize)]
pub struct ExitReport {
    /// Operations in which they were counted.
    pub operations: u64,
    /// KVM's count by kind, summed; kinds that did not count are left out.
    pub kvm: BTreeMap<String, u64>,
    /// The VMM's own count, by reason, device and register.
    pub vmm: BTreeMap<String, u64>,
    /// Returns to user space for each operation, by the VMM's own count.
    pub user_space_per_operation: f64,
    /// The same by KVM's count, without doorbells, which its own side takes. The two are equal, or the run fails.
    pub user_space_per_operation_by_kvm: f64,
    /// Doorbells for each operation.
    pub doorbells_per_operation: f64,
    /// Interrupts of the host for each operation.
    pub interrupts_per_operation: f64,
    /// Faults on memory of the guest that were not accesses to devices, for each operation: first touches.
    pub faults_per_operation: f64,
}

impl CellReport {
    /// The cell, if anything of it was measured.
    pub fn of(
        cell: &Cell,
        taken: &[Taken],
        phases: &[Phase],
        kvm_counts_ports: bool,
    ) -> Option<Self> {
        let description = cell.workload.description();
        let mine: Vec<&Taken> = taken.iter().filter(|t| t.sample.cell == *cell).collect();
        let name = phase_name(cell);
        // The first of each was not counted, neither here nor there.
        let phases = phases.iter().filter(|phase| phase.name == name).skip(1);
        let phases: Vec<&Phase> = phases.collect();
        let times = mine.iter().map(|taken| per_operation(taken));
        let used = mine.iter().filter_map(|taken| taken.cpu_ns);
        let cpu_ns: u64 = used.chain(phases.iter().map(|phase| phase.cpu_ns)).sum();
        let is_native = cell.mechanism.is_native();
        Some(Self {
            workload: description.name,
            what: description.what,
            size: cell.size,
            unit: description.unit,
            mechanism: cell.mechanism.name(),
            operations: cell.operations,
            time: Distribution::of(times.collect())?,
            over_native: over_native(cell, &mine, taken).filter(|_| !is_native),
            cpu_ns: cpu_ns as f64 / (mine.len() as f64 * cell.operations as f64),
            exits: (!is_native).then(|| ExitReport::of(&phases, kvm_counts_ports)),
        })
    }
}

/// As the guest calls the phase of a cell.
fn phase_name(cell: &Cell) -> String {
    let (workload, mechanism) = (cell.workload.name(), cell.mechanism.name());
    format!("{workload} {} {mechanism}", cell.size)
}

fn per_operation(taken: &Taken) -> f64 {
    taken.sample.ns as f64 / taken.sample.cell.operations.max(1) as f64
}

/// Each sample over the host's of the same repetition, on memory of the same kind.
fn over_native(cell: &Cell, mine: &[&Taken], taken: &[Taken]) -> Option<Ratio> {
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

impl ExitReport {
    fn of(phases: &[&Phase], kvm_counts_ports: bool) -> Self {
        let mut exits = Self::default();
        let mut doorbells = 0;
        for phase in phases {
            exits.operations += phase.operations;
            doorbells += phase.doorbells;
            add(&mut exits.kvm, &phase.kvm_exits);
            add(&mut exits.vmm, &phase.vmm_exits);
        }
        let user_space = |key: &str| matches!(key.split(':').next(), Some("mmio" | "io"));
        let by_vmm = exits.vmm.iter().filter(|(key, _)| user_space(key));
        let by_vmm: u64 = by_vmm.map(|(_, n)| n).sum();
        let operations = exits.operations.max(1) as f64;
        let kvm = |name: &str| exits.kvm.get(name).copied().unwrap_or(0);
        // A KVM by software counts every trapped access as an emulated instruction, ports and doorbells, too.
        let by_kvm = match kvm_counts_ports {
            true => kvm("mmio_exits") + kvm("io_exits"),
            false => kvm("insn_emulation").saturating_sub(doorbells),
        };
        // Each trapped access to a device's memory is a fault first.
        let first_touches = kvm("pf_taken").saturating_sub(kvm("pf_emulate"));
        let interrupts = kvm("irq_exits");
        let each = |count: u64| count as f64 / operations;
        exits.user_space_per_operation = each(by_vmm);
        exits.user_space_per_operation_by_kvm = each(by_kvm);
        exits.doorbells_per_operation = each(doorbells);
        exits.interrupts_per_operation = each(interrupts);
        exits.faults_per_operation = each(first_touches);
        exits
    }

    /// Whether both counters have counted the same; a KVM without statistics counts nothing.
    pub fn agrees(&self) -> bool {
        self.kvm.is_empty() || self.user_space_per_operation == self.user_space_per_operation_by_kvm
    }
}

fn add(sum: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts.iter().filter(|(_, count)| **count != 0) {
        *sum.entry(name.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_laboratory_workloads::plan::Effort;
    use causeway_laboratory_workloads::wire::sample::Sample;
    use causeway_laboratory_workloads::{MechanismKind, WorkloadKind};

    fn cell(mechanism: MechanismKind) -> Cell {
        let cell = WorkloadKind::LaunchAndWait.cell(mechanism, Effort::Quick, 1);
        cell.unwrap()
    }

    fn taken(mechanism: MechanismKind, repetition: u64, ns_each: u64) -> Taken {
        let cell = cell(mechanism);
        Taken {
            sample: Sample {
                cell,
                repetition,
                ns: ns_each * cell.operations,
            },
            cpu_ns: (mechanism == MechanismKind::Native).then_some(ns_each * cell.operations),
        }
    }

    /// A phase in which each operation has so many accesses to memory and ports that KVM emulates.
    fn phase(mechanism: MechanismKind, [mmio, io]: [u64; 2], emulated: u64) -> Phase {
        let cell = cell(mechanism);
        let counts = |pairs: &[(&str, u64)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(name, each)| ((*name).to_owned(), each * cell.operations))
                .collect()
        };
        Phase {
            name: phase_name(&cell),
            path: "data",
            operations: cell.operations,
            bytes: 0,
            doorbells: 0,
            duration_ns: 1,
            cpu_ns: 7 * cell.operations,
            kvm_exits: counts(&[("mmio_exits", mmio), ("insn_emulation", emulated)]),
            vmm_exits: counts(&[
                ("mmio:trap:kick", mmio),
                ("io:forward:batch", io),
                ("halt", 9),
            ]),
        }
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
        let report = |mechanism| CellReport::of(&cell(mechanism), &samples, &[], false);
        let trap = report(MechanismKind::Trap).unwrap();
        assert_eq!(trap.time.samples_ns, [30.0, 100.0, 999.0]);
        let ratio = trap.over_native.unwrap();
        assert_eq!((ratio.low, ratio.high), (2.0, 3.0));
        let native = report(MechanismKind::Native).unwrap();
        assert_eq!((native.cpu_ns, native.time.median_ns), (30.0, 30.0));
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
        let report = |mechanism| CellReport::of(&cell(mechanism), &samples, &[], false).unwrap();
        let passed = report(MechanismKind::Passthrough);
        assert_eq!(passed.over_native.unwrap().median, 3.0);
        let natively = report(MechanismKind::NativeBar);
        assert!(natively.over_native.is_none() && natively.exits.is_none());
    }

    #[test]
    fn the_first_phase_of_a_cell_is_not_counted() {
        let kind = MechanismKind::Trap;
        let phases = [phase(kind, [99, 0], 99), phase(kind, [5, 0], 5)];
        let report = CellReport::of(&cell(kind), &[taken(kind, 0, 30)], &phases, false);
        let report = report.unwrap();
        let exits = report.exits.unwrap();
        assert_eq!(exits.user_space_per_operation, 5.0);
        assert!(exits.agrees());
        assert_eq!(report.cpu_ns, 7.0);
    }

    #[test]
    fn counters_that_differ_are_found_on_either_kind_of_kvm() {
        let agree = |counts, emulated, ports| {
            let phase = phase(MechanismKind::Trap, counts, emulated);
            ExitReport::of(&[&phase], ports).agrees()
        };
        assert!(agree([5, 1], 6, false));
        assert!(!agree([5, 1], 5, false));
        assert!(!agree([5, 1], 7, false));
        assert!(agree([5, 0], 0, true));
        assert!(
            !agree([5, 1], 6, true),
            "a port access that KVM has not counted"
        );
    }
}
