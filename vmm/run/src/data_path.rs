//! Exits on the data path of a run, as its report counts them.

use causeway_testdev::PHASES_MAX;
use causeway_vmm::counters::PAUSED;
use serde::Serialize;

use crate::report::{PhaseReport, Report, VmReport};

/// Whether the data path of a VM, or of all VMs of a run, had exits to user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DataPath {
    /// Every guest marked phases of the data path, and neither KVM nor the VMM counted an exit in
    /// them.
    None,
    /// Guests marked phases of the data path, which had exits.
    Some,
    /// No guest marked a phase of the data path, so nobody knows.
    Unmarked,
    /// No exit was counted, but not everywhere: one of the guests marked no phase of the data path,
    /// or a phase was refused because its guest had marked too many.
    Incomplete,
}

impl DataPath {
    /// Returns the verdict on a VM whose data phases, `phases` in number, had `exits`, and of which
    /// `refused` phases were refused.
    fn of_vm(phases: usize, exits: u64, refused: u64) -> Self {
        match (phases, exits, refused) {
            (_, 1.., _) => Self::Some,
            (_, 0, 1..) => Self::Incomplete,
            (0, 0, 0) => Self::Unmarked,
            (1.., 0, 0) => Self::None,
        }
    }

    /// Returns the verdict on a run whose VMs have these verdicts.
    fn of_run(vms: &[Self]) -> Self {
        match vms {
            [] => Self::Unmarked,
            all if all.contains(&Self::Some) => Self::Some,
            [first, others @ ..] if others.iter().all(|other| other == first) => *first,
            _ => Self::Incomplete,
        }
    }
}

impl PhaseReport {
    /// Returns how many times the phase left the guest for user space: what the VMM counted for all
    /// reasons, or what KVM counted if that is more. `kvm_counts_ports` is
    /// [`Report::kvm_counts_ports`]. If it is false, every instruction that KVM emulated counts,
    /// except the stores to doorbells that KVM took itself, by the host's count: what the guest
    /// says of its doorbells hides nothing.
    pub fn user_space_exits(&self, kvm_counts_ports: bool) -> u64 {
        let by_vmm = self.phase.vmm_exits.values().sum::<u64>();
        let kvm = self.by_kvm();
        let accesses = match kvm_counts_ports {
            true => kvm.mmio + kvm.io,
            false => {
                let emulated = self.kvm("insn_emulation");
                let doorbells = self.phase.kvm_doorbells.unwrap_or(0);
                kvm.mmio.max(emulated.saturating_sub(doorbells))
            }
        };
        by_vmm.max(accesses + self.kvm("signal_exits"))
    }
}

impl Report {
    /// Returns the phases of the data path, with the exits of each to user space.
    pub fn data_phases(&self) -> impl Iterator<Item = (&PhaseReport, u64)> {
        let ports = self.kvm_counts_ports();
        let phases = self.phases.iter().filter(|p| p.phase.path == "data");
        phases.map(move |phase| (phase, phase.user_space_exits(ports)))
    }

    /// Returns how many exits of the data path are by pauses of VMs, by the VMM's count.
    pub fn data_path_pauses(&self) -> u64 {
        let counts = self.data_phases().map(|(phase, _)| &phase.phase.vmm_exits);
        let paused = PAUSED.to_string();
        counts.filter_map(|counts| counts.get(&paused)).sum()
    }

    /// Sets the fields that say how many exits the data path had, from the phases of all VMs: those
    /// of each VM, and those of the run.
    pub(crate) fn count_data_path(&mut self) {
        let counted = self.data_phases().map(|(phase, exits)| (phase.vm, exits));
        let counted: Vec<(u32, u64)> = counted.collect();
        for vm in &mut self.vms {
            let of_vm = counted.iter().filter(|(index, _)| *index == vm.vm);
            vm.data_path_exits = of_vm.clone().map(|(_, exits)| exits).sum();
            let refused = vm.phases_refused;
            vm.data_path = DataPath::of_vm(of_vm.count(), vm.data_path_exits, refused);
        }
        self.data_path_exits = self.vms.iter().map(|vm| vm.data_path_exits).sum();
        let vms: Vec<_> = self.vms.iter().map(|vm| vm.data_path).collect();
        self.data_path = DataPath::of_run(&vms);
    }

    /// Returns what the count of the data path lacks, as a clause such as "1 of 2 VMs marked no
    /// data phase"; `None` if it lacks nothing, or if no VM marked anything.
    pub fn uncounted(&self) -> Option<String> {
        let is_unmarked = |vm: &&VmReport| vm.data_path == DataPath::Unmarked;
        let (vms, unmarked) = (self.vms.len(), self.vms.iter().filter(is_unmarked).count());
        let unmarked = (unmarked != 0 && unmarked != vms)
            .then(|| format!("{unmarked} of {vms} VMs marked no data phase"));
        let refusing = self.vms.iter().filter(|vm| vm.phases_refused != 0);
        let refused = refusing.map(|vm| {
            let VmReport {
                vm,
                phases_refused: refused,
                ..
            } = vm;
            format!("VM {vm} marked {refused} phases more than the {PHASES_MAX} that are counted")
        });
        let all: Vec<_> = unmarked.into_iter().chain(refused).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{phase, report, vm};

    #[test]
    fn either_counter_and_every_reason_count() {
        let exits = |kvm, vmm, ports| phase(kvm, vmm).user_space_exits(ports);
        assert_eq!(exits([0, 0, 9], [0, 0], true), 0, "emulated by KVM alone");
        assert_eq!(exits([2, 3, 0], [0, 0], true), 5, "by KVM");
        assert_eq!(exits([0, 0, 0], [1, 1], true), 2, "by the VMM");
        assert_eq!(exits([1, 0, 4], [1, 2], false), 4, "a KVM by software");
        let mut signalled = phase([0, 0, 0], [0, 0]);
        let vmm = &mut signalled.phase.vmm_exits;
        vmm.insert("signal".to_owned(), 1);
        assert_eq!(signalled.user_space_exits(true), 1);
        let kvm = &mut signalled.phase.kvm_exits;
        kvm.insert("signal_exits".to_owned(), 3);
        assert_eq!(signalled.user_space_exits(true), 3);
    }

    #[test]
    fn doorbells_are_emulated_by_a_kvm_by_software_and_stay_in_the_kernel() {
        let mut rung = phase([0, 0, 5], [0, 0]);
        rung.phase.kvm_doorbells = Some(5);
        assert_eq!(rung.user_space_exits(false), 0);
        rung.phase.kvm_doorbells = Some(4);
        assert_eq!(rung.user_space_exits(false), 1);
    }

    #[test]
    fn doorbells_that_only_the_guest_counted_hide_no_exit() {
        let mut claimed = phase([0, 0, 5], [0, 0]);
        claimed.phase.doorbells = 5;
        for (by_host, exits) in [(None, 5), (Some(0), 5), (Some(2), 3)] {
            claimed.phase.kvm_doorbells = by_host;
            assert_eq!(claimed.user_space_exits(false), exits, "{by_host:?}");
        }
    }

    #[test]
    fn a_run_without_data_phases_is_not_called_free_of_exits() {
        let mut report = report();
        report.count_data_path();
        assert_eq!(report.data_path, DataPath::Unmarked);
        report.vms.push(vm());
        let mut setup = phase([7, 7, 7], [7, 7]);
        setup.phase.path = "setup";
        report.phases.push(setup);
        report.count_data_path();
        assert_eq!(report.data_path, DataPath::Unmarked);
        report.phases.push(phase([0, 0, 0], [0, 0]));
        report.count_data_path();
        assert_eq!(
            (report.data_path, report.data_path_exits),
            (DataPath::None, 0)
        );
        report.phases.push(phase([0, 0, 0], [1, 0]));
        report.count_data_path();
        assert_eq!(
            (report.data_path, report.data_path_exits),
            (DataPath::Some, 1)
        );
        let named = serde_json::to_value(report.data_path).unwrap();
        assert_eq!(named, "some");
    }

    /// A report of two VMs, of which the first has a data phase without exits.
    fn one_of_two() -> Report {
        let mut report = report();
        report
            .vms
            .extend([0, 1].map(|index| VmReport { vm: index, ..vm() }));
        report.phases.push(phase([0, 0, 0], [0, 0]));
        report
    }

    #[test]
    fn one_vm_does_not_vouch_for_another() {
        let mut report = one_of_two();
        report.count_data_path();
        assert_eq!(report.data_path, DataPath::Incomplete);
        assert_eq!(report.vms[0].data_path, DataPath::None);
        assert_eq!(report.vms[1].data_path, DataPath::Unmarked);
        let lacks = "1 of 2 VMs marked no data phase";
        assert_eq!(report.uncounted().as_deref(), Some(lacks));
        let of_second = |exits| PhaseReport {
            vm: 1,
            ..phase([0, 0, 0], [exits, 0])
        };
        report.phases.push(of_second(0));
        report.count_data_path();
        assert_eq!(
            (report.data_path, report.uncounted()),
            (DataPath::None, None)
        );
        report.phases.push(of_second(2));
        report.count_data_path();
        assert_eq!(report.data_path, DataPath::Some);
        assert_eq!(report.vms[0].data_path, DataPath::None);
        let second = &report.vms[1];
        assert_eq!(
            (second.data_path, second.data_path_exits),
            (DataPath::Some, 2)
        );
    }

    #[test]
    fn phases_that_were_refused_leave_the_count_incomplete() {
        let mut report = one_of_two();
        report.vms.truncate(1);
        report.vms[0].phases_refused = 5;
        report.count_data_path();
        assert_eq!(report.data_path, DataPath::Incomplete);
        let lacks = "VM 0 marked 5 phases more than the 4096 that are counted";
        assert_eq!(report.uncounted().as_deref(), Some(lacks));
        report.phases.clear();
        report.count_data_path();
        assert_eq!(
            report.data_path,
            DataPath::Incomplete,
            "one may be of the data path"
        );
    }
}
