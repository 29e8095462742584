//! Exits on the data path of a run, as its report counts them.

use serde::Serialize;

use crate::report::{PhaseReport, Report};

/// Whether the data path of a run had exits to user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DataPath {
    /// Guests marked phases of the data path, and neither KVM nor the VMM counted an exit in them.
    None,
    /// Guests marked phases of the data path, which had exits.
    Some,
    /// No guest marked a phase of the data path, so nobody knows.
    Unmarked,
}

impl PhaseReport {
    /// Returns how many times the phase left the guest for user space: what the VMM counted for all
    /// reasons, or what KVM counted if that is more. `kvm_counts_ports` is
    /// [`Report::kvm_counts_ports`]. If it is false, every instruction that KVM emulated counts,
    /// except the doorbells that the guest reports, which KVM handles itself.
    pub fn user_space_exits(&self, kvm_counts_ports: bool) -> u64 {
        let by_vmm = self.phase.vmm_exits.values().sum::<u64>();
        let kvm = self.by_kvm();
        let accesses = match kvm_counts_ports {
            true => kvm.mmio + kvm.io,
            false => {
                let emulated = self.kvm("insn_emulation");
                kvm.mmio.max(emulated.saturating_sub(self.phase.doorbells))
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

    /// Sets the fields that say how many exits the data path had, from the phases of all VMs.
    pub(crate) fn count_data_path(&mut self) {
        let counted: Vec<u64> = self.data_phases().map(|(_, exits)| exits).collect();
        self.data_path_exits = counted.iter().sum();
        self.data_path = match (counted.is_empty(), self.data_path_exits) {
            (true, _) => DataPath::Unmarked,
            (false, 0) => DataPath::None,
            (false, _) => DataPath::Some,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{phase, report};

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
        rung.phase.doorbells = 5;
        assert_eq!(rung.user_space_exits(false), 0);
        rung.phase.doorbells = 4;
        assert_eq!(rung.user_space_exits(false), 1);
    }

    #[test]
    fn a_run_without_data_phases_is_not_called_free_of_exits() {
        let mut report = report();
        report.count_data_path();
        assert_eq!(report.data_path, DataPath::Unmarked);
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
}
