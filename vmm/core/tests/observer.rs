//! VMs that somebody watches while they run.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_protocol::boot::PORT_CONSOLE;
use causeway_vmm::observer::{VmObservation, VmObserver};
use causeway_vmm::outcome::VmResult;
use support::{Guest, SCRATCH, config, kvm, run, run_for, vm, with_test_device};

const PRINTED: &str = "io:console:data";

/// Looks until `reached`, or the VM is no more.
fn watch(observer: &VmObserver, reached: impl Fn(&VmObservation) -> bool) -> Option<VmObservation> {
    loop {
        let seen = observer.observe()?;
        if seen.ended || reached(&seen) {
            return Some(seen);
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_running_vm_is_seen_and_nothing_of_it_once_it_is_gone() {
    let Some(kvm) = kvm() else { return };
    let print = |guest: Guest| guest.out8(PORT_CONSOLE, b'x');
    let guest = (0..5).fold(Guest::new(), |guest, _| print(guest)).forever();
    let vm = vm(&kvm, &config(guest.image())).unwrap();
    let observer = vm.observers().next().unwrap();
    let before = observer.observe().unwrap();
    assert_eq!((before.ran_for, before.ended), (None, false));
    assert!(before.vmm_exits.is_empty());
    assert_eq!(observer.running().unwrap().0, "test");
    let watcher = std::thread::spawn(move || {
        let seen = watch(&observer, |seen| seen.vmm_exits.get(PRINTED) == Some(&5));
        (observer, seen.unwrap())
    });
    let outcomes = run_for(vec![vm], Duration::from_secs(1));
    assert_eq!(outcomes[0].result, VmResult::Timeout);
    let (observer, seen) = watcher.join().unwrap();
    assert_eq!(seen.vmm_exits[PRINTED], 5);
    assert!(!seen.ended && seen.ran_for.is_some());
    assert_eq!((seen.vcpus, seen.memory_bytes), (1, 16 << 20));
    assert_eq!(
        (seen.aperture.bytes, seen.aperture.used_bytes),
        (1 << 30, 0)
    );
    assert!(!seen.session.unwrap().lost);
    match seen.kvm {
        Some(kvm) => assert!(kvm.contains_key("exits"), "{kvm:?}"),
        None => eprintln!("skipped: this KVM keeps no statistics"),
    }
    assert_eq!(observer.observe(), None, "it keeps the VM alive");
    assert!(observer.running().is_none());
}

#[test]
fn a_guest_that_is_watched_all_the_time_does_not_exit_for_it() {
    let Some(kvm) = kvm() else { return };
    let stores = Guest::new().begin("stores");
    let guest = stores.store_loop(SCRATCH, 100_000_000).end().exit(0);
    let mut config = config(guest.image());
    let device = with_test_device(&mut config);
    let vm = vm(&kvm, &config).unwrap();
    let observer = vm.observers().next().unwrap();
    let done = AtomicBool::new(false);
    let (outcome, looks) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| looks(&observer, &done));
        let outcome = run(vec![vm]).pop().unwrap();
        done.store(true, Ordering::Relaxed);
        (outcome, looks.join().unwrap())
    });
    assert_eq!(outcome.result, VmResult::Pass);
    assert!(looks > 0, "nobody looked");
    let phase = &device.report().phases[0];
    assert!(phase.vmm_exits.is_empty(), "after {looks} looks: {phase:?}");
    for name in ["io_exits", "mmio_exits", "signal_exits"] {
        let count = phase.kvm_exits.get(name).unwrap_or(&0);
        assert_eq!(*count, 0, "{name} after {looks} looks: {phase:?}");
    }
}

/// Looks as fast as it goes until all is done. Gives the number of looks at a guest that ran.
fn looks(observer: &VmObserver, done: &AtomicBool) -> u32 {
    let begun = Instant::now();
    let mut looks = 0;
    while !done.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(20) {
        let running = |seen: VmObservation| seen.ran_for.is_some() && !seen.ended;
        looks += u32::from(observer.observe().is_some_and(running));
    }
    looks
}
