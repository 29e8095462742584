//! Hostile guests by the thousand: whatever comes in, nothing panics, no quota is passed, and
//! closing the session releases everything. `CAUSEWAY_FUZZ_INPUTS` says how many inputs each test
//! takes.

mod batches;
mod known;
mod random;
mod requests;
#[path = "../rig/mod.rs"]
mod rig;
mod rings;

use causeway_mediator::Quota;
use causeway_protocol::packet::UNIT_BYTES;
use rig::*;
use zerocopy::IntoBytes;

const MEMORY_BYTES: u64 = 1 << 20;

/// Guest-physical address of packets to record.
const PACKETS: u64 = 0x2000;

fn inputs() -> u64 {
    let set = std::env::var("CAUSEWAY_FUZZ_INPUTS").ok();
    set.and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

fn small_quota() -> Quota {
    Quota {
        memory_bytes: MEMORY_BYTES,
        module_bytes: 1 << 16,
        allocations: 24,
        command_buffers: 3,
        objects: 48,
        ..Quota::DEFAULT
    }
}

fn hostile_rig() -> Rig {
    let rig = Rig::with_quota(small_quota());
    rig.backend.define("add", 16, |launch| {
        launch.store(launch.parameter(0), launch.parameter(8))
    });
    rig.guest
        .host
        .ram_mapping()
        .write(0, b"kernel add\nvariable v 8")
        .unwrap();
    // A page of packets that can be recorded, and what cannot behind it.
    for at in (PACKETS..PACKETS + 4096).step_by(UNIT_BYTES) {
        let ram = rig.guest.host.ram_mapping();
        ram.write(at, release(0, 1).as_bytes()).unwrap();
    }
    rig
}
