//! The check of every access, by every lane: one lane of a warp reaches beyond the memory that the
//! others stay within.

mod support;

use causeway_mediator::backend::{AllocateOptions, Backend};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use support::{Device, kernel};

/// Accesses at the address in `%d3`.
const GLOBAL: [&str; 4] = [
    "ld.global.u64 %d4, [%d3];",
    "st.global.u64 [%d3], %d4;",
    "atom.global.add.u64 %d4, [%d3], 1;",
    "ld.u64 %d4, [%d3];",
];
const SHARED: [&str; 3] = [
    "ld.shared.u64 %d4, [%d3];",
    "st.shared.u64 [%d3], %d4;",
    "atom.shared.add.u64 %d4, [%d3], 1;",
];
const GENERIC_SHARED: [&str; 2] = ["ld.u64 %d4, [%d3];", "st.u64 [%d3], %d4;"];
const LOCAL: [&str; 2] = ["ld.local.u64 %d4, [%d3];", "st.local.u64 [%d3], %d4;"];

/// Runs a warp in which every lane accesses `good`, but lane `lane` `bad`; lanes that are not in
/// `mask` access nothing. Each must name that lane, with nothing else touched.
fn assert_named(declarations: &str, access: &str, (good, bad): (&str, &str), lane: u32, mask: u32) {
    let body = format!(
        "{declarations}\n\
        mov.u32 %r1, {mask}; shr.u32 %r1, %r1, %tid; and.b32 %r1, %r1, 1;\n\
        setp.eq.u32 %p1, %r1, 0; @%p1 bra done;\n\
        mov.u64 %d4, 0; {good}\n\
        setp.eq.u32 %p2, %tid, {lane}; @!%p2 bra same; {bad}\n\
        same: {access}\n\
        done:"
    );
    let mut device = Device::new(1);
    let module = device
        .load(&kernel("", &body))
        .unwrap_or_else(|e| panic!("{e}\n{body}"));
    let fault = device.run_module(&module, (1, 32), &[0; 64], 64);
    let fault = fault.expect_err(&body);
    assert_eq!(fault.status, Status::MemoryFault, "{fault}\n{body}");
    let thread = format!("thread ({lane},0,0)");
    assert!(fault.text.contains(&thread), "{fault}\n{body}");
}

/// Tries every lane of a full warp, and of warps of which some lanes are active.
fn assert_every_lane(declarations: &str, access: &str, addresses: (&str, &str)) {
    for lane in 0..32 {
        for mask in [u32::MAX, 0xaaaa_aaaa, 0x5555_5555, 0xffff_0000, 1] {
            if mask & 1 << lane != 0 {
                assert_named(declarations, access, addresses, lane, mask);
            }
        }
    }
}

#[test]
fn every_lane_stays_within_its_mapping() {
    let good = "cvt.u64.u32 %d1, %tid; shl.b64 %d1, %d1, 2; sub.u64 %d3, %o, %d1;";
    for bad in [
        "add.u64 %d3, %d3, 4096;",
        "sub.u64 %d3, %d3, 8;",
        "mov.u64 %d3, -8;",
    ] {
        for access in GLOBAL {
            assert_every_lane("", access, (good, bad));
        }
    }
}

#[test]
fn every_lane_stays_within_shared_memory_with_all_bytes_of_its_access() {
    let declarations = ".shared .align 8 .b8 s[20];";
    for (good, accesses) in [
        ("mov.u64 %d3, s;", &SHARED[..]),
        ("mov.u64 %d3, s; cvta.shared.u64 %d3, %d3;", &GENERIC_SHARED),
    ] {
        for bad in [
            "add.u64 %d3, %d3, 16;",
            "add.u64 %d3, %d3, 24;",
            "sub.u64 %d3, %d3, 8;",
        ] {
            for access in accesses {
                assert_every_lane(declarations, access, (good, bad));
            }
        }
    }
}

#[test]
fn every_lane_stays_within_its_own_local_memory() {
    let declarations = ".local .align 8 .b8 l[16];";
    for bad in ["add.u64 %d3, %d3, 16;", "sub.u64 %d3, %d3, 8;"] {
        for access in LOCAL {
            assert_every_lane(declarations, access, ("mov.u64 %d3, l;", bad));
        }
    }
}

/// Callers that choose all addresses themselves may map any number of bytes.
#[test]
fn an_access_that_begins_in_a_mapping_and_ends_beyond_it_is_a_fault_and_stores_nothing() {
    let (va, length) = (0x1000_0000_u64, 4100);
    for access in GLOBAL {
        let mut device = Device::new(1);
        let memory = device
            .backend
            .allocate(MemoryKind::Host, 8192, AllocateOptions::default())
            .unwrap();
        let mapped = device
            .space
            .map_at(va, &memory, 0, length, Access::ReadWrite);
        mapped.unwrap();
        let body = format!("mov.u64 %d4, -1; add.u64 %d3, %out, 4096; {access}");
        let module = device.load(&kernel("", &body)).unwrap();
        let given = [va.to_le_bytes(), va.to_le_bytes()].concat();
        let shape = ([1, 1, 1], [1, 1, 1], 0);
        let fault = device.launch(&module, "k", shape, &given).unwrap_err();
        assert_eq!(fault.status, Status::MemoryFault, "{fault}");
        let reason = "8 bytes at 0x10001000: beyond the end of the mapping";
        assert!(fault.text.contains(reason), "{fault}");
        let backing = memory.backing().unwrap();
        let (host, offset) = backing.host().unwrap();
        let view = host.map(offset, 8192, Access::Read).unwrap();
        let mut bytes = [0xff; 8];
        view.read(4096, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 8], "{access}");
    }
}
