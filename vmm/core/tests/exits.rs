//! Guests of a dozen instructions, and exactly the exits they take, by KVM's count and by our own.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use causeway_protocol::boot::PORT_CONSOLE;
use causeway_protocol::registers::MAGIC;
use causeway_testdev::{EndedBy, Phase};
use causeway_vmm::outcome::{VmOutcome, VmResult};
use support::{Guest, SCRATCH, config, kvm, run_for, run_guest, run_phases, vm, with_test_device};

/// Where firmware puts BAR 0.
const REGISTERS: u64 = 0xe000_0000;

/// The one phase of a guest that passes.
fn phase(guest: Guest) -> Option<Phase> {
    let kvm = kvm()?;
    let (outcome, mut phases) = run_phases(&kvm, &guest.exit(0));
    assert_eq!(outcome.result, VmResult::Pass);
    assert_eq!(phases.len(), 1);
    phases.pop().map(|phase| without_referee(phase, &outcome))
}

/// The phase without KVM's count of port exits if this KVM counts none: ending took one. (PVM
/// emulates the instruction.)
fn without_referee(mut phase: Phase, outcome: &VmOutcome) -> Phase {
    if outcome.kvm_exits.get("io_exits") == Some(&0) {
        phase.kvm_exits.remove("io_exits");
    }
    phase
}

/// Compares KVM's count of exits by port and by MMIO, as far as this KVM counts them.
fn check_kvm_count(phase: &Phase, io: u64, mmio: u64) {
    for (name, wanted) in [("io_exits", io), ("mmio_exits", mmio)] {
        match phase.kvm_exits.get(name) {
            Some(count) => assert_eq!(*count, wanted, "{name} in {phase:?}"),
            None => eprintln!("skipped: this KVM does not count {name}"),
        }
    }
}

fn vmm_count<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}

#[test]
fn nothing_takes_no_exit() {
    let Some(phase) = phase(Guest::new().begin("nothing").end()) else {
        return;
    };
    assert_eq!(phase.vmm_exits, vmm_count([]));
    check_kvm_count(&phase, 0, 0);
    assert_eq!((phase.name.as_str(), phase.operations), ("nothing", 1));
}

/// The phase that a guest of two virtual CPUs has open when its VM ends. The second one spins until
/// the host stops it.
fn open_phase(guest: impl FnOnce(Guest) -> Guest, seconds: u64) -> Option<Phase> {
    let kvm = kvm()?;
    let guest = guest(Guest::new().on_vcpu(1, |spins| spins).begin("open"));
    let mut config = config(guest.image());
    config.vcpus = 2;
    let device = with_test_device(&mut config);
    let vm = vm(&kvm, &config).expect("a VM can be made");
    let outcomes = run_for(vec![vm], Duration::from_secs(seconds));
    let phase = device.report().phases.pop();
    phase.map(|phase| without_referee(phase, &outcomes[0]))
}

#[test]
fn the_end_of_a_vm_takes_no_exit_of_the_phase_that_it_ends() {
    let Some(ended) = open_phase(|guest| guest.exit(0), 10) else {
        return;
    };
    assert_eq!(ended.ended_by, EndedBy::Exit);
    assert_eq!(ended.vmm_exits, vmm_count([]));
    let printing = |guest: Guest| guest.out8(PORT_CONSOLE, b'x').forever();
    let Some(stopped) = open_phase(printing, 1) else {
        return;
    };
    assert_eq!(stopped.ended_by, EndedBy::Host);
    assert_eq!(stopped.vmm_exits, vmm_count([("io:console:data", 1)]));
    for phase in [ended, stopped] {
        check_kvm_count(&phase, phase.vmm_exits.values().sum(), 0);
        assert_eq!(phase.kvm_exits.get("signal_exits").unwrap_or(&0), &0);
    }
}

#[test]
fn one_port_store_is_one_exit() {
    let guest = Guest::new().begin("port").out8(PORT_CONSOLE, b'x').end();
    let Some(phase) = phase(guest) else { return };
    assert_eq!(phase.vmm_exits, vmm_count([("io:console:data", 1)]));
    check_kvm_count(&phase, 1, 0);
}

#[test]
fn one_register_load_is_one_exit_and_gives_the_register() {
    let guest = Guest::new()
        .begin("register")
        .load32(REGISTERS)
        .end_keeping_eax()
        .expect_eax(MAGIC);
    let Some(phase) = phase(guest) else { return };
    assert_eq!(phase.vmm_exits, vmm_count([("mmio:registers:magic", 1)]));
    check_kvm_count(&phase, 0, 1);
}

#[test]
fn a_stray_load_is_one_exit_counted_apart() {
    let guest = Guest::new().begin("stray").load32(0xd000_0000).end();
    let Some(phase) = phase(guest) else { return };
    assert_eq!(phase.vmm_exits, vmm_count([("mmio:unclaimed:stray", 1)]));
}

#[test]
fn a_million_stores_to_ram_take_none() {
    let guest = Guest::new()
        .store32(SCRATCH, 0)
        .begin("stores")
        .store_loop(SCRATCH, 1_000_000)
        .end();
    let Some(phase) = phase(guest) else { return };
    assert_eq!(phase.vmm_exits, vmm_count([]));
    check_kvm_count(&phase, 0, 0);
    assert!(phase.duration_ns > 100_000, "{} ns", phase.duration_ns);
}

#[test]
fn totals_cover_the_whole_life() {
    let Some(kvm) = kvm() else { return };
    let outcome = run_guest(&kvm, &Guest::new().load32(REGISTERS).exit(0));
    let wanted = vmm_count([("io:testdev:exit", 1), ("mmio:registers:magic", 1)]);
    assert_eq!(outcome.vmm_exits, wanted);
    if let Some(mmio) = outcome.kvm_exits.get("mmio_exits") {
        assert_eq!(*mmio, 1);
    }
    assert_eq!(outcome.strays.unclaimed, 0);
}
