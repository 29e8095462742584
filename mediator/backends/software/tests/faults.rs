//! Kernels that do what they must not: each ends with a fault that says who did what where, and
//! nobody else notices.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_kernels::special;
use causeway_mediator::backend::{Fault, Launch};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use support::{Device, kernel};

fn fault_of(body: &str, threads: u32) -> Fault {
    let mut device = Device::new(1);
    device.run(body, (1, threads), &[1; 64], 64).unwrap_err()
}

fn assert_fault(fault: &Fault, status: Status, parts: &[&str]) {
    assert_eq!(fault.status, status, "{fault}");
    for part in parts {
        assert!(
            fault.text.contains(part),
            "{part:?} is not in {:?}",
            fault.text
        );
    }
}

#[test]
fn a_wild_store_names_kernel_thread_and_address() {
    let mut device = Device::new(2);
    let module = device.load(special::PTX).unwrap();
    let given = [0xdead_0000_u64.to_le_bytes(), [1, 0, 0, 0, 0, 0, 0, 0]].concat();
    let shape = ([1, 1, 1], [1, 1, 1], 0);
    let fault = device
        .launch(&module, special::WILD_STORE, shape, &given[..12])
        .unwrap_err();
    let parts = [
        "wild_store",
        "block (0,0,0)",
        "thread (0,0,0)",
        "store of 4 bytes at 0xdead0000",
        "not mapped",
    ];
    assert_fault(&fault, Status::MemoryFault, &parts);
    // The queue is dead, and says the same.
    assert_eq!(device.queue.finish().unwrap_err(), fault);
}

#[test]
fn the_thread_that_did_it_is_named() {
    let body = "setp.eq.u32 %p1, %tid, 37; @%p1 mov.u64 %o, 24; st.global.u32 [%o], %t;";
    let fault = fault_of(body, 64);
    assert_fault(
        &fault,
        Status::MemoryFault,
        &["thread (37,0,0)", "0x18", "kernel `k`", "line"],
    );
}

#[test]
fn rights_alignment_and_ends_are_checked() {
    for (body, parts) in [
        (
            "st.global.u32 [%i], 1;",
            ["store of 4 bytes", "the mapping does not allow it"],
        ),
        (
            "ld.global.u32 %r1, [%o+1];",
            ["load of 4 bytes", "not aligned"],
        ),
        ("ld.global.u64 %d1, [%o+4092];", ["load of 8 bytes", "not"]),
        (
            "atom.global.add.u32 %r1, [%i], 1;",
            [
                "atomic operation of 4 bytes",
                "the mapping does not allow it",
            ],
        ),
        ("ld.shared.u32 %r1, [%r2+4];", ["at 0x4", "shared memory"]),
        (
            "mov.u64 %d1, 99999; ld.local.u32 %r1, [%d1+1];",
            ["load", "local memory"],
        ),
        (
            "mov.u64 %d1, 0x8f0200000000; ld.u32 %r1, [%d1+64];",
            ["load", "parameters"],
        ),
        (
            "mov.u64 %d1, 0x8f0200000000; st.u32 [%d1], 1;",
            ["store", "cannot be written"],
        ),
        (
            "mov.u64 %d1, -4; ld.u32 %r1, [%d1];",
            ["0xfffffffffffffffc", "not mapped"],
        ),
        (
            "mov.u64 %d1, -8; ld.shared.u64 %d2, [%d1];",
            ["0xfffffffffffffff8", "shared"],
        ),
    ] {
        assert_fault(&fault_of(body, 32), Status::MemoryFault, &parts);
    }
}

#[test]
fn traps_and_assertions_are_kernel_faults() {
    assert_fault(&fault_of("trap;", 1), Status::KernelFault, &["trap"]);
    let body = "setp.ne.u32 %p1, %tid, 5; @%p1 bra done; trap; done:";
    assert_fault(
        &fault_of(body, 32),
        Status::KernelFault,
        &["thread (5,0,0)"],
    );
}

#[test]
fn a_barrier_that_cannot_open_is_a_deadlock() {
    let body = "setp.lt.u32 %p1, %tid, 32; @%p1 bar.sync 1, 96; bar.sync 0;";
    let fault = fault_of(body, 64);
    assert_fault(&fault, Status::KernelFault, &["barrier", "32 of", "line"]);
}

#[test]
fn a_shuffle_whose_members_never_come_is_a_deadlock() {
    let body = "setp.lt.u32 %p1, %tid, 16; @%p1 bra low; bar.sync 1, 64;\n\
                low: shfl.sync.idx.b32 %r1, %t, 0, 31, -1;";
    let fault = fault_of(body, 32);
    assert_fault(&fault, Status::KernelFault, &["kernel `k`", "waits"]);
}

#[test]
fn recursion_ends_with_a_fault() {
    let function = ".func down(.param .u32 n) { .reg .b32 %r<3>; .local .u32 x;\n\
                    ld.param.u32 %r1, [n]; { .param .u32 a; st.param.u32 [a], %r1; \
                    call down, (a); } ret; }";
    let body = "{ .param .u32 a; st.param.u32 [a], %t; call down, (a); }";
    let mut device = Device::new(1);
    let module = device.load(&kernel(function, body)).unwrap();
    let fault = device.run_module(&module, (1, 32), &[], 32).unwrap_err();
    assert_fault(&fault, Status::KernelFault, &["nested too deep"]);
}

#[test]
fn stop_ends_a_kernel_that_never_ends_and_others_go_on() {
    let mut hung = Device::new(2);
    let backend = Arc::clone(&hung.backend);
    let stop = Arc::clone(&hung.stop);
    let thread = std::thread::spawn(move || {
        let module = hung.load(special::PTX).unwrap();
        let flag = hung.buffer(4096, Access::ReadWrite);
        let shape = ([64, 1, 1], [64, 1, 1], 0);
        let began = Instant::now();
        hung.launch(&module, special::FOREVER, shape, &flag.va.to_le_bytes())
            .unwrap();
        began.elapsed()
    });
    let mut other = Device::on(backend);
    for _ in 0..20 {
        let found = other
            .run("st.global.u32 [%o], %t;", (16, 32), &[], 512)
            .unwrap();
        assert_eq!(found[511], 511);
    }
    std::thread::sleep(Duration::from_millis(50));
    let asked = Instant::now();
    stop.store(true, Ordering::Relaxed);
    let ran = thread.join().unwrap();
    assert!(ran >= Duration::from_millis(40), "{ran:?}");
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );
}

#[test]
fn an_infinite_loop_through_an_index_can_be_stopped_too() {
    let body = "back: mov.u32 %r1, 0; ts: .branchtargets back; brx.idx %r1, ts;";
    let mut device = Device::new(1);
    let stop = Arc::clone(&device.stop);
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        stop.store(true, Ordering::Relaxed);
    });
    device.run(body, (1, 32), &[], 32).unwrap();
    stopper.join().unwrap();
}

#[test]
fn launches_beyond_the_limits_are_refused_with_numbers() {
    let mut device = Device::new(1);
    let module = device
        .load(&kernel(
            "",
            ".shared .b8 s[40000]; .local .b8 l[100000]; mov.u32 %r1, s;",
        ))
        .unwrap();
    let given = [0; 16];
    for (shape, status, part) in [
        (([1, 1, 1], [2048, 1, 1], 0), Status::BadLaunch, "2048"),
        (
            ([1, 1, 1], [32, 64, 1], 0),
            Status::BadLaunch,
            "2048 threads",
        ),
        (([1, 70000, 1], [1, 1, 1], 0), Status::BadLaunch, "70000"),
        (
            ([1, 1, 1], [32, 1, 1], 300_000),
            Status::BadLaunch,
            "340000",
        ),
        (([1, 1, 1], [1024, 1, 1], 0), Status::BadLaunch, "67108864"),
    ] {
        let kernel = module.kernel("k").unwrap();
        let (grid, block, shared_bytes) = shape;
        let shape = causeway_mediator::backend::LaunchShape {
            grid,
            block,
            shared_bytes,
        };
        let refused = Launch::new(&kernel, shape, &given).unwrap_err();
        assert_fault(&refused, status, &[part]);
    }
    let fault = device
        .launch(&module, "k", ([1, 1, 1], [32, 1, 1], 0), &given[..8])
        .unwrap_err();
    assert_fault(&fault, Status::BadParameters, &["16", "8"]);
}

#[test]
fn modules_are_refused_with_their_line() {
    let device = Device::new(1);
    for (before, body, line, part) in [
        (
            "",
            "\ntex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [x, {%f1,%f2}];",
            14,
            "tex.2d",
        ),
        ("", "\n\nadd.u32 %r1, %d1, 1;", 15, "64 bits"),
        ("", "\nadd.u32 %r1, %nosuch, 1;", 14, "%nosuch"),
        ("", "\nbra nowhere;", 14, "nowhere"),
        ("", "\nadd.quick.u32 %r1, %r1, 1;", 14, "quick"),
        ("", "\nadd.u32 %r1, %r1;", 14, "operands"),
        ("", "\nbar.sync 16;", 14, "16"),
        ("", "\nbar.red.popc.u32 %r1, 16, %p1;", 14, "16"),
        ("", "\nld.param.u64 %d1, [pin+8];", 14, "16 bytes"),
        (
            ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);",
            "\n{ .param .b64 a; .param .b32 r; call (r), vprintf, (a, r); }",
            14,
            "`r` has 4 bytes",
        ),
        (
            "",
            "\n{ .param .b64 a; call vprintf, (a); }",
            14,
            "2 arguments and 1 results, but 1 and 0",
        ),
        ("", "\ncall missing;", 14, "`missing` is not declared"),
        (
            ".extern .global .b32 missing;",
            "\nld.global.u32 %r1, [missing];",
            14,
            "missing",
        ),
        ("", "\n.shared .b8 big[1000000];", 14, "big"),
        ("", "\n.local .b8 big[99999999999];", 14, "local memory"),
        (
            "",
            "\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %d1, %d2, 1, 1, 1, 0, 0;",
            14,
            "wgmma",
        ),
    ] {
        let error = device.load(&kernel(before, body)).err().expect(body);
        assert!(error.reason.contains(part), "{part:?} is not in {error}");
        assert_eq!(error.line, line, "{error}");
    }
    let error = device.space.load(b"\x7fELF\xff").err().unwrap();
    assert!(error.reason.contains("PTX"), "{error}");
}

#[test]
fn forms_that_would_need_registers_of_another_size_are_refused() {
    let device = Device::new(1);
    let before = ".func (.param .b8 r[64]) f(.param .b8 a[64]) { ret; }";
    for body in [
        "ld.global.pred %p1, [%in];",
        "st.global.pred [%out], %p1;",
        "vote.sync.ballot.pred %p1, %p2, -1;",
        "vote.sync.any.b32 %r1, %p2, -1;",
        "bar.red.popc.pred %p1, 0, %p2;",
        "bar.red.and.u32 %r1, 0, %p2;",
        "match.any.sync.pred %p1, %p2, -1;",
        "bmsk.clamp.pred %p1, 1, 2;",
        "sqrt.rn.f16 %h1, %h2;",
        "rcp.rn.pred %p1, %p2;",
        "mov.pred %p1, {%h1};",
        "mov.b128 %d1, 5;",
        "{ .param .b32 small; .param .b8 r[64]; call (r), f, (small); }",
        "{ .param .b32 small; .param .b8 a[64]; call (small), f, (a); }",
        "fma.rn.f32 %d1, %d2, %d3, %d4;",
        "add.f64 %f1, %f2, %f3;",
        "st.global.u64 [%out], %r1;",
        "ld.global.u32 %p1, [%in];",
        "cvt.u64.u32 %r1, %r2;",
        "cvt.rzi.s32.f16x2 %r1, %r2;",
        "atom.global.add.u64 %r1, [%out], %d1;",
        "mul.wide.u32 %r1, %r2, %r3;",
    ] {
        assert!(device.load(&kernel(before, body)).is_err(), "{body}");
    }
}

#[test]
fn small_floats_that_are_not_supported_are_refused_by_name() {
    let device = Device::new(1);
    for body in [
        // Forms of PTX.
        "cvt.rn.satfinite.e2m1x2.f32 %h1, %f1, %f2;",
        "cvt.rn.satfinite.e2m3x2.f32 %h1, %f1, %f2;",
        "cvt.rn.f16x2.e3m2x2 %r1, %h1;",
        "cvt.rz.ue8m0x2.bf16x2 %h1, %r1;",
        "cvt.rn.satfinite.e4m3x2.bf16x2 %h1, %r1;",
        "cvt.rs.satfinite.e4m3x4.f32 %r1, {%f1, %f2, %f3, %f4}, %r2;",
        // Not forms of PTX.
        "cvt.rn.e4m3x2.f32 %h1, %f1, %f2;",
        "cvt.rz.satfinite.e4m3x2.f32 %h1, %f1, %f2;",
        "cvt.satfinite.e5m2x2.f16x2 %h1, %r1;",
        "cvt.rn.satfinite.ftz.e5m2x2.f32 %h1, %f1, %f2;",
        "cvt.rn.satfinite.e5m2x2.e4m3x2 %h1, %h2;",
        "cvt.rn.satfinite.f16x2.e4m3x2 %r1, %h1;",
        "cvt.rn.f32.e4m3x2 %f1, %h1;",
    ] {
        let error = device.load(&kernel("", body)).err().expect(body);
        let wanted = "is not supported by the software back end";
        assert!(error.reason.contains(wanted), "{error}");
    }
    let body = "cvt.rn.satfinite.e2m1x2.f32 %h1, %f1, %f2;";
    let error = device.load(&kernel("", body)).err().unwrap();
    assert!(error.reason.contains("with modifier `.e2m1x2`"), "{error}");
    let error = device.load(&kernel("", "cvt.rn %h1, %f1;")).err().unwrap();
    assert!(error.reason.contains("has no type"), "{error}");
}
