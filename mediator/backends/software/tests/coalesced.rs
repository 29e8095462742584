//! Accesses to adjacent addresses and to one address, which are checked for all lanes at once: they
//! do what the accesses of each lane would do.

mod support;

use causeway_mediator::backend::{AllocateOptions, Backend, Fault};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};
use support::{Device, kernel, masked};

/// Accesses of 32 bits, at the address in `%d3`, of the word in `%r3`.
const GLOBAL: [&str; 3] = [
    "ld.global.u32 %r3, [%d3];",
    "st.global.u32 [%d3], %r3;",
    "ld.u32 %r3, [%d3];",
];

/// Warps of which all lanes, or some, access memory.
const MASKS: [u32; 6] = [
    u32::MAX,
    u32::MAX >> 7,
    0xffff_0000,
    0x5555_5555,
    0x0100_0080,
    1 << 9,
];

/// Runs a warp whose lane 0 is at word `first` of a mapping of `bytes` bytes, with `access`.
fn run(body: &str, (first, bytes): (u64, u64), access: Access) -> Result<(), Fault> {
    let va = 0x1000_0000_u64;
    let mut device = Device::new(1);
    let memory = device
        .backend
        .allocate(MemoryKind::Host, 8192, AllocateOptions::default())
        .unwrap();
    device.space.map_at(va, &memory, 0, bytes, access).unwrap();
    let module = device
        .load(&kernel("", body))
        .unwrap_or_else(|e| panic!("{e}\n{body}"));
    let start = va.wrapping_add(first.wrapping_mul(4));
    let given = [start.to_le_bytes(), start.to_le_bytes()].concat();
    device.launch(&module, "k", ([1, 1, 1], [32, 1, 1], 0), &given)
}

fn assert_fault(fault: Result<(), Fault>, lane: u64, reason: &str, what: &str) {
    let fault = fault.expect_err(what);
    assert_eq!(fault.status, Status::MemoryFault, "{fault}\n{what}");
    for words in [&format!("thread ({lane},0,0)"), reason] {
        assert!(fault.text.contains(words), "{fault}\n{what}");
    }
}

#[test]
fn a_row_that_leaves_its_mapping_is_a_fault_of_the_first_lane_outside() {
    for (access, mask) in GLOBAL.into_iter().flat_map(|a| MASKS.map(|mask| (a, mask))) {
        let body = masked(&format!("mov.u64 %d3, %o; {access}"), mask);
        for outside in 0..=32 {
            let first_outside = 32 - outside;
            let lane = (first_outside..32).find(|lane| mask & 1 << lane != 0);
            let ran = run(&body, (1024 - 32 + outside, 4096), Access::ReadWrite);
            match lane {
                None => ran.unwrap_or_else(|e| panic!("{e}\n{body}")),
                Some(lane) => assert_fault(ran, lane, "not mapped", &body),
            }
        }
        for before in 1..=32_u64 {
            let ran = run(&body, (before.wrapping_neg(), 4096), Access::ReadWrite);
            let lane = u64::from(mask.trailing_zeros());
            match lane < before {
                true => assert_fault(ran, lane, "not mapped", &body),
                false => ran.unwrap_or_else(|e| panic!("{e}\n{body}")),
            }
        }
    }
    // The mapping ends in the middle of an access.
    let body = "ld.global.u32 %r3, [%o];";
    let fault = run(body, (1024 - 31, 4098), Access::ReadWrite);
    assert_fault(fault, 31, "beyond the end of the mapping", body);
}

#[test]
fn a_row_in_memory_that_kernels_only_read_cannot_be_stored() {
    run("ld.global.u32 %r3, [%o];", (8, 4096), Access::Read).unwrap();
    let body = "st.global.u32 [%o], %tid;";
    let fault = run(body, (8, 4096), Access::Read);
    assert_fault(fault, 0, "the mapping does not allow it", body);
}

#[test]
fn a_row_that_is_not_aligned_is_a_fault() {
    for (access, lane) in [
        ("add.u64 %d3, %o, 2; ld.global.u32 %r3, [%d3];", 0),
        ("add.u64 %d3, %o, 1; st.global.u32 [%d3], %r3;", 0),
        // The first element has the alignment of all, which every other lane has.
        ("ld.global.v2.u32 {%r3, %r4}, [%o];", 1),
        ("st.global.v4.u32 [%o], {%r3, %r3, %r3, %r3};", 1),
    ] {
        let fault = run(access, (8, 4096), Access::ReadWrite);
        assert_fault(fault, lane, "not aligned", access);
        if lane != 0 {
            let fault = run(access, (9, 4096), Access::ReadWrite);
            assert_fault(fault, 0, "not aligned", access);
        }
    }
    // All lanes are at the same place.
    let body = "add.u64 %d3, %out, 2; ld.global.u32 %r3, [%d3];";
    let fault = run(body, (8, 4096), Access::ReadWrite);
    assert_fault(fault, 0, "not aligned", body);
}

/// The first and the last active lane are where those of a row are.
#[test]
fn one_lane_that_is_elsewhere_makes_no_row() {
    let input: Vec<u32> = (0..64).map(|n| 9 + n * n).collect();
    let each = (0..32_usize).flat_map(|lane| MASKS.map(|mask| (lane, mask)));
    for (lane, mask) in each {
        let is_active = |lane: usize| mask & 1 << lane != 0;
        for row in ["%i", "%in"] {
            let body = format!(
                "mov.u64 %d3, {row}; setp.eq.u32 %p1, %tid, {lane};\n\
                 @%p1 add.u64 %d3, %in, 200; ld.global.u32 %r3, [%d3]; st.global.u32 [%o], %r3;"
            );
            let body = masked(&body, mask);
            let found = Device::new(1).run(&body, (1, 32), &input, 32).unwrap();
            let expected = (0..32).map(|at| match row {
                _ if !is_active(at) => 0,
                _ if at == lane => input[50],
                "%i" => input[at],
                _ => input[0],
            });
            assert_eq!(
                found,
                expected.collect::<Vec<u32>>(),
                "{row}, {lane}, {mask:#x}"
            );
        }
        let body = format!(
            "mov.u64 %d3, %o; setp.eq.u32 %p1, %tid, {lane}; @%p1 add.u64 %d3, %out, 200;\n\
             add.u32 %r3, %tid, 7; st.global.u32 [%d3], %r3;"
        );
        let body = masked(&body, mask);
        let found = Device::new(1).run(&body, (1, 32), &[], 64).unwrap();
        let mut expected = [0; 64];
        for at in (0..32).filter(|at| is_active(*at)) {
            expected[if at == lane { 50 } else { at }] = 7 + at as u32;
        }
        assert_eq!(found, expected, "{lane}, {mask:#x}");
    }
}

/// Lanes 3 and 5 differ from what is expected in the same bits.
#[test]
fn two_lanes_that_are_elsewhere_are_not_adjacent_and_not_the_same() {
    let input: Vec<u32> = (0..64).map(|n| 9 + n * n).collect();
    for mask in [u32::MAX, u32::MAX >> 7] {
        let body = masked(
            "setp.eq.u32 %p1, %tid, 3; setp.eq.u32 %p2, %tid, 5;\n\
             mov.u64 %d3, %i; @%p1 add.u64 %d3, %d3, 8; @%p2 sub.u64 %d3, %d3, 8;\n\
             ld.global.u32 %r3, [%d3]; st.global.u32 [%o], %r3;",
            mask,
        );
        let found = Device::new(1).run(&body, (1, 32), &input, 32).unwrap();
        let expected = (0..32_usize).map(|at| match at {
            _ if mask >> at & 1 == 0 => 0,
            3 => input[5],
            5 => input[3],
            at => input[at],
        });
        assert_eq!(found, expected.collect::<Vec<u32>>());
        let both = "setp.eq.u32 %p1, %tid, 3; setp.eq.or.u32 %p1, %tid, 5, %p1;";
        let body = masked(
            &format!(
                "{both} mov.u64 %d3, %in; @%p1 add.u64 %d3, %in, 200;\n\
                 ld.global.u32 %r3, [%d3]; st.global.u32 [%o], %r3;"
            ),
            mask,
        );
        let found = Device::new(1).run(&body, (1, 32), &input, 32).unwrap();
        let expected = (0..32_usize).map(|at| match at {
            _ if mask >> at & 1 == 0 => 0,
            3 | 5 => input[50],
            _ => input[0],
        });
        assert_eq!(found, expected.collect::<Vec<u32>>());
        let body = masked(
            &format!("{both} mov.u64 %d3, %in; @%p1 mov.u64 %d3, 64; ld.global.u32 %r3, [%d3];"),
            mask,
        );
        let fault = Device::new(1).run(&body, (1, 32), &input, 32).map(|_| ());
        assert_fault(fault, 3, "not mapped", &body);
    }
}

/// Adjacent addresses may be in two mappings, of which one begins where the other ends.
#[test]
fn adjacent_addresses_can_be_in_two_mappings() {
    let mut device = Device::new(1);
    for (va, word) in [(0x2000_0000_u64, 7_u32), (0x2000_1000, 9)] {
        let options = AllocateOptions::default();
        let memory = device.backend.allocate(MemoryKind::Host, 4096, options);
        let memory = memory.unwrap();
        let backing = memory.backing().unwrap();
        let (host, offset) = backing.host().unwrap();
        let view = host.map(offset, 4096, Access::ReadWrite).unwrap();
        view.write(0, &word.to_le_bytes().repeat(1024)).unwrap();
        let mapped = device.space.map_at(va, &memory, 0, 4096, Access::ReadWrite);
        mapped.unwrap();
    }
    let output = device.buffer(4096, Access::ReadWrite);
    let body = "ld.global.u32 %r3, [%i]; st.global.u32 [%o], %r3;";
    let module = device.load(&kernel("", body)).unwrap();
    let given = [output.va.to_le_bytes(), 0x2000_0fd0_u64.to_le_bytes()].concat();
    let shape = ([1, 1, 1], [32, 1, 1], 0);
    device.launch(&module, "k", shape, &given).unwrap();
    assert_eq!(output.words(32), [[7; 12].as_slice(), &[9; 20]].concat());
}

/// Addresses of 32 bits end at 4 GiB, also where a mapping goes on.
#[test]
fn addresses_of_32_bits_are_not_adjacent_beyond_4_gib() {
    for first in 1..=33_u32 {
        let va = (1 << 32) - 4096;
        let mut device = Device::new(1);
        let options = AllocateOptions::default();
        let memory = device.backend.allocate(MemoryKind::Host, 8192, options);
        let mapped = device
            .space
            .map_at(va, &memory.unwrap(), 0, 8192, Access::ReadWrite);
        mapped.unwrap();
        let body = format!(
            "shl.b32 %r2, %tid, 2; ld.global.u32 %r4, [%r2+{}];",
            i64::from((4 * first).wrapping_neg().cast_signed())
        );
        let module = device.load(&kernel("", &body)).unwrap();
        let shape = ([1, 1, 1], [32, 1, 1], 0);
        let ran = device.launch(&module, "k", shape, &[0; 16]);
        match first < 32 {
            true => assert_fault(ran, first.into(), "not mapped", &body),
            false => ran.unwrap_or_else(|e| panic!("{e}\n{body}")),
        }
    }
}

/// Rows begin at every byte of 16 that the type may begin at, and are loaded and stored whole.
#[test]
fn rows_of_every_type_move_every_lane() {
    for (load, store, bytes) in [
        ("ld.global.u8 %r3", "st.global.u8", 1),
        ("ld.global.s8 %r3", "st.global.u8", 1),
        ("ld.global.u16 %r3", "st.global.u16", 2),
        ("ld.global.s16 %r3", "st.global.u16", 2),
        ("ld.global.u32 %r3", "st.global.u32", 4),
        ("ld.global.s32 %d4", "st.global.u32", 4),
        ("ld.global.u8 %d4", "st.global.u8", 1),
        ("ld.global.s16 %d4", "st.global.u16", 2),
        ("ld.global.u64 %d4", "st.global.u64", 8),
    ] {
        let offsets = (0..32).step_by(bytes);
        for (offset, mask) in offsets.flat_map(|offset| MASKS.map(|mask| (offset, mask))) {
            let value = &load[load.len() - 3..];
            let body = format!(
                "mul.wide.u32 %d1, %tid, {bytes}; add.u64 %d2, %in, %d1; {load}, [%d2+{offset}];\n\
                 add.u64 %d2, %out, %d1; {store} [%d2+{offset}], {value};"
            );
            let body = masked(&body, mask);
            let input: Vec<u32> = (0..72_u32).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
            let found = Device::new(1).run(&body, (1, 32), &input, 72).unwrap();
            let flat = |words: &[u32]| {
                let bytes = words.iter().flat_map(|w| w.to_le_bytes());
                bytes.collect::<Vec<u8>>()
            };
            let (given, got) = (flat(&input), flat(&found));
            for at in 0..got.len() {
                let lane = at.checked_sub(offset).map(|distance| distance / bytes);
                let is_stored = lane.is_some_and(|lane| lane < 32 && mask & 1 << lane != 0);
                let expected = if is_stored { given[at] } else { 0 };
                assert_eq!(got[at], expected, "byte {at}: {body}");
            }
        }
    }
}

/// A signed byte is extended in a register of a row as elsewhere.
#[test]
fn rows_are_extended_by_zeros_or_by_the_sign() {
    let body = "cvt.u64.u32 %d1, %tid; add.u64 %d2, %in, %d1;\n\
        ld.global.s8 %r3, [%d2]; ld.global.u8 %r4, [%d2]; sub.u32 %r3, %r4, %r3;\n\
        st.global.u32 [%o], %r3;";
    let input: Vec<u32> = (0..8).map(|n| 0x80ff_7f01_u32.rotate_left(n)).collect();
    let found = Device::new(1).run(body, (1, 32), &input, 32).unwrap();
    let bytes = input.iter().flat_map(|w| w.to_le_bytes());
    let expected = bytes.map(|byte| if byte < 128 { 0 } else { 256 });
    assert_eq!(found, expected.collect::<Vec<u32>>());
}

#[test]
fn rows_of_shared_memory_have_addresses_of_32_bits_that_wrap_with_their_offset() {
    let body = ".shared .align 4 .b32 s[32];\n\
        mov.u32 %r1, s; shl.b32 %r2, %tid, 2; add.u32 %r2, %r2, %r1; sub.u32 %r2, %r2, 256;\n\
        add.u32 %r3, %tid, 5; st.shared.u32 [%r2+256], %r3;\n\
        ld.shared.u32 %r4, [%r2+256]; st.global.u32 [%o], %r4;";
    let found = Device::new(1).run(body, (1, 32), &[], 32).unwrap();
    assert_eq!(found, (5..37).collect::<Vec<u32>>());
    // The row begins below 2^32 and ends above: the first lanes are outside.
    for first in 1..=32_u32 {
        let body = format!(
            ".shared .align 4 .b32 s[64];\n\
             shl.b32 %r2, %tid, 2; add.u32 %r2, %r2, {}; ld.shared.u32 %r4, [%r2];",
            (4 * first).wrapping_neg()
        );
        let fault = Device::new(1).run(&body, (1, 32), &[], 32).map(|_| ());
        assert_fault(fault, 0, "outside the block's shared memory", &body);
    }
}

#[test]
fn a_row_that_leaves_shared_memory_is_a_fault_of_the_first_lane_outside() {
    for (window, address) in [
        ("shared.", "mov.u64 %d1, s;"),
        ("", "cvta.shared.u64 %d1, %d1;"),
    ] {
        for outside in 1..=32_u32 {
            let body = format!(
                ".shared .align 4 .b32 s[64];\n\
                 mov.u64 %d1, s; {address} mul.wide.u32 %d2, %tid, 4; add.u64 %d3, %d1, %d2;\n\
                 ld.{window}u32 %r4, [%d3+{}];",
                128 + 4 * outside
            );
            let fault = Device::new(1).run(&body, (1, 32), &[], 32).map(|_| ());
            let reason = "outside the block's shared memory";
            assert_fault(fault, u64::from(32 - outside), reason, &body);
        }
    }
}

/// All lanes name the same place, which each has for itself.
#[test]
fn every_lane_has_its_own_local_memory_at_the_same_address() {
    let body = ".local .align 8 .b8 l[48];\n\
        mul.lo.u32 %r1, %tid, 3; st.local.u32 [l+4], %r1; st.local.u8 [l+9], %tid;\n\
        cvt.u64.u32 %d4, %tid; st.local.u64 [l+40], %d4;\n\
        ld.local.u32 %r2, [l+4]; ld.local.u8 %r3, [l+9]; ld.local.u64 %d5, [l+40];\n\
        cvt.u32.u64 %r4, %d5; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;\n\
        ld.local.u32 %r5, [l+8]; shr.u32 %r5, %r5, 8; add.u32 %r2, %r2, %r5;\n\
        st.global.u32 [%o], %r2;";
    for mask in MASKS {
        let found = Device::new(1)
            .run(&masked(body, mask), (1, 32), &[], 32)
            .unwrap();
        let expected = (0..32).map(|tid| if mask >> tid & 1 == 1 { 6 * tid } else { 0 });
        assert_eq!(found, expected.collect::<Vec<u32>>(), "{mask:#x}");
    }
    let body = ".local .align 8 .b8 l[48]; mov.u64 %d3, l; ld.local.u64 %d4, [%d3+48];";
    let fault = Device::new(1).run(body, (1, 32), &[], 32).map(|_| ());
    assert_fault(fault, 0, "outside the thread's local memory", body);
}
