//! Counts of KVM and the VMM in the phases of a cell.

use std::collections::BTreeMap;

use serde::Serialize;

use causeway_run::report::{EmulatedExits, PhaseReport};

/// How the host's KVM counts accesses that the VMM handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvmCounts {
    /// KVM keeps no statistics.
    Nothing,
    /// KVM counts accesses to memory (`mmio_exits`) and to ports (`io_exits`) separately.
    Ports,
    /// KVM counts accesses to memory (`mmio_exits`), and counts all accesses and doorbells together
    /// as emulated instructions (`insn_emulation`). A software KVM does so.
    Emulations,
}

/// VM exits during all samples of a cell.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExitReport {
    /// Number of operations during which exits were counted.
    pub operations: u64,
    /// KVM's statistics by name, summed over the samples, without those that are 0.
    pub kvm: BTreeMap<String, u64>,
    /// Exits that reached the VMM, by reason, device and register, as the VMM counts them.
    pub vmm: BTreeMap<String, u64>,
    /// Exits to user space per operation, as the VMM counts them.
    pub user_space_per_operation: f64,
    /// Exits to user space per operation for loads and stores.
    pub mmio_per_operation: f64,
    /// Exits to user space per operation for port accesses.
    pub io_per_operation: f64,
    /// Exits to user space per operation, as KVM counts them, without doorbells; absent if KVM
    /// keeps no statistics. The run fails if KVM and the VMM differ in a phase.
    pub user_space_per_operation_by_kvm: Option<f64>,
    /// Doorbells per operation: exits that the host's Linux kernel handles without the VMM.
    pub doorbells_per_operation: f64,
    /// Exits per operation because of interrupts of the host; absent if KVM keeps no statistics.
    pub interrupts_per_operation: Option<f64>,
    /// Page faults per operation on guest memory that was touched for the first time; absent if KVM
    /// keeps no statistics.
    pub faults_per_operation: Option<f64>,
}

impl ExitReport {
    /// Returns the sums of `phases`, or `None` if they have no operations. `counts` says how KVM
    /// counts exits on this host.
    pub fn of(phases: &[&PhaseReport], counts: KvmCounts) -> Option<Self> {
        let mut exits = Self::default();
        let (mut mmio, mut io, mut doorbells, mut by_kvm) = (0, 0, 0, 0);
        for phase in phases {
            let vmm = phase.by_vmm();
            mmio += vmm.mmio;
            io += vmm.io;
            by_kvm += user_space(phase, counts);
            doorbells += phase.phase.doorbells;
            exits.operations += phase.phase.operations;
            add(&mut exits.kvm, &phase.phase.kvm_exits);
            add(&mut exits.vmm, &phase.phase.vmm_exits);
        }
        let operations = (exits.operations != 0).then_some(exits.operations as f64)?;
        let each = |count: u64| count as f64 / operations;
        let counted = |count: u64| (counts != KvmCounts::Nothing).then(|| each(count));
        let kvm = |name: &str| exits.kvm.get(name).copied().unwrap_or(0);
        // Each trapped access to a device's memory also counts as a fault.
        let first_touches = kvm("pf_taken").saturating_sub(kvm("pf_emulate"));
        Some(Self {
            user_space_per_operation: each(mmio + io),
            mmio_per_operation: each(mmio),
            io_per_operation: each(io),
            user_space_per_operation_by_kvm: counted(by_kvm),
            doorbells_per_operation: each(doorbells),
            interrupts_per_operation: counted(kvm("irq_exits")),
            faults_per_operation: counted(first_touches),
            ..exits
        })
    }
}

/// Returns the number of exits to user space in a phase, as KVM counts them.
fn user_space(phase: &PhaseReport, counts: KvmCounts) -> u64 {
    let EmulatedExits { mmio, io } = phase.by_kvm();
    match counts {
        KvmCounts::Nothing => 0,
        KvmCounts::Ports => mmio + io,
        KvmCounts::Emulations => emulated(phase),
    }
}

/// Returns the number of instructions that a software KVM emulated for the VMM.
fn emulated(phase: &PhaseReport) -> u64 {
    let all = phase.kvm("insn_emulation");
    all.saturating_sub(phase.phase.doorbells)
}

/// Returns a message with the counts of KVM and the VMM in a phase if they differ, else `None`.
pub fn disagreement(phase: &PhaseReport, counts: KvmCounts) -> Option<String> {
    let (kvm, vmm) = (phase.by_kvm(), phase.by_vmm());
    let by_vmm = format!("the VMM {} to memory and {} to ports", vmm.mmio, vmm.io);
    match counts {
        KvmCounts::Nothing => None,
        _ if phase.phase.kvm_exits.is_empty() => {
            Some(String::from("KVM's statistics could not be read"))
        }
        KvmCounts::Ports => (kvm != vmm).then(|| {
            let EmulatedExits { mmio, io } = kvm;
            format!("KVM counted {mmio} accesses to memory and {io} to ports, {by_vmm}")
        }),
        KvmCounts::Emulations => {
            let emulated = emulated(phase);
            let differs = kvm.mmio != vmm.mmio || emulated != vmm.mmio + vmm.io;
            differs.then(|| {
                let mmio = kvm.mmio;
                format!(
                    "KVM counted {mmio} accesses to memory and {emulated} emulations without \
                     doorbells, {by_vmm}"
                )
            })
        }
    }
}

/// Adds each of `counts` to the sum of the same name. Counts of 0 are left out, so they create no
/// sums.
pub fn add(sum: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts.iter().filter(|(_, count)| **count != 0) {
        *sum.entry(name.clone()).or_default() += count;
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use causeway_testdev::{EndedBy, Phase};

    /// A phase of so many operations with accesses to memory and ports, by the VMM and by KVM,
    /// which also emulated.
    pub fn phase(name: &str, operations: u64, vmm: [u64; 2], kvm: [u64; 3]) -> PhaseReport {
        let counts = |names: &[&str], counts: &[u64]| {
            let named = names.iter().zip(counts);
            named.map(|(name, n)| ((*name).to_owned(), *n)).collect()
        };
        PhaseReport {
            vm: 0,
            phase: Phase {
                name: name.to_owned(),
                path: "data",
                operations,
                bytes: 0,
                doorbells: 0,
                kvm_doorbells: Some(0),
                ended_by: EndedBy::Mark,
                duration_ns: 1,
                cpu_ns: 7 * operations,
                kvm_exits: counts(&["mmio_exits", "io_exits", "insn_emulation"], &kvm),
                vmm_exits: counts(&["mmio:trap:kick", "io:forward:batch"], &vmm),
            },
        }
    }

    fn agree(vmm: [u64; 2], kvm: [u64; 3], counts: KvmCounts) -> bool {
        disagreement(&phase("load", 1, vmm, kvm), counts).is_none()
    }

    #[test]
    fn counters_that_differ_are_found_on_either_kind_of_kvm() {
        let by_software = KvmCounts::Emulations;
        assert!(agree([5, 1], [5, 0, 6], by_software));
        assert!(!agree([5, 1], [5, 0, 5], by_software));
        assert!(!agree([5, 1], [5, 0, 7], by_software));
        assert!(!agree([5, 1], [6, 0, 6], by_software), "memory apart");
        let by_hardware = KvmCounts::Ports;
        assert!(agree([5, 1], [5, 1, 0], by_hardware));
        assert!(!agree([5, 1], [5, 0, 6], by_hardware));
        assert!(!agree([5, 1], [6, 0, 0], by_hardware), "the same sum");
        assert!(agree([5, 1], [0, 0, 0], KvmCounts::Nothing));
    }

    #[test]
    fn a_phase_that_kvm_was_not_asked_about_is_no_agreement() {
        let mut unread = phase("load", 1, [0, 0], [0, 0, 0]);
        unread.phase.kvm_exits.clear();
        let said = disagreement(&unread, KvmCounts::Ports).unwrap();
        assert!(said.contains("could not be read"), "{said}");
    }

    #[test]
    fn doorbells_are_no_returns_to_user_space() {
        let mut rung = phase("allocate", 2, [4, 0], [4, 0, 10]);
        rung.phase.doorbells = 6;
        assert_eq!(disagreement(&rung, KvmCounts::Emulations), None);
        let exits = ExitReport::of(&[&rung], KvmCounts::Emulations).unwrap();
        assert_eq!(exits.user_space_per_operation, 2.0);
        assert_eq!(exits.user_space_per_operation_by_kvm, Some(2.0));
        assert_eq!(exits.doorbells_per_operation, 3.0);
    }

    #[test]
    fn what_was_not_counted_is_no_zero() {
        assert!(ExitReport::of(&[], KvmCounts::Ports).is_none());
        let empty = phase("load", 0, [0, 0], [0, 0, 0]);
        assert!(ExitReport::of(&[&empty], KvmCounts::Ports).is_none());
        let alone = phase("load", 4, [8, 4], [0, 0, 0]);
        let exits = ExitReport::of(&[&alone], KvmCounts::Nothing).unwrap();
        assert_eq!(
            (exits.mmio_per_operation, exits.io_per_operation),
            (2.0, 1.0)
        );
        assert_eq!(exits.user_space_per_operation_by_kvm, None);
        assert_eq!(exits.interrupts_per_operation, None);
        assert_eq!(exits.faults_per_operation, None);
    }
}
