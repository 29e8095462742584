//! The exits of a VM over its life, by reason, for a guest that marks no phases.

use std::collections::BTreeMap;

use causeway_testdev::CountedExits;

use super::{aligned, count};
use crate::report::VmReport;

/// KVM's counters that say why guests leave guest mode. `exits` has them all; `mmio_exits`,
/// `io_exits` and `signal_exits` go to user space.
const KVM_COUNTERS: [&str; 7] = [
    "exits",
    "mmio_exits",
    "io_exits",
    "signal_exits",
    "insn_emulation",
    "halt_exits",
    "irq_exits",
];

/// Returns a table of the exits of `vm` over its life and, if its guest runs a program, over that
/// program's life: those that reached the VMM by reason and device, then KVM's counters.
pub fn table(vm: &VmReport) -> String {
    let mut header = vec![
        format!("exits of VM {}", vm.vm),
        "counted by".to_owned(),
        "VM's life".to_owned(),
    ];
    header.extend(vm.program.iter().map(|_| "program's life".to_owned()));
    let row = |name: String, by: &str, life: u64, program: Option<u64>| {
        let counts = [Some(life), program].into_iter().flatten().map(count);
        [name, by.to_owned()].into_iter().chain(counts).collect()
    };
    let of_program =
        |counts: fn(&CountedExits) -> &BTreeMap<String, u64>| vm.program.as_ref().map(counts);
    let program = of_program(|program| &program.vmm_exits).map(by_device);
    let by_vmm = by_device(&vm.vmm_exits).into_iter().map(|(key, life)| {
        let program = program.as_ref().map(|counts| counts.get(&key).copied());
        row(key, "VMM", life, program.map(Option::unwrap_or_default))
    });
    let program = of_program(|program| &program.kvm_exits);
    let by_kvm = KVM_COUNTERS.iter().filter_map(|name| {
        let life = *vm.kvm_exits.get(*name)?;
        let program = program.map(|counts| counts.get(*name).copied());
        let program = program.map(Option::unwrap_or_default);
        Some(row((*name).to_owned(), "KVM", life, program))
    });
    let rows: Vec<Vec<String>> = by_vmm.chain(by_kvm).collect();
    aligned(header, rows, 2..usize::MAX).trim_fmt()
}

/// Adds up counts by reason and device, such as `io console`, over the device's registers.
fn by_device(counts: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (key, count) in counts {
        let parts: Vec<&str> = key.split(':').take(2).collect();
        *sums.entry(parts.join(" ")).or_default() += count;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::vm;

    fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
        let named = counts.iter().map(|(name, n)| ((*name).to_owned(), *n));
        named.collect()
    }

    /// The row that begins with these words, with single blanks.
    fn line(table: &str, begin: &str) -> String {
        let mut rows = table.lines().map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.join(" ")
        });
        let found = rows.find(|row| row.starts_with(begin));
        found.unwrap_or_else(|| panic!("no {begin} in {table}"))
    }

    #[test]
    fn registers_of_a_device_are_one_row_beside_kvms_counters() {
        let mut vm = vm();
        vm.vmm_exits = counts(&[
            ("io:console:data", 1200),
            ("io:console:status", 34),
            ("signal", 1),
        ]);
        vm.kvm_exits = counts(&[("exits", 2000), ("io_exits", 1234), ("pf_taken", 9)]);
        let table = table(&vm);
        assert_eq!(line(&table, "io console"), "io console VMM 1 234");
        assert_eq!(line(&table, "signal"), "signal VMM 1");
        assert_eq!(line(&table, "io_exits"), "io_exits KVM 1 234");
        assert!(
            !table.contains("pf_taken") && !table.contains("program"),
            "{table}"
        );
    }

    #[test]
    fn a_programs_part_is_beside_the_whole_and_may_be_nothing() {
        let mut vm = vm();
        vm.vmm_exits = counts(&[("io:console:data", 12), ("mmio:registers:magic", 3)]);
        vm.kvm_exits = counts(&[("exits", 20)]);
        vm.program = Some(CountedExits {
            duration_ns: 1,
            kvm_exits: counts(&[("exits", 7)]),
            vmm_exits: counts(&[("io:console:data", 5)]),
            kvm_doorbells: None,
        });
        let table = table(&vm);
        assert_eq!(line(&table, "io console"), "io console VMM 12 5");
        assert_eq!(line(&table, "mmio registers"), "mmio registers VMM 3 0");
        assert_eq!(line(&table, "exits KVM"), "exits KVM 20 7");
        assert!(table.contains("program's life"), "{table}");
    }
}
