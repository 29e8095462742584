use causeway_bench_workloads::host_interface::sample::Sample;
use causeway_bench_workloads::measurement_plan::Effort;
use causeway_bench_workloads::{MechanismKind, WORKLOADS};

use super::Machine;
use causeway_bench_workloads::host_interface::singles::Singles;
use causeway_bench_workloads::singles::Single;

fn sample(workload: usize, mechanism: MechanismKind) -> Sample {
    let workload = WORKLOADS[workload];
    let size = (workload.description().sizes)(Effort::Quick)[0];
    Sample {
        cell: workload
            .cell(mechanism, Effort::Quick, size)
            .expect("a planned cell"),
        repetition: 3,
        ns: 1234,
    }
}

#[test]
fn every_workload_is_done_natively_and_verified() {
    let machine = Machine::new();
    for workload in 0..WORKLOADS.len() {
        let sample = sample(workload, MechanismKind::Native);
        machine.write_words(0x1000, &sample.words());
        machine.sample(0x1000);
        let taken = machine.mechanisms.taken();
        let taken = taken.last().expect("a sample");
        assert_eq!(taken.sample.cell, sample.cell);
        assert!(taken.sample.ns != 0 && taken.cpu_ns.is_some());
    }
}

#[test]
fn samples_of_guests_are_kept_as_they_are() {
    let machine = Machine::new();
    let sample = sample(0, MechanismKind::Trap);
    machine.write_words(0x1000, &sample.words());
    machine.sample(0x1000);
    let (count, last) = machine.mechanisms.progress();
    assert_eq!((count, last.map(|taken| taken.sample)), (1, Some(sample)));
}

#[test]
fn samples_that_no_plan_has_are_not_taken() {
    let machine = Machine::new();
    let good = sample(2, MechanismKind::Native).words();
    // Workload, mechanism, size, operations.
    for (word, value) in [
        (0, 99),
        (1, 99),
        (2, 1 << 40),
        (2, 0),
        (3, 0),
        (3, u64::MAX),
    ] {
        let mut words = good;
        words[word] = value;
        machine.write_words(0x1000, &words);
        machine.sample(0x1000);
    }
    // Of a device that is not there: a load, and a launch that no device has.
    for workload in [1, 4] {
        let words = sample(workload, MechanismKind::NativeBar).words();
        machine.write_words(0x1000, &words);
        machine.sample(0x1000);
    }
    machine.sample(u32::MAX);
    assert!(machine.mechanisms.taken().is_empty());
}

#[test]
fn single_operations_are_timed_natively_or_kept_as_they_were_sent() {
    let machine = Machine::new();
    let singles = |singles: &Singles| {
        machine.write_words(0x1000, &singles.words());
        machine.singles(0x1000);
    };
    let workload = WORKLOADS.into_iter().find(|w| w.name() == "allocate");
    let workload = workload.expect("the workload").description();
    assert_eq!(workload.single, Single::ByItself);
    let number = WORKLOADS.iter().position(|w| w.name() == "allocate");
    let number = number.expect("the workload");
    let native = sample(number, MechanismKind::Native).cell;
    singles(&Singles::ask(native));
    machine.write_words(0x2000, &[11, 12, 13]);
    let sent = Singles {
        count: 3,
        timer_ns: 5,
        address: 0x2000,
        ..Singles::ask(sample(number, MechanismKind::Trap).cell)
    };
    singles(&sent);
    // Each cell once, and none that has no single operations or is not in RAM.
    singles(&sent);
    singles(&Singles::ask(sample(0, MechanismKind::Native).cell));
    let forward = sample(number, MechanismKind::Forward).cell;
    singles(&Singles {
        cell: forward,
        address: u64::MAX,
        ..sent
    });
    let taken = machine.mechanisms.singles();
    let [natively, trapped] = &taken[..] else {
        panic!("two cells: {taken:?}");
    };
    assert_eq!(natively.cell, native);
    assert!(natively.times_ns.iter().all(|ns| *ns != 0), "{natively:?}");
    assert_eq!(
        (trapped.timer_ns, &trapped.times_ns[..]),
        (5, &[11, 12, 13][..])
    );
}
