//! Aperture and doorbells on a real KVM, with guests of a few instructions at CPL 3.
#![allow(unsafe_code)] // Gives guests memory, and contains their code.

mod devices;
#[path = "../../../../mediator/backends/vulkan-import/tests/lavapipe/exporter.rs"]
mod exporter;
mod guest;
mod machine;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use causeway_memory::PageSize;
use causeway_protocol::Access;
use causeway_protocol::registers::doorbells::{FIRST, STRIDE};
use causeway_vmm::aperture::FaultError;
use causeway_vmm::bus::StrayCounts;
use vmm_sys_util::eventfd::EventFd;

use machine::{APERTURE, DOORBELLS, MIB, RESULTS, machine, object, run, set_registers};

#[test]
fn stray_accesses_end_in_a_defined_way_and_the_guest_goes_on() {
    let Some(mut machine) = machine(&[guest::strays()]) else {
        return;
    };
    let (memory, own) = object(2 * 4096, PageSize::Small);
    own.write(0, &[0x21; 4]).unwrap();
    let place = |offset, access| {
        machine
            .aperture
            .place(&memory, offset, 4096, access)
            .unwrap()
    };
    // Small ones come from the top, one below the other: the hole is the page behind the writable
    // one.
    let hole = place(0, Access::None);
    let writable = place(4096, Access::ReadWrite);
    let read_only = place(0, Access::Read);
    assert_eq!(hole, writable + 4096);
    let registers = [hole, read_only, writable].map(|offset| APERTURE + offset);
    set_registers(&machine.vcpus[0], registers, RESULTS, 0);
    let counts = machine.run().unwrap();
    let results: [u64; 6] = std::array::from_fn(|i| machine.result(i as u64));
    let [first, before, after, split, moved, good] = results;
    assert_eq!(first, u64::MAX, "a hole reads all-ones");
    assert_eq!(
        [before, after],
        [0x2121_2121; 2],
        "a refused store changes nothing"
    );
    assert_eq!(
        split, 0xffff_ffff_1122_3344,
        "a load that is half in a hole"
    );
    assert_eq!(moved, u64::MAX, "a string move out of a hole");
    assert_eq!(own.load_u64(4096 + 64, Ordering::Relaxed), Ok(u64::MAX));
    assert_eq!(good, 0x1122_3344_5566_7788);
    let wanted = StrayCounts {
        hole_reads: 3,
        hole_writes: 1,
        refused_writes: 1,
        ..StrayCounts::default()
    };
    assert_eq!(machine.strays.counts(), wanted);
    assert_eq!(counts.resolved, 5);
    // The split load has two halves, and the string move a load and a store.
    assert_eq!(counts.mmio, 7);
}

#[test]
fn what_is_placed_costs_no_exit() {
    let Some(mut machine) = machine(&[guest::worker()]) else {
        return;
    };
    let (memory, _own) = object(4096, PageSize::Small);
    let at = machine
        .aperture
        .place(&memory, 0, 4096, Access::ReadWrite)
        .unwrap();
    set_registers(&machine.vcpus[0], [0, 0, APERTURE + at], RESULTS, 1_000_000);
    // Whether this KVM can or not, it does no harm.
    machine.aperture.prefault(&machine.vcpus[0]);
    let counts = machine.run().unwrap();
    assert_eq!((counts.mmio, counts.resolved), (0, 0));
    assert_eq!(machine.result(0), 0, "every store was found again");
}

#[test]
fn strays_of_one_vcpu_do_not_falsify_the_accesses_of_another() {
    let Some(mut machine) = machine(&[guest::worker(), guest::prober()]) else {
        return;
    };
    let (memory, own) = object(4096, PageSize::Small);
    let at = machine
        .aperture
        .place(&memory, 0, 4096, Access::ReadWrite)
        .unwrap();
    let (stores, probes) = (20_000_000, 100);
    set_registers(&machine.vcpus[0], [0, 0, APERTURE + at], RESULTS, stores);
    // A hole under the same slot.
    let hole = APERTURE + at - 4096;
    set_registers(&machine.vcpus[1], [hole, 0, 0], RESULTS + 64, probes);
    let (aperture, bus) = (&machine.aperture, &machine.bus);
    let counts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = machine
            .vcpus
            .iter_mut()
            .map(|vcpu| scope.spawn(|| run(vcpu, aperture, bus).unwrap()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(machine.result(0), 0, "every store was found again");
    assert_eq!(machine.result(8), u64::MAX);
    assert_eq!(own.load_u64(0, Ordering::Relaxed), Ok(stores & !511));
    assert_eq!(machine.strays.counts().hole_reads, probes, "{counts:?}");
    assert_eq!(machine.strays.total(), probes);
    assert_eq!(u64::from(counts[1].resolved), probes);
    eprintln!("worker beside {probes} strays: {:?}", counts[0]);
}

#[test]
fn what_cannot_be_emulated_ends_with_a_message_that_names_the_instruction() {
    for code in [guest::avx(), guest::jump()] {
        let Some(mut machine) = machine(&[code]) else {
            return;
        };
        let (memory, _own) = object(4096, PageSize::Small);
        // A slot stands, and the rest of its chunk is a hole.
        let at = machine
            .aperture
            .place(&memory, 0, 4096, Access::ReadWrite)
            .unwrap();
        set_registers(&machine.vcpus[0], [APERTURE + at - 4096, 0, 0], RESULTS, 0);
        let error = machine.run().unwrap_err();
        let regs = machine.vcpus[0].get_regs().unwrap();
        assert!(
            error.to_string().contains(&format!("{:#x}", regs.rip)),
            "{error}"
        );
        let known = matches!(
            error,
            FaultError::Emulation { .. } | FaultError::Persists { .. }
        );
        assert!(known, "{error}");
    }
}

#[test]
fn churn_in_one_place_faults_nothing_in_again_elsewhere() {
    let Some(mut machine) = machine(&[guest::touch()]) else {
        return;
    };
    let (memory, _own) = object(64 * MIB, PageSize::Large);
    let at = machine
        .aperture
        .place(&memory, 0, 64 * MIB, Access::ReadWrite)
        .unwrap();
    set_registers(
        &machine.vcpus[0],
        [0, 0, APERTURE + at],
        RESULTS,
        64 * MIB / 4096,
    );
    let pass = |machine: &mut machine::Machine| {
        let begin = Instant::now();
        machine.run().unwrap();
        begin.elapsed()
    };
    let first = pass(&mut machine);
    let undisturbed: Duration = (0..20).map(|_| pass(&mut machine)).min().unwrap();
    let (small, _own) = object(4 * MIB, PageSize::Large);
    let disturbed: Duration = (0..20)
        .map(|_| {
            let at = machine
                .aperture
                .place(&small, 0, 4 * MIB, Access::ReadWrite)
                .unwrap();
            machine.aperture.remove(at).unwrap();
            pass(&mut machine)
        })
        .min()
        .unwrap();
    eprintln!("64 MiB: first {first:?}, undisturbed {undisturbed:?}, beside churn {disturbed:?}");
    // Faulting 16,384 small pages in again would take 20 ms and more, 32 large ones some 100 µs.
    assert!(disturbed < undisturbed * 3 + Duration::from_millis(2));
}

#[test]
fn a_doorbell_is_no_exit_while_it_is_bound_wherever_the_bar_is() {
    let Some(mut machine) = machine(&[guest::ring()]) else {
        return;
    };
    let event = EventFd::new(libc::EFD_NONBLOCK).unwrap();
    let ring = |machine: &mut machine::Machine, address: u64| {
        set_registers(&machine.vcpus[0], [0, 0, address], RESULTS, 0);
        machine.run().unwrap().mmio
    };
    machine.doorbells.bind(5, &event).unwrap();
    let at = FIRST + 5 * STRIDE;
    assert_eq!(
        ring(&mut machine, DOORBELLS + at),
        1,
        "not in KVM without an address"
    );
    assert_eq!(event.read().unwrap(), 1, "but it rings all the same");
    machine.doorbells.relocate(Some(DOORBELLS)).unwrap();
    assert_eq!(ring(&mut machine, DOORBELLS + at), 0);
    assert_eq!(event.read().unwrap(), 1);
    assert_eq!(
        ring(&mut machine, DOORBELLS + at + STRIDE),
        1,
        "nobody listens to this one"
    );
    machine
        .doorbells
        .relocate(Some(DOORBELLS + 16 * MIB))
        .unwrap();
    assert_eq!(ring(&mut machine, DOORBELLS + 16 * MIB + at), 0);
    assert_eq!(event.read().unwrap(), 1);
    machine.doorbells.unbind(5);
    assert_eq!(ring(&mut machine, DOORBELLS + at), 1);
    event.read().unwrap_err();
    assert_eq!(machine.strays.counts().registers, 2);
}
