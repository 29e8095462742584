//! The report of a run: what `--json` writes, and what the table shows.

use std::collections::BTreeMap;

use causeway_mediator::statistics::{Kind, Statistic};
use causeway_mediator::{SessionReport, rights};
use causeway_publisher::rights::RightCount;
use causeway_software::LaunchCount;
use causeway_testdev::{CountedExits, EndedBy, Figure, Phase};
use causeway_vmm::bus::StrayCounts;
use causeway_vmm::host::Host;
use causeway_vmm::outcome::AtTimeout;
use causeway_vmm::passthrough::DeviceReport;
use causeway_vmm::pause::Pauses;
use serde::{Deserialize, Serialize};

use crate::data_path::DataPath;
use crate::tracepoints::TracepointReport;
use causeway_terminal::Origin;

/// Name and version of the report's format. New fields may be added in the same version; if the
/// meaning of a field changes, the version after the slash grows.
pub const SCHEMA: &str = "causeway.report/1";

/// Report of a whole run, as `--json` writes it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Name and version of this format: always [`SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: &'static str,
    /// Version of Causeway that made the report.
    pub causeway: &'static str,
    /// Time, command line, build and load of the run.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine on which the run took place.
    pub host: Host,
    /// The back end that executed the guests' GPU work.
    pub backend: BackendReport,
    /// Those of the VMs' GPUs other than the first; absent with one GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_backends: Vec<BackendReport>,
    /// Name of the guest program or kernel that ran in every VM.
    pub guest: String,
    /// `pass` if every VM passed, KVM and the VMM counted the same exits, and the data path had no
    /// exits if `--require-zero-exits` was given; else `fail`.
    pub outcome: &'static str,
    /// Why the run passed or failed, as text for people.
    pub reason: String,
    /// Number of exits to user space in all phases of the data path, by KVM's count or the VMM's,
    /// whichever is larger in a phase.
    pub data_path_exits: u64,
    /// Whether the data path had exits to user space.
    pub data_path: DataPath,
    /// Time from the start of the process to the first guest instruction, in microseconds; absent
    /// if no guest ran.
    pub boot_us: Option<u64>,
    /// Peak memory use of this process, which runs all VMs, in bytes, without guest RAM and GPU
    /// memory.
    pub vmm_rss_bytes: u64,
    /// `vmm_rss_bytes` divided by the number of VMs.
    pub vmm_rss_bytes_per_vm: u64,
    /// What each VM did, and how it ended.
    pub vms: Vec<VmReport>,
    /// Phases of the guests' runs: all of the first VM in their order, then those of the next VM.
    pub phases: Vec<PhaseReport>,
    /// Figures, such as ratios, that the guests reported to the test device: those of the first VM,
    /// then those of the next VM.
    pub ratios: Vec<RatioReport>,
    /// Exits of all VMs as KVM's tracepoints count them; absent without `--tracepoints`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracepoints: Option<TracepointReport>,
    /// GPU kernels that the software back end executed for all VMs, sorted by name; empty on other
    /// back ends.
    pub kernels: Vec<KernelReport>,
}

/// What the back end counted for one GPU kernel, over all of its launches.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelReport {
    /// Counts of the kernel.
    #[serde(flatten)]
    pub count: KernelCount,
    /// Executed instructions (`thread_instructions`) per second of `busy_ns`.
    pub per_core_per_s: f64,
}

/// Counts of one GPU kernel, which the back end keeps and worker processes send to their VMM.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelCount {
    /// Name of the kernel in its module.
    pub name: String,
    /// Number of launches.
    pub launches: u64,
    /// Number of executed instructions, counted once for each thread that executes them.
    pub thread_instructions: u64,
    /// Time that the cores spent on the kernel, in nanoseconds, summed over the cores.
    pub busy_ns: u64,
}

impl From<LaunchCount> for KernelCount {
    fn from(count: LaunchCount) -> Self {
        Self {
            name: count.kernel,
            launches: count.launches,
            thread_instructions: count.thread_instructions,
            busy_ns: count.busy_ns,
        }
    }
}

impl From<KernelCount> for KernelReport {
    fn from(count: KernelCount) -> Self {
        Self {
            per_core_per_s: count.thread_instructions as f64 * 1e9 / count.busy_ns.max(1) as f64,
            count,
        }
    }
}

/// The back end of a run, as the guests see it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackendReport {
    /// Name of the back end and its device.
    pub name: String,
    /// Number of multiprocessors of the GPU, or of cores that the software back end uses.
    pub compute_units: u32,
    /// GPU memory that each VM may allocate, in bytes: the limit of `--gpu`, or all memory of the
    /// back end if that is less.
    pub memory_bytes_per_vm: u64,
}

/// What one VM did, and how it ended.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmReport {
    /// Index of the VM in the run, from 0.
    pub vm: u32,
    /// Number of the VM's first GPU: the place of its `--gpu`, from 0, or the number of the host's
    /// GPU with `--gpu cuda:auto`.
    pub gpu: u32,
    /// Number of the host's NUMA node on which the VM is; absent without `--numa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Guest RAM in bytes.
    pub memory_bytes: u64,
    /// How the VM ended, as text for people.
    pub result: String,
    /// What the VM did when the time limit ended it; absent if it ended in another way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_timeout: Option<AtTimeout>,
    /// Whether the VM passed: its guest reported 0 to the test device or, unless `--program` was
    /// given, turned off, restarted or halted its machine. All other endings count as failure.
    pub passed: bool,
    /// Exit status of the program that a Linux guest ran, or 128 plus the number of the signal that
    /// killed it; absent for a bare guest, and if the guest reported no status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program_status: Option<u8>,
    /// Numbers of stray accesses by kind: accesses to the device that hit no register and no
    /// mapping, or were refused.
    pub strays: StrayCounts,
    /// KVM's statistics by their names, over the VM's whole life, summed over its virtual CPUs;
    /// empty if KVM keeps none.
    pub kvm_exits: BTreeMap<String, u64>,
    /// Exits that reached the VMM over the VM's whole life, by reason, device and register, as the
    /// VMM counts them.
    pub vmm_exits: BTreeMap<String, u64>,
    /// Exits during the life of the program that a Linux guest ran, from its start to its end or,
    /// if it did not end, to the VM's; absent if the guest's first process did not mark its begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<CountedExits>,
    /// Number of exits to user space in the VM's phases of the data path.
    pub data_path_exits: u64,
    /// Whether the VM's data path had exits to user space.
    pub data_path: DataPath,
    /// Number of phases that were not counted because the guest had marked as many as it may.
    pub phases_refused: u64,
    /// Pauses of the VM by `causeway control`; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pauses: Option<PauseReport>,
    /// What the mediator counted for the VM's session.
    pub session: SessionCounts,
    /// Where the session ran: `none` for the process of the VM, `process` for a worker process.
    pub isolation: &'static str,
    /// Memory that the VM's worker process used when the session was closed, in bytes, without
    /// guest RAM and GPU memory; absent without a worker process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_rss_bytes: Option<u64>,
    /// Number of times that the guest lost its worker process and continued with another; absent
    /// without a worker process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_restarts: Option<u64>,
    /// PCI devices of the host that were passed through to the VM; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceReport>,
    /// What the VM did on its GPUs other than the first; absent with one GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_gpus: Vec<GpuReport>,
}

/// The pauses of a VM. Each virtual CPU that ran guest code when a pause began has one exit more
/// for it, which `vmm_exits` has as `signal:pause`, also in phases of the data path. Durations of
/// phases contain the pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PauseReport {
    /// Number of pauses.
    pub count: u64,
    /// Their duration in all, in nanoseconds.
    pub duration_ns: u64,
    /// Whether the VM was paused when it ended.
    pub at_end: bool,
}

impl PauseReport {
    /// Returns the report on `pauses`; `None` if there were none.
    pub fn of(pauses: Pauses) -> Option<Self> {
        (pauses.count != 0).then(|| Self {
            count: pauses.count,
            duration_ns: u64::try_from(pauses.duration.as_nanos()).unwrap_or(u64::MAX),
            at_end: pauses.at_end,
        })
    }
}

/// What one VM did on one of its GPUs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuReport {
    /// Number of the GPU: the place of its `--gpu`, from 0.
    pub gpu: u32,
    /// What the mediator counted for the session on this GPU.
    pub session: SessionCounts,
    /// As for the first GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_rss_bytes: Option<u64>,
    /// As for the first GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_restarts: Option<u64>,
}

impl GpuReport {
    /// Returns what a session on GPU number `gpu` reports.
    pub fn of(gpu: u32, session: &SessionReport) -> Self {
        let worker = session.worker.as_ref();
        Self {
            gpu,
            session: session.into(),
            worker_rss_bytes: worker.map(|worker| worker.rss_bytes),
            worker_restarts: worker.map(|worker| worker.restarts),
        }
    }
}

/// What the mediator counted for one session.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionCounts {
    /// Counters and peaks of the session, by name. docs/observing.md explains each.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "totals"))]
    pub statistics: BTreeMap<&'static str, u64>,
    /// Number of control messages by operation.
    pub messages: BTreeMap<&'static str, u64>,
    /// Number of packets by operation. No packet causes an exit.
    pub packets: BTreeMap<&'static str, u64>,
    /// Rights to memory that the session has given by exports, for each GPU that they were for;
    /// absent if it has given none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exported: Vec<RightCount>,
    /// Rights to memory that the session has had by imports, by the GPU that had the memory; absent
    /// if it has had none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub imported: Vec<RightCount>,
    /// Text of the fault that ended the session; absent if no fault ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl From<&SessionReport> for SessionCounts {
    fn from(report: &SessionReport) -> Self {
        let totals = report.statistics.iter();
        let totals = totals.filter(|(statistic, _)| is_total(statistic));
        Self {
            statistics: totals.map(|(s, value)| (s.name, value)).collect(),
            messages: report.messages_by_name().into_iter().collect(),
            packets: report.packets_by_name().into_iter().collect(),
            exported: counts(&report.grants.exported),
            imported: counts(&report.grants.imported),
            fault: report.fault.clone(),
        }
    }
}

/// Returns whether a statistic is worth reporting at the end of a session.
fn is_total(statistic: &Statistic) -> bool {
    // All packets together are the sum of `packets`, which has them by operation.
    matches!(statistic.kind, Kind::Counter | Kind::Peak) && statistic.name != "packets"
}

/// Returns the JSON schema of reports.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    causeway_terminal::schema_of::<Report>(SCHEMA)
}

#[cfg(feature = "schema")]
fn totals(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    causeway_publisher::schema::statistics_schema(is_total)
}

fn counts(counts: &[rights::RightCount]) -> Vec<RightCount> {
    counts.iter().map(RightCount::from).collect()
}

/// What was counted in one phase of a guest's run.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseReport {
    /// Index of the VM in the run, from 0.
    pub vm: u32,
    /// Counters and duration of the phase.
    #[serde(flatten)]
    pub phase: Phase,
}

/// One figure that a guest reported to the test device.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatioReport {
    /// Index of the VM in the run, from 0.
    pub vm: u32,
    /// The figure, with its name and unit.
    #[serde(flatten)]
    pub figure: Figure,
}

/// Numbers of exits to user space for accesses that the VMM emulates, as KVM or the VMM counts
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatedExits {
    /// Exits for loads and stores to memory that is not RAM.
    pub mmio: u64,
    /// Exits for accesses to I/O ports.
    pub io: u64,
}

impl PhaseReport {
    /// Returns how much KVM's statistic `name` grew in this phase; 0 if KVM has no statistic of
    /// this name.
    pub fn kvm(&self, name: &str) -> u64 {
        self.phase.kvm_exits.get(name).copied().unwrap_or(0)
    }

    /// Returns how many exits to user space KVM counted for emulated accesses.
    pub fn by_kvm(&self) -> EmulatedExits {
        EmulatedExits {
            mmio: self.kvm("mmio_exits"),
            io: self.kvm("io_exits"),
        }
    }

    /// Returns how many exits to user space the VMM itself counted for emulated accesses.
    pub fn by_vmm(&self) -> EmulatedExits {
        let sum = |reason: &str| {
            let exits = self.phase.vmm_exits.iter();
            exits
                .filter(|(key, _)| key.split(':').next() == Some(reason))
                .map(|(_, n)| n)
                .sum()
        };
        EmulatedExits {
            mmio: sum("mmio"),
            io: sum("io"),
        }
    }

    /// Returns whether the counts of KVM and the VMM agree (docs/decisions/0005). When a virtual
    /// CPU marks a phase, each other virtual CPU may be in an exit that KVM has counted and the VMM
    /// has not. When the host ends the VM in a phase, every virtual CPU may.
    fn agrees(&self, kvm_counts_ports: bool, vcpus: u32) -> bool {
        let (kvm, vmm) = (self.by_kvm(), self.by_vmm());
        let in_flight_max = match self.phase.ended_by {
            EndedBy::Mark | EndedBy::Exit => u64::from(vcpus.saturating_sub(1)),
            EndedBy::Host => u64::from(vcpus),
        };
        let close = |by_kvm: u64, by_vmm: u64| by_kvm.abs_diff(by_vmm) <= in_flight_max;
        match kvm_counts_ports {
            _ if self.phase.kvm_exits.is_empty() => true,
            true => close(kvm.mmio, vmm.mmio) && close(kvm.io, vmm.io),
            false => {
                let emulated = self.kvm("insn_emulation").saturating_add(in_flight_max);
                close(kvm.mmio, vmm.mmio) && emulated >= vmm.mmio + vmm.io
            }
        }
    }
}

impl Report {
    /// Returns whether the host's KVM counts port accesses in `io_exits`. Some KVMs count them only
    /// in `insn_emulation`. The result is true if `io_exits` of any VM of the run is not zero,
    /// because every bare guest accesses ports.
    pub fn kvm_counts_ports(&self) -> bool {
        self.vms
            .iter()
            .any(|vm| vm.kvm_exits.get("io_exits").is_some_and(|n| *n != 0))
    }

    /// Returns whether KVM and the VMM counted different numbers of exits in any phase, or KVM's
    /// tracepoints others than both.
    pub fn witnesses_disagree(&self) -> bool {
        let traced = self.tracepoints.as_ref();
        let traced = traced.and_then(TracepointReport::disagreement);
        traced.is_some() || self.disagreements().next().is_some()
    }

    /// Returns the phases in which KVM and the VMM counted different numbers of exits. A difference
    /// of one for each virtual CPU but the first is allowed, because these may be in the middle of
    /// an exit when a phase begins or ends. The first may be, too, if the host ends the VM.
    pub fn disagreements(&self) -> impl Iterator<Item = &PhaseReport> {
        let ports = self.kvm_counts_ports();
        let vcpus = |index| {
            let vm = self.vms.iter().find(|vm| vm.vm == index);
            vm.map_or(1, |vm| vm.vcpus)
        };
        self.phases
            .iter()
            .filter(move |p| !p.agrees(ports, vcpus(p.vm)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report of a run without VMs and phases.
    pub(crate) fn report() -> Report {
        Report {
            schema: SCHEMA,
            causeway: "0",
            origin: Origin::now(),
            tracepoints: None,
            host: Host::probe(),
            backend: BackendReport {
                name: "software".to_owned(),
                compute_units: 2,
                memory_bytes_per_vm: 1 << 30,
            },
            further_backends: Vec::new(),
            guest: "test".to_owned(),
            outcome: "fail",
            reason: String::new(),
            data_path_exits: 0,
            data_path: DataPath::Unmarked,
            boot_us: None,
            vmm_rss_bytes: 0,
            vmm_rss_bytes_per_vm: 0,
            vms: Vec::new(),
            phases: Vec::new(),
            ratios: Vec::new(),
            kernels: Vec::new(),
        }
    }

    /// A VM of which nothing was counted.
    pub(crate) fn vm() -> VmReport {
        VmReport {
            vm: 0,
            gpu: 0,
            numa_node: None,
            vcpus: 1,
            memory_bytes: 64 << 20,
            result: "passed".to_owned(),
            at_timeout: None,
            passed: true,
            program_status: None,
            strays: StrayCounts::default(),
            kvm_exits: BTreeMap::new(),
            vmm_exits: BTreeMap::new(),
            program: None,
            data_path_exits: 0,
            data_path: DataPath::Unmarked,
            phases_refused: 0,
            pauses: None,
            session: SessionCounts::from(&SessionReport::of(1, "vm0")),
            isolation: "none",
            worker_rss_bytes: None,
            worker_restarts: None,
            devices: Vec::new(),
            further_gpus: Vec::new(),
        }
    }

    /// A phase of the data path with KVM's `mmio_exits`, `io_exits` and `insn_emulation`, and the
    /// VMM's counts of accesses to memory and to ports.
    pub(crate) fn phase(kvm: [u64; 3], vmm: [u64; 2]) -> PhaseReport {
        let named = |names: &[&str], values: &[u64]| {
            names
                .iter()
                .map(|n| (*n).to_owned())
                .zip(values.iter().copied())
                .collect()
        };
        PhaseReport {
            vm: 0,
            phase: Phase {
                name: "test".into(),
                path: "data",
                operations: 0,
                bytes: 0,
                doorbells: 0,
                kvm_doorbells: Some(0),
                ended_by: EndedBy::Mark,
                duration_ns: 0,
                cpu_ns: 0,
                kvm_exits: named(&["mmio_exits", "io_exits", "insn_emulation"], &kvm),
                vmm_exits: named(&["mmio:registers:magic", "io:console:data"], &vmm),
            },
        }
    }

    #[test]
    fn a_report_has_every_counter_and_peak_of_a_session() {
        let counts = SessionCounts::from(&SessionReport::of(1, "vm0"));
        let counts = serde_json::to_value(counts).unwrap();
        for statistic in &causeway_mediator::statistics::STATISTICS {
            let is_total = matches!(statistic.kind, Kind::Counter | Kind::Peak);
            assert_eq!(!counts[statistic.name].is_null(), is_total, "{statistic:?}");
        }
        assert!(counts["packets"].is_object(), "by operation");
    }

    #[test]
    fn counters_that_differ_are_found_on_either_kind_of_kvm() {
        assert!(phase([2, 3, 0], [2, 3]).agrees(true, 1));
        assert!(!phase([2, 3, 0], [2, 2]).agrees(true, 1));
        assert!(phase([2, 0, 5], [2, 3]).agrees(false, 1));
        assert!(!phase([2, 0, 4], [2, 3]).agrees(false, 1));
        assert!(!phase([1, 0, 9], [2, 3]).agrees(false, 1));
    }

    #[test]
    fn each_other_virtual_cpu_may_be_in_the_middle_of_one_exit() {
        for (kvm, vmm, vcpus, agrees) in [
            ([3, 3, 0], [2, 3], 2, true),
            ([2, 3, 0], [3, 4], 2, true),
            ([4, 3, 0], [2, 3], 2, false),
            ([2, 5, 0], [2, 3], 2, false),
            ([5, 3, 0], [2, 3], 4, true),
        ] {
            assert_eq!(
                phase(kvm, vmm).agrees(true, vcpus),
                agrees,
                "{kvm:?} {vmm:?}"
            );
        }
        let mut stopped = phase([3, 3, 0], [2, 3]);
        assert!(!stopped.agrees(true, 1));
        stopped.phase.ended_by = EndedBy::Host;
        assert!(stopped.agrees(true, 1), "the host may stop it in an exit");
        assert!(phase([2, 0, 4], [2, 3]).agrees(false, 2));
        assert!(!phase([2, 0, 3], [2, 3]).agrees(false, 2));
    }
}
