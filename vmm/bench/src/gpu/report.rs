//! The report of `bench gpu`: what `--json` writes, and what the table shows.

use std::collections::BTreeMap;

use causeway_bench_workloads::LINES;
use causeway_run::report::{EmulatedExits, PhaseReport};
use causeway_testdev::{Figure, Report, Sample};
use causeway_vmm::host::Host;
use serde::Serialize;

use crate::exits::counts::add;
use causeway_bench_medians::{Distribution, Ratio};
use causeway_terminal::Origin;

/// Name and version of the report's format. Fields may be added; if the meaning of a field changes,
/// so does the number.
pub const SCHEMA: &str = "causeway.bench-gpu/1";

/// Report of `causeway bench gpu`, as `--json` writes it.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    /// Name and version of this format: always [`SCHEMA`].
    pub schema: &'static str,
    /// Version of Causeway that made the report.
    pub causeway: &'static str,
    /// Time, command line, build and load of the benchmark.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine on which the benchmark ran.
    pub host: Host,
    /// The GPU, or the software back end, that the guest used.
    pub device: DeviceReport,
    /// Whether the guest passed, and KVM and the VMM counted the same exits in every phase.
    pub passed: bool,
    /// How the guest ended, as text for people.
    pub result: String,
    /// Results by operation and size, in the order of the table.
    pub lines: Vec<LineReport>,
    /// Figures that the guest computed itself.
    pub figures: Vec<Figure>,
}

/// The device that the guest used, as the back end describes it.
#[derive(Debug, Serialize)]
pub struct DeviceReport {
    /// Name of the back end and its device.
    pub name: String,
    /// Version of CUDA that the driver supports; absent for the software back end.
    pub driver: Option<String>,
    /// Number of multiprocessors of the GPU, or of cores that the software back end uses.
    pub compute_units: u32,
    /// GPU memory that the guest may allocate, in bytes.
    pub memory_bytes: u64,
}

/// One line of the table: an operation at one size, in the guest and on the host.
#[derive(Debug, Serialize)]
pub struct LineReport {
    /// Short name of the operation.
    pub line: &'static str,
    /// What one operation does, in the guest and on the host.
    pub what: &'static str,
    /// `data` if the operation may cause no exit, else `control`.
    pub path: &'static str,
    /// Bytes that one operation copies or allocates; 0 for operations without a size.
    pub bytes: u64,
    /// Number of operations in each sample. All times are those of one operation.
    pub operations: u32,
    /// Times of one operation in the guest.
    pub guest: Distribution,
    /// Times of one operation on the host; absent if the host cannot run it.
    pub native: Option<Distribution>,
    /// Median ratio of the guest's time to the host's time for the same operations, of pairs of
    /// samples taken one after the other; absent if the host has no times.
    pub guest_over_native: Option<Ratio>,
    /// VM exits during all samples of this line.
    pub exits: ExitReport,
}

/// VM exits during the samples of one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExitReport {
    /// Number of operations during which exits were counted.
    pub operations: u64,
    /// KVM's statistics by name, summed over the samples, without those that are 0.
    pub kvm: BTreeMap<String, u64>,
    /// Exits that reached the VMM, by reason, device and register, as the VMM counts them.
    pub vmm: BTreeMap<String, u64>,
    /// Number of doorbells that the guest rang.
    pub doorbells: u64,
    /// Exits to user space per operation, as KVM counts them: its `mmio_exits` and `io_exits`.
    pub user_space_per_operation: f64,
    /// Exits to user space per operation, as the VMM counts them.
    pub user_space_per_operation_by_vmm: f64,
}

impl LineReport {
    /// Returns a line for each operation and size of which the guest reported samples.
    pub fn all(reported: &Report, phases: &[PhaseReport]) -> Vec<Self> {
        let mut lines = Vec::new();
        for line in LINES {
            let mut by_bytes: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
            for sample in reported.samples.iter().filter(|s| s.line == *line) {
                by_bytes.entry(sample.bytes).or_default().push(sample);
            }
            for (bytes, samples) in by_bytes {
                let phases = phases.iter().filter(|PhaseReport { phase, .. }| {
                    phase.name == line.name() && phase.bytes == bytes * phase.operations
                });
                lines.extend(Self::of(&samples, &phases.collect::<Vec<_>>()));
            }
        }
        lines
    }

    fn of(samples: &[&Sample], phases: &[&PhaseReport]) -> Option<Self> {
        let first = samples.first()?;
        let per_operation = |ns: u64, sample: &Sample| ns as f64 / f64::from(sample.operations);
        let guest = samples.iter().map(|s| per_operation(s.guest_ns, s));
        let pairs = samples
            .iter()
            .filter_map(|s| Some((per_operation(s.guest_ns, s), per_operation(s.native_ns?, s))));
        let native = pairs.clone().map(|(_, native)| native).collect();
        Some(Self {
            line: first.line.name(),
            what: first.line.doc().trim(),
            path: phases.first().map_or("control", |phase| phase.phase.path),
            bytes: first.bytes,
            operations: first.operations,
            guest: Distribution::of(guest.collect())?,
            native: Distribution::of(native),
            guest_over_native: Ratio::of(pairs),
            exits: ExitReport::of(phases),
        })
    }
}

impl ExitReport {
    fn of(phases: &[&PhaseReport]) -> Self {
        let mut exits = Self::default();
        for PhaseReport { phase, .. } in phases {
            exits.operations += phase.operations;
            exits.doorbells += phase.doorbells;
            add(&mut exits.kvm, &phase.kvm_exits);
            add(&mut exits.vmm, &phase.vmm_exits);
        }
        let operations = exits.operations.max(1) as f64;
        let per_operation = |count: fn(&PhaseReport) -> EmulatedExits| {
            let counts = phases.iter().map(|phase| count(phase));
            counts.map(|count| count.mmio + count.io).sum::<u64>() as f64 / operations
        };
        exits.user_space_per_operation = per_operation(PhaseReport::by_kvm);
        exits.user_space_per_operation_by_vmm = per_operation(PhaseReport::by_vmm);
        exits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_bench_workloads::Line;
    use causeway_testdev::Phase;

    fn sample(guest_ns: u64, native_ns: Option<u64>) -> Sample {
        Sample {
            line: Line::Pipelined,
            operations: 10,
            bytes: 0,
            guest_ns,
            native_ns,
        }
    }

    fn phase(mmio: u64, by_vmm: u64) -> PhaseReport {
        let counts = |pairs: &[(&str, u64)]| {
            pairs
                .iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect()
        };
        let phase = Phase {
            name: Line::Pipelined.name().to_owned(),
            path: "data",
            operations: 10,
            bytes: 0,
            doorbells: 1,
            duration_ns: 1,
            cpu_ns: 1,
            kvm_exits: counts(&[("mmio_exits", mmio), ("io_exits", 0), ("exits", 7)]),
            vmm_exits: counts(&[("mmio:bar0:control_doorbell", by_vmm), ("hlt", 3)]),
        };
        PhaseReport { vm: 0, phase }
    }

    #[test]
    fn times_are_of_one_operation_and_ratios_of_pairs() {
        let samples = [
            sample(100, Some(50)),
            sample(300, Some(100)),
            sample(200, None),
        ];
        let line = LineReport::of(&samples.each_ref(), &[]).unwrap();
        assert_eq!(line.guest.samples_ns, [10.0, 30.0, 20.0]);
        assert_eq!(line.native.unwrap().samples_ns, [5.0, 10.0]);
        assert_eq!(line.guest_over_native.unwrap().median, 2.5);
        let alone = [sample(100, None)];
        let line = LineReport::of(&alone.each_ref(), &[]).unwrap();
        assert!(line.native.is_none() && line.guest_over_native.is_none());
    }

    #[test]
    fn exits_are_summed_over_phases_and_both_counts_are_kept() {
        let phases = [phase(20, 20), phase(0, 10)];
        let exits = ExitReport::of(&phases.each_ref());
        assert_eq!((exits.operations, exits.doorbells), (20, 2));
        assert_eq!(exits.kvm["exits"], 14);
        assert!(!exits.kvm.contains_key("io_exits"), "did not count");
        assert_eq!(exits.user_space_per_operation, 1.0);
        assert_eq!(exits.user_space_per_operation_by_vmm, 1.5);
    }
}
