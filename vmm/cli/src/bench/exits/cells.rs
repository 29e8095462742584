//! What was measured of each cell, put together from samples and phases.

use std::collections::BTreeMap;

use causeway_laboratory::Taken;
use causeway_laboratory_workloads::{Cell, MechanismKind};
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
    /// Time over that of the host in the same repetition.
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
    /// All exits for each operation by KVM's count, interrupts of the host and first touches included.
    pub all_per_operation: f64,
}

impl CellReport {
    /// The cell, if anything of it was measured.
    pub fn of(cell: &Cell, taken: &[Taken], phases: &[Phase]) -> Option<Self> {
        let description = cell.workload.description();
        let mine: Vec<&Taken> = taken.iter().filter(|t| t.sample.cell == *cell).collect();
        let name = phase_name(cell);
        // The first of each was not counted, neither here nor there.
        let phases = phases.iter().filter(|phase| phase.name == name).skip(1);
        let phases: Vec<&Phase> = phases.collect();
        let times = mine.iter().map(|taken| per_operation(taken));
        let used = mine.iter().filter_map(|taken| taken.cpu_ns);
        let cpu_ns: u64 = used.chain(phases.iter().map(|phase| phase.cpu_ns)).sum();
        let is_native = cell.mechanism == MechanismKind::Native;
        Some(Self {
            workload: description.name,
            what: description.what,
            size: cell.size,
            unit: description.unit,
            mechanism: cell.mechanism.name(),
            operations: cell.operations,
            time: Distribution::of(times.collect())?,
            over_native: (!is_native).then(|| over_native(cell, &mine, taken))?,
            cpu_ns: cpu_ns as f64 / (mine.len() as f64 * cell.operations as f64),
            exits: (!is_native).then(|| ExitReport::of(&phases)),
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

/// Each sample over the host's of the same repetition.
fn over_native(cell: &Cell, mine: &[&Taken], taken: &[Taken]) -> Option<Ratio> {
    let native = |repetition: u64| {
        taken.iter().find(|other| {
            let sample = &other.sample;
            sample.cell.mechanism == MechanismKind::Native
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
    fn of(phases: &[&Phase]) -> Self {
        let mut exits = Self::default();
        for phase in phases {
            exits.operations += phase.operations;
            add(&mut exits.kvm, &phase.kvm_exits);
            add(&mut exits.vmm, &phase.vmm_exits);
        }
        let user_space = |key: &str| matches!(key.split(':').next(), Some("mmio" | "io"));
        let by_vmm = exits.vmm.iter().filter(|(key, _)| user_space(key));
        let by_vmm: u64 = by_vmm.map(|(_, n)| n).sum();
        let operations = exits.operations.max(1) as f64;
        exits.user_space_per_operation = by_vmm as f64 / operations;
        let all = exits.kvm.get("exits").copied().unwrap_or(0);
        exits.all_per_operation = all as f64 / operations;
        exits
    }
}

fn add(sum: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts.iter().filter(|(_, count)| **count != 0) {
        *sum.entry(name.clone()).or_default() += count;
    }
}
