//! Which accesses are checked for the whole warp at once. The results of accesses do not show it.

use std::cell::Cell;

use causeway_mediator::backend::{AllocateOptions, Backend};
use causeway_protocol::Access as Rights;
use causeway_protocol::message::MemoryKind;

#[path = "../../tests/support/mod.rs"]
mod support;
use support::{Device, kernel, masked};

thread_local! {
    /// Accesses of this thread that were coalesced, and that were checked lane by lane.
    static CHECKS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

pub(in super::super) fn count_coalesced() {
    CHECKS.set((CHECKS.get().0 + 1, CHECKS.get().1));
}

pub(super) fn count_lane_by_lane() {
    CHECKS.set((CHECKS.get().0, CHECKS.get().1 + 1));
}

/// Declarations, and addresses of shared, local and generic memory.
const PLACES: &str = ".shared .align 8 .b8 s[1024]; .local .align 8 .b8 l[16];\n\
    mov.u64 %d1, s; mov.u64 %d2, l; cvta.shared.u64 %d3, %d1; cvt.u32.u64 %r1, %d1;\n\
    shl.b32 %r2, %tid, 2; cvt.u64.u32 %d4, %r2; shl.b32 %r3, %tid, 3; cvt.u64.u32 %d5, %r3;";

/// Runs a warp, and returns how many of its accesses were coalesced, and how many were checked
/// lane by lane.
fn checks(body: &str) -> (u64, u64) {
    let body = format!("{PLACES}\n{body}");
    // The one core is this thread.
    let mut device = Device::new(1);
    CHECKS.set((0, 0));
    device.run(&body, (1, 32), &[7; 256], 256).unwrap();
    CHECKS.get()
}

/// Active lanes of a warp.
const MASKS: [u32; 4] = [0x5555_5555, 0xffff_0000, 1 << 31, 1];

#[test]
fn adjacent_addresses_and_single_ones_are_coalesced() {
    for (body, coalesced) in [
        ("ld.global.u32 %r10, [%i]; st.global.u32 [%o+64], %r10;", 2),
        ("ld.u32 %r10, [%i]; st.u32 [%o+64], %r10;", 2),
        ("ld.global.u32 %r10, [%in];", 1),
        (
            "add.u64 %d6, %d1, %d4; st.shared.u32 [%d6], %r3; ld.shared.u32 %r10, [%d6+8];",
            2,
        ),
        (
            "add.u32 %r6, %r1, %r2; st.shared.u32 [%r6], %r3; ld.shared.u32 %r10, [%r6+8];",
            2,
        ),
        (
            "ld.shared.u64 %d10, [%r1+8]; ld.shared.u64 %d10, [%d1+8];",
            2,
        ),
        (
            "add.u64 %d6, %d3, %d4; st.u32 [%d6], %r3; ld.u32 %r10, [%d6+8];",
            2,
        ),
        ("st.local.u64 [%d2+8], %d4; ld.local.u64 %d10, [%d2+8];", 2),
    ] {
        assert_eq!(checks(body), (coalesced, 0), "{body}");
        for mask in MASKS {
            assert_eq!(
                checks(&masked(body, mask)),
                (coalesced, 0),
                "{mask:#x}: {body}"
            );
        }
    }
    // Bytes at the distance of words.
    let body = "add.u64 %d6, %in, %d4; ld.global.u8 %r10, [%d6];";
    assert_eq!(checks(body), (0, 0));
    assert_eq!(checks(&masked(body, 0x5555_5555)), (0, 0));
}

#[test]
fn other_lanes_of_one_mapping_are_checked_together() {
    for body in [
        // A stride, all lanes backwards, and half of the lanes.
        "add.u64 %d6, %in, %d5; ld.global.u32 %r10, [%d6]; st.global.u32 [%out], %r10;",
        "sub.u64 %d6, %in, %d4; ld.global.u32 %r10, [%d6+124];",
        "add.u64 %d6, %d1, %d5; ld.shared.u32 %r10, [%d6]; st.shared.u32 [%d6], %r10;",
        "add.u32 %r6, %r1, %r3; ld.shared.u32 %r10, [%r6]; st.shared.u32 [%r6], %r10;",
        "add.u64 %d6, %d3, %d5; ld.u32 %r10, [%d6]; st.u32 [%d6], %r10;",
        "and.b32 %r4, %tid, 1; cvt.u64.u32 %d7, %r4; shl.b64 %d7, %d7, 3; add.u64 %d7, %d7, %d2;\n\
         st.local.u32 [%d7], %tid; ld.local.u32 %r10, [%d7];",
        "atom.global.add.u32 %r10, [%out], 1; atom.shared.add.u32 %r10, [%d1], 1;",
    ] {
        let (_, one_by_one) = checks(body);
        assert_eq!(one_by_one, 0, "{body}");
        for mask in MASKS {
            let masked = masked(body, mask);
            let (_, one_by_one) = checks(&masked);
            assert_eq!(one_by_one, 0, "{masked}");
        }
    }
}

/// One access of a loop reaches two mappings in turn, of which one begins where the other ends.
#[test]
fn an_access_that_goes_from_one_mapping_to_another_stays_one_check() {
    let mut device = Device::new(1);
    let memory = |device: &Device| {
        let options = AllocateOptions::default();
        device.backend.allocate(MemoryKind::Host, 4096, options)
    };
    let (low, high) = (0x1000_0000, 0x1000_1000);
    for va in [low, high] {
        let memory = memory(&device).unwrap();
        let mapped = device.space.map_at(va, &memory, 0, 4096, Rights::ReadWrite);
        mapped.unwrap();
    }
    let body = "mov.u32 %r1, 0; mul.wide.u32 %d1, %tid, 12;\n\
        again: xor.b64 %out, %out, 4096; add.u64 %d3, %out, %d1;\n\
        ld.global.u32 %r3, [%out]; st.global.u32 [%d3], %r3;\n\
        add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra again;";
    let module = device.load(&kernel("", body)).unwrap();
    let given = [u64::to_le_bytes(low), u64::to_le_bytes(high)].concat();
    CHECKS.set((0, 0));
    let shape = ([1, 1, 1], [32, 1, 1], 0);
    device.launch(&module, "k", shape, &given).unwrap();
    assert_eq!(CHECKS.get(), (9, 0));
}

/// The last byte that has an address of 32 bits is as good as others.
#[test]
fn adjacent_addresses_up_to_4_gib_are_coalesced() {
    let va = (1 << 32) - 4096;
    let mut device = Device::new(1);
    let options = AllocateOptions::default();
    let memory = device.backend.allocate(MemoryKind::Host, 4096, options);
    let mapped = device
        .space
        .map_at(va, &memory.unwrap(), 0, 4096, Rights::ReadWrite);
    mapped.unwrap();
    let body = "ld.global.u8 %r4, [%tid+-32];";
    let module = device.load(&kernel("", body)).unwrap();
    CHECKS.set((0, 0));
    let shape = ([1, 1, 1], [32, 1, 1], 0);
    device.launch(&module, "k", shape, &[0; 16]).unwrap();
    assert_eq!(CHECKS.get(), (1, 0));
}
