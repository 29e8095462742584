//! Snapshots for tests.

use std::collections::BTreeMap;

use causeway_mediator::Statistics;

use super::rights::{Given, Held, Right, Rights};
use super::snapshot::{Aperture, Guest, SCHEMA, Session, Snapshot, Vm};

const SECOND_NS: u64 = 1_000_000_000;

fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let counts = counts.iter().map(|(name, n)| ((*name).to_owned(), *n));
    counts.collect()
}

/// Returns an invented state, for tests: that of a VM that has run for ten seconds.
pub fn guest() -> Guest {
    Guest {
        name: "vm0".to_owned(),
        gpu_index: 0,
        gpu_number: 0,
        taken_ns: 100 * SECOND_NS,
        ran_ns: 10 * SECOND_NS,
        ended: false,
        paused: false,
        vm: Some(Vm {
            vcpus: 2,
            memory_bytes: 256 << 20,
            kvm: Some(counts(&[
                ("exits", 2500),
                ("io_exits", 1000),
                ("mmio_exits", 40),
                ("irq_exits", 300),
                ("halt_exits", 0),
                ("pf_taken", 700),
                ("vm:remote_tlb_flush", 3),
            ])),
            vmm_exits: counts(&[
                ("io:testdev:record", 1000),
                ("mmio:registers:control_doorbell", 40),
            ]),
        }),
        aperture: Aperture {
            bytes: 64 << 30,
            used_bytes: 64 << 20,
            placements: 3,
        },
        session: Some(Session {
            statistics: Statistics {
                batches: 40,
                packets: 1010,
                launches: 500,
                copies: 10,
                written_bytes: 5 << 20,
                sleeps: 7,
                doorbell_wakeups: 6,
                busy_ns: 2_500_000_000,
                kernel_ns: 2_250_000_000,
                memory_used_bytes: 128 << 20,
                memory_peak_bytes: 256 << 20,
                memory_limit_bytes: 1 << 30,
                allocations: 5,
                command_buffers: 1,
                queued_units: 12,
                queue_units: 256,
                ..Statistics::default()
            },
            lost: false,
        }),
        rights: rights(),
    }
}

/// Memory for GPU 1, twice, of which one is imported; and an import of memory of GPU 1.
fn rights() -> Rights {
    let given = |access, exports, bytes, imports| Given {
        gpu: 1,
        access,
        exports,
        bytes,
        imports,
    };
    let held = Held {
        gpu: 1,
        access: Right::Read,
        imports: 1,
        bytes: 8 << 20,
    };
    Rights {
        given: vec![
            given(Right::Read, 1, 2 << 20, 0),
            given(Right::ReadWrite, 2, 4 << 20, 1),
        ],
        held: vec![held],
    }
}

/// Returns the state of the VM of [`guest`] one second later.
pub fn later() -> Guest {
    let mut guest = guest();
    guest.taken_ns += SECOND_NS;
    guest.ran_ns += SECOND_NS;
    let Some(vm) = &mut guest.vm else {
        unreachable!("it is a VM")
    };
    let kvm = vm.kvm.get_or_insert_default();
    for (name, more) in [("exits", 250), ("io_exits", 50), ("irq_exits", 100)] {
        *kvm.entry(name.to_owned()).or_default() += more;
    }
    vm.vmm_exits
        .entry("io:testdev:record".to_owned())
        .and_modify(|n| *n += 50);
    if let Some(session) = &mut guest.session {
        session.statistics.launches += 1500;
        session.statistics.packets += 1600;
        session.statistics.written_bytes += 1 << 20;
        session.statistics.busy_ns += 420_000_000;
        session.statistics.kernel_ns += 400_000_000;
    }
    guest
}

/// Returns the state of the VM of [`guest`] with its second GPU.
pub fn further_gpu() -> Guest {
    Guest {
        name: "vm0.gpu1".to_owned(),
        gpu_index: 1,
        gpu_number: 1,
        vm: None,
        ..guest()
    }
}

/// Returns an invented snapshot, for tests: a run with two VMs, one of which has ended and has no
/// statistics of a session.
pub fn snapshot() -> Snapshot {
    let ended = Guest {
        name: "vm1".to_owned(),
        ended: true,
        session: None,
        rights: Rights::default(),
        ..guest()
    };
    Snapshot {
        schema: SCHEMA.to_owned(),
        causeway: "0.1.0".to_owned(),
        pid: 4711,
        command: "run".to_owned(),
        gpu: "software".to_owned(),
        own_bytes: 12 << 20,
        guests: vec![guest(), ended],
    }
}
