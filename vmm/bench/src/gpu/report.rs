//! The report of `bench gpu`: what `--json` writes, and what the table shows.

use std::collections::BTreeMap;
use std::time::Instant;

use causeway_bench_workloads::singles::timer_cost;
use causeway_bench_workloads::{LINES, Line, PEER_LINES, PeerLine, PeerWork};
use causeway_run::report::{EmulatedExits, PhaseReport};
use causeway_testdev::{EndedBy, Figure, Report, Sample, Singles as SingleRecord};
use causeway_vmm::host::Host;
use serde::Serialize;

use super::alone::Alone;
use crate::exits::counts::add;
use causeway_bench_medians::{Distribution, NotTimed, Quoted, Ratio, Singles};
use causeway_terminal::Origin;

/// Name and version of the report's format. Fields may be added; if the meaning of a field changes,
/// so does the number.
pub const SCHEMA: &str = "causeway.bench-gpu/1";

/// Report of `causeway bench gpu`, as `--json` writes it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BenchReport {
    /// Name and version of this format: always [`SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
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
    /// The second GPU; absent without `--peer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<DeviceReport>,
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Which GPU does what with memory of which; absent without `--peer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<PeerReport>,
    /// Times of one operation in the guest, in turn with the host.
    pub guest: Distribution,
    /// Times of one operation on the host, in turn with the guest; absent if the host cannot run
    /// it.
    pub native: Option<Distribution>,
    /// Median ratio of the guest's time to the host's time for the same operations, of pairs of
    /// samples taken one after the other; absent if the host has no times.
    pub guest_over_native: Option<Ratio>,
    /// Times of single operations in the guest, between others of the guest.
    pub guest_single: Singles,
    /// Times of single operations on the host; absent if the host cannot run them.
    pub native_single: Option<Singles>,
    /// VM exits during all samples of this line.
    pub exits: ExitReport,
    /// Times while the other side did not exist; absent if they were not measured.
    pub alone: Option<AloneReport>,
    /// The less favourable of the ratios alone and in turn, which summaries quote; absent unless
    /// both were measured.
    pub quoted: Option<Quoted>,
}

/// What a line of two GPUs measures, and how fast that is.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerReport {
    /// The place of the `--gpu` that does the work, 0 or 1.
    pub user: usize,
    /// The place of the `--gpu` that has the memory.
    pub owner: usize,
    /// Bytes per nanosecond (GB/s) in the guest: alone if that was measured, else in turn; absent
    /// for dependent loads.
    pub guest_gb_per_s: Option<f64>,
    /// The same on the host; absent if the host has no times, too.
    pub native_gb_per_s: Option<f64>,
}

impl PeerReport {
    /// `times` are those of the guest and of the host that figures come from.
    fn of(
        line: Line,
        bytes: u64,
        (guest, native): (&Distribution, Option<&Distribution>),
    ) -> Option<Self> {
        let PeerLine { user, owner, .. } = line.peers()?;
        let rate = |times: &Distribution| bytes as f64 / times.median_ns;
        let rate = |times: &Distribution| (bytes != 0).then(|| rate(times));
        Some(Self {
            user,
            owner,
            guest_gb_per_s: rate(guest),
            native_gb_per_s: native.and_then(rate),
        })
    }
}

/// Times of one line while the other side's process held no context on the GPU.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AloneReport {
    /// Times of one operation in the guest.
    pub guest: Distribution,
    /// Times of one operation on the host; absent if they were not measured.
    pub native: Option<Distribution>,
    /// Ratio of the median times of guest and host.
    pub guest_over_native: Option<Ratio>,
    /// Times of single operations in the guest.
    pub guest_single: Singles,
    /// Times of single operations on the host; absent if they were not measured.
    pub native_single: Option<Singles>,
    /// VM exits during the samples of the guest.
    pub exits: ExitReport,
}

/// VM exits during the samples of one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Returns a line for each operation and size of which the guest `reported` samples in turn
    /// with the host. `alone` has those that each side took alone.
    pub fn all(reported: &Report, phases: &[PhaseReport], alone: &Alone) -> Vec<Self> {
        let mut lines = Vec::new();
        for line in LINES.iter().chain(PEER_LINES) {
            let mut by_bytes: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
            for sample in reported.samples.iter().filter(|s| s.line == *line) {
                by_bytes.entry(sample.bytes).or_default().push(sample);
            }
            for (bytes, samples) in by_bytes {
                let phases = phases_of(phases, *line, bytes);
                let singles = singles_of(reported, *line, bytes);
                let alone = AloneReport::of(alone, *line, bytes);
                lines.extend(Self::of(&samples, singles, &phases, alone));
            }
        }
        lines
    }

    fn of(
        samples: &[&Sample],
        singles: Option<&SingleRecord>,
        phases: &[&PhaseReport],
        alone: Option<AloneReport>,
    ) -> Option<Self> {
        let first = samples.first()?;
        let guest = samples.iter().map(|s| per_operation(s.guest_ns, s));
        let pairs = samples
            .iter()
            .filter_map(|s| Some((per_operation(s.guest_ns, s), per_operation(s.native_ns?, s))));
        let native = pairs.clone().map(|(_, native)| native).collect();
        let guest_over_native = Ratio::of(pairs);
        let guest = Distribution::of(guest.collect())?;
        let native: Option<Distribution> = Distribution::of(native);
        let side = Side {
            line: first.line,
            operations: first.operations,
        };
        let guest_times = singles.map(|singles| (&singles.guest_ns[..], singles.timer_ns));
        // The host may have failed where the guest did not.
        let repeated = singles.filter(|s| s.guest_ns.is_empty() || !s.native_ns.is_empty());
        let native_times = repeated.map(|singles| (&singles.native_ns[..], native_timer_ns()));
        let ratio_alone = alone.as_ref().and_then(|alone| alone.guest_over_native);
        Some(Self {
            peers: PeerReport::of(
                first.line,
                first.bytes,
                match &alone {
                    Some(alone) => (&alone.guest, alone.native.as_ref()),
                    None => (&guest, native.as_ref()),
                },
            ),
            line: first.line.name(),
            what: first.line.doc().trim(),
            path: phases.first().map_or("control", |phase| phase.phase.path),
            bytes: first.bytes,
            operations: first.operations,
            guest_single: side.singles(&guest, guest_times),
            native_single: native
                .as_ref()
                .map(|native| side.singles(native, native_times)),
            guest,
            native,
            guest_over_native,
            exits: ExitReport::of(phases),
            quoted: Quoted::of(ratio_alone, guest_over_native),
            alone,
        })
    }
}

impl AloneReport {
    fn of(alone: &Alone, line: Line, bytes: u64) -> Option<Self> {
        let (reported, phases) = alone.guest.as_ref()?;
        let samples = reported.samples.iter();
        let mut mine = samples.filter(|sample| (sample.line, sample.bytes) == (line, bytes));
        let operations = mine.clone().next()?.operations;
        let times = mine.by_ref().map(|s| per_operation(s.guest_ns, s));
        let guest = Distribution::of(times.collect())?;
        let singles = singles_of(reported, line, bytes);
        let singles = singles.map(|singles| (&singles.guest_ns[..], singles.timer_ns));
        let side = Side { line, operations };
        let mut native = alone.native.iter();
        let native = native.find(|times| (times.line, times.bytes) == (line, bytes));
        let native = native.and_then(|times| {
            let distribution = Distribution::of(times.samples_ns.clone())?;
            let singles = (&times.singles_ns[..], native_timer_ns());
            let singles = side.singles(&distribution, Some(singles));
            Some((distribution, singles))
        });
        let (native, native_single) = native.unzip();
        Some(Self {
            guest_single: side.singles(&guest, singles),
            native_single,
            guest_over_native: native
                .as_ref()
                .and_then(|native| Ratio::of_medians(&guest.samples_ns, &native.samples_ns)),
            guest,
            native,
            exits: ExitReport::of(&phases_of(phases, line, bytes)),
        })
    }
}

/// What is measured on one side.
#[derive(Clone, Copy)]
struct Side {
    line: Line,
    /// Number of operations in a sample.
    operations: u32,
}

impl Side {
    /// Returns the times of single operations: from `times`, in nanoseconds, with what the timer
    /// adds to each, or from the samples if these are of single operations.
    fn singles(self, samples: &Distribution, times: Option<(&[u64], u64)>) -> Singles {
        if self.operations == 1 {
            return Singles::of(&samples.samples_ns, None);
        }
        match times {
            _ if has_one_end(self.line) => NotTimed::OfMany.into(),
            None => NotTimed::NotReached.into(),
            Some(([], _)) => NotTimed::TooLong.into(),
            Some((times, timer_ns)) => {
                let times: Vec<f64> = times.iter().map(|ns| *ns as f64).collect();
                Singles::of(&times, Some(timer_ns as f64))
            }
        }
    }
}

/// Returns whether many operations of this line have one end.
const fn has_one_end(line: Line) -> bool {
    let is_chain = match line.peers() {
        Some(peers) => matches!(peers.work, PeerWork::Follow),
        None => false,
    };
    is_chain || matches!(line, Line::Pipelined | Line::Recorded | Line::RecordedGraph)
}

/// Returns the times of single operations that a guest has reported for a line at one size.
fn singles_of(reported: &Report, line: Line, bytes: u64) -> Option<&SingleRecord> {
    let mut all = reported.singles.iter();
    all.find(|singles| (singles.line, singles.bytes) == (line, bytes))
}

/// Returns what the host's clock adds to a time, in nanoseconds.
fn native_timer_ns() -> u64 {
    let start = Instant::now();
    timer_cost(|| start.elapsed().as_nanos() as u64)
}

fn per_operation(ns: u64, sample: &Sample) -> f64 {
    ns as f64 / f64::from(sample.operations)
}

/// Returns the phases in which the guest measured a line at one size, without one that the end of
/// the VM cut off.
fn phases_of(phases: &[PhaseReport], line: Line, bytes: u64) -> Vec<&PhaseReport> {
    let phases = phases.iter().filter(|PhaseReport { phase, .. }| {
        let is_whole = phase.ended_by == EndedBy::Mark;
        is_whole && phase.name == line.name() && phase.bytes == bytes * phase.operations
    });
    phases.collect()
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
    use super::super::alone::NativeTimes;
    use super::*;
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
            kvm_doorbells: Some(1),
            ended_by: EndedBy::Mark,
            duration_ns: 1,
            cpu_ns: 1,
            kvm_exits: counts(&[("mmio_exits", mmio), ("io_exits", 0), ("exits", 7)]),
            vmm_exits: counts(&[("mmio:bar0:control_doorbell", by_vmm), ("hlt", 3)]),
        };
        PhaseReport { vm: 0, phase }
    }

    #[test]
    fn a_phase_that_was_cut_off_is_of_no_line() {
        let mut cut = [phase(0, 0)];
        assert_eq!(phases_of(&cut, Line::Pipelined, 0).len(), 1);
        cut[0].phase.ended_by = EndedBy::Host;
        assert!(phases_of(&cut, Line::Pipelined, 0).is_empty());
    }

    #[test]
    fn times_are_of_one_operation_and_ratios_of_pairs() {
        let samples = [
            sample(100, Some(50)),
            sample(300, Some(100)),
            sample(200, None),
        ];
        let line = LineReport::of(&samples.each_ref(), None, &[], None).unwrap();
        assert_eq!(line.guest.samples_ns, [10.0, 30.0, 20.0]);
        assert_eq!(line.native.unwrap().samples_ns, [5.0, 10.0]);
        assert_eq!(line.guest_over_native.unwrap().median, 2.5);
        let alone = [sample(100, None)];
        let line = LineReport::of(&alone.each_ref(), None, &[], None).unwrap();
        assert!(line.native.is_none() && line.guest_over_native.is_none());
    }

    /// What both sides took alone for [`sample`], and exits of the guest.
    fn alone(guest_ns: u64, native_ns: f64) -> Alone {
        let reported = Report {
            samples: vec![sample(guest_ns, None)],
            ..Report::default()
        };
        Alone {
            guest: Some((reported, vec![phase(20, 20)])),
            native: vec![NativeTimes {
                line: Line::Pipelined,
                bytes: 0,
                samples_ns: vec![native_ns],
                singles_ns: Vec::new(),
            }],
        }
    }

    #[test]
    fn the_less_favourable_ratio_is_quoted_wherever_it_was_measured() {
        let reported = Report {
            samples: vec![sample(150, Some(100))],
            ..Report::default()
        };
        for (guest_ns, native_ns, quoted, measured) in
            [(100, 8.0, 1.5, "in turn"), (100, 5.0, 2.0, "alone")]
        {
            let lines = LineReport::all(&reported, &[], &alone(guest_ns, native_ns));
            let [line] = &lines[..] else {
                panic!("{lines:?}");
            };
            let found = line.quoted.unwrap();
            assert_eq!((found.ratio.median, found.measured), (quoted, measured));
            let alone = line.alone.as_ref().unwrap();
            assert_eq!(alone.guest.median_ns, 10.0);
            assert_eq!(alone.guest_over_native.unwrap().median, 10.0 / native_ns);
            assert_eq!(alone.exits.user_space_per_operation, 2.0);
        }
        let lines = LineReport::all(&reported, &[], &Alone::default());
        assert!(lines[0].alone.is_none() && lines[0].quoted.is_none());
    }

    #[test]
    fn a_percentile_is_of_single_operations_on_either_side() {
        let mut times = vec![5000; 100];
        times[3] = 9000;
        times[4] = 8000;
        let of = |line, operations, times: Option<&[u64]>| {
            let samples = Distribution::of(vec![2e6; 100]).unwrap();
            let side = Side { line, operations };
            side.singles(&samples, times.map(|times| (times, 20)))
        };
        let single = of(Line::LaunchAndWait, 50, Some(&times));
        assert_eq!(single.timed().unwrap().p99_ns, 8000.0);
        let reason = |line, times| of(line, 50, times).reason();
        assert_eq!(reason(Line::Pipelined, None), Some(NotTimed::OfMany));
        assert_eq!(reason(Line::EchoHost, None), Some(NotTimed::NotReached));
        assert_eq!(reason(Line::Allocate, Some(&[])), Some(NotTimed::TooLong));
        let short = reason(Line::AllocatePooled, Some(&[199; 100]));
        assert_eq!(short, Some(NotTimed::TooShort));
        let samples = of(Line::Register, 1, None);
        assert_eq!(
            samples.timed().unwrap().p99_ns,
            2e6,
            "samples are of one operation"
        );
    }

    #[test]
    fn lines_of_two_gpus_tell_which_does_what_how_fast() {
        let sample = |line, operations, bytes| Sample {
            line,
            operations,
            bytes,
            ..sample(4000, Some(1000))
        };
        let of = |sample| LineReport::of(&[&sample], None, &[], None).unwrap();
        let copy = of(sample(Line::CopyTo1At0, 1, 8000));
        let peers = copy.peers.unwrap();
        assert_eq!((peers.user, peers.owner), (1, 0));
        assert_eq!(peers.guest_gb_per_s, Some(2.0));
        assert_eq!(peers.native_gb_per_s, Some(8.0));
        let loads = of(sample(Line::FollowWithin1, 4, 0));
        let peers = loads.peers.unwrap();
        assert_eq!((peers.user, peers.owner), (1, 1));
        assert_eq!((peers.guest_gb_per_s, peers.native_gb_per_s), (None, None));
        assert_eq!(loads.guest.median_ns, 1000.0);
        assert_eq!(loads.guest_single.reason(), Some(NotTimed::OfMany));
        assert!(of(sample(Line::Pipelined, 10, 0)).peers.is_none());
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
