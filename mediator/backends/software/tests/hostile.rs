//! Modules made to harm: they get no memory that is not theirs, no time beyond `stop`, no more
//! memory than is due.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_mediator::backend::{Module, Space};
use causeway_protocol::message::Status;
use support::{Device, kernel};

/// Runs kernel `k` and asks it to stop after 50 ms; gives the time from there to its end.
fn time_to_stop(device: &mut Device, module: &Arc<dyn Module>, threads: u32) -> Duration {
    let stop = Arc::clone(&device.stop);
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        Instant::now()
    });
    device.run_module(module, (1, threads), &[], 32).unwrap();
    stopper.join().unwrap().elapsed()
}

#[test]
fn calls_that_multiply_can_be_stopped() {
    let mut functions = String::from(".func f40() { ret; }\n");
    for number in (0..40).rev() {
        let next = number + 1;
        functions += &format!(".func f{number}() {{ call f{next}; call f{next}; ret; }}\n");
    }
    let mut device = Device::new(1);
    let module = device.load(&kernel(&functions, "call f0;")).unwrap();
    let took = time_to_stop(&mut device, &module, 32);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn long_loops_of_many_warps_can_be_stopped() {
    let long = "sin.approx.f32 %f1, %f1;\n".repeat(20_000);
    let body = format!("back: {long} bra back;");
    let mut device = Device::new(1);
    let module = device.load(&kernel("", &body)).unwrap();
    let took = time_to_stop(&mut device, &module, 1024);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// Whoever gets the lock is ahead of those that spin for it, and must get its turn however long
/// their loop is.
#[test]
fn lanes_that_spin_in_long_loops_let_others_run() {
    let long = "add.u32 %r9, %r9, 1;\n".repeat(100);
    let body = format!(
        "back: {long} atom.global.cas.b32 %r1, [%out], 0, 1; setp.ne.u32 %p1, %r1, 0;\n\
         @%p1 bra back; atom.global.add.u32 %r2, [%out+4], 1; atom.global.exch.b32 %r3, [%out], 0;"
    );
    let mut device = Device::new(1);
    let stop = Arc::clone(&device.stop);
    let (ended, end) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if end.recv_timeout(Duration::from_secs(20)).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let found = device.run(&body, (1, 4), &[], 2).unwrap();
    ended.send(()).expect("it ends before anyone stops it");
    assert_eq!(found, [0, 4]);
}

/// Lanes 0-15 wait in `inner`, called by `outer`, while lanes 16-31 write all registers of `wide`.
/// The two callees of the kernel have frames of different sizes, and doubles have their lanes
/// elsewhere than words.
#[test]
fn lanes_in_different_functions_do_not_reach_each_others_registers() {
    let wide: String = (0..64)
        .map(|n| format!("mov.u64 %x{n}, 0x4141414142424242;\n"))
        .collect();
    let functions = format!(
        ".func wide() {{ .reg .b64 %x<64>; {wide} bar.warp.sync -1; ret; }}\n\
         .func (.reg .b32 r) inner(.reg .b32 a) {{ bar.warp.sync -1; add.u32 r, a, 1; ret; }}\n\
         .func (.reg .b32 r) outer(.reg .b32 a) {{ .reg .b32 %b; add.u32 %b, a, 1;\n\
         call (r), inner, (%b); add.u32 r, r, %b; ret; }}\n"
    );
    let body = "mov.u32 %r1, 0; setp.ge.u32 %p1, %tid, 16; @%p1 bra high;\n\
                call (%r1), outer, (%tid); bra done; high: call wide;\n\
                done: st.global.u32 [%o], %r1;";
    let mut device = Device::new(1);
    let module = device.load(&kernel(&functions, body)).unwrap();
    let found = device.run_module(&module, (1, 32), &[], 32).unwrap();
    let wanted: Vec<u32> = (0..32)
        .map(|t| if t < 16 { 2 * t + 3 } else { 0 })
        .collect();
    assert_eq!(found, wanted);
}

/// Lanes at different depths of a recursion, each with values of its own.
#[test]
fn recursion_keeps_the_registers_of_every_level() {
    let functions = ".func (.reg .b32 r) sum(.reg .b32 n);\n\
         .func (.reg .b32 r) twice(.reg .b32 n) { .reg .b64 %w<9>; .reg .b32 %x; mov.u64 %w1, -1;\n\
         call (%x), sum, (n); add.u32 r, %x, %x; ret; }\n\
         .func (.reg .b32 r) sum(.reg .b32 n) { .reg .b32 %m; .reg .pred %p; mov.u32 r, 0;\n\
         setp.eq.u32 %p, n, 0; @%p bra end; sub.u32 %m, n, 1; call (r), twice, (%m); \
         add.u32 r, r, n;\n\
         end: bar.warp.sync -1; ret; }\n";
    let body = "and.b32 %r2, %tid, 7; call (%r1), sum, (%r2); st.global.u32 [%o], %r1;";
    let mut device = Device::new(1);
    let module = device.load(&kernel(functions, body)).unwrap();
    let found = device.run_module(&module, (1, 32), &[], 32).unwrap();
    let sum = |n: u32| (1..=n).fold(0, |sum, n| 2 * sum + n);
    let wanted: Vec<u32> = (0..32).map(|t| sum(t & 7)).collect();
    assert_eq!(found, wanted);
}

#[test]
fn short_sources_that_mean_much_work_are_refused() {
    let labels = "a,".repeat(100_000);
    let arguments = ".reg .b32 a,".repeat(4000);
    let given = "7,".repeat(4000);
    let device = Device::new(1);
    for function in [
        format!(".func f() {{ a: t: .branchtargets {labels}a; ret; }}"),
        format!(".func f() {{ {} ret; }}", ".reg .b32 a;".repeat(100_000)),
        format!(
            ".func f() {{ {} ret; }}",
            "prefetch.L1 [a];".repeat(100_000)
        ),
        format!(
            ".func g({arguments}.reg .b32 a) {{ ret; }}\n.func f() {{ call g, ({given}7); ret; }}"
        ),
    ] {
        let kernels: String = (0..300)
            .map(|n| format!(".entry k{n}() {{ call f; ret; }}\n"))
            .collect();
        let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{function}\n{kernels}");
        let error = device.load(&text).err().expect(&text[..100]);
        assert!(error.reason.contains("more instructions"), "{error}");
    }
}

/// None of the functions takes what the calls pass, but each has to be looked at.
#[test]
fn calls_through_registers_count_the_parameters_of_every_function() {
    let arguments = ".param .b64 a,".repeat(999);
    let given = "a,".repeat(999);
    let functions: String = (0..40)
        .map(|n| format!(".func f{n}({arguments}.param .b64 a) {{ ret; }}\n"))
        .collect();
    let addresses: String = (0..40).map(|n| format!("mov.u64 %d1, f{n};")).collect();
    let calls = format!("call %d1, ({given}a), kind;\n").repeat(40);
    let body = format!("{addresses} {{ .param .b32 a; kind: .callprototype _ (); {calls} }}");
    let loaded = Device::new(1).load(&kernel(&functions, &body));
    let error = loaded.err().expect("it is refused");
    assert!(error.reason.contains("more instructions"), "{error}");
}

#[test]
fn loading_ends_with_the_session() {
    let device = Device::new(1);
    device.stop.store(true, Ordering::Relaxed);
    let error = device.load(&kernel("", "")).err().expect("it is stopped");
    assert!(error.reason.contains("the session ends"), "{error}");
}

#[test]
fn code_counts_as_memory_of_the_device() {
    let before =
        ".func f() { .reg .u32 %r;".to_owned() + &"add.u32 %r, %r, 1;".repeat(1000) + "ret; }";
    let kernels: String = (0..100)
        .map(|n| format!(".entry k{n}() {{ call f; ret; }}\n"))
        .collect();
    let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{before}\n{kernels}");
    let device = Device::new(1);
    let free = device.backend.free_bytes();
    let module = device.load(&text).unwrap();
    let taken = free - device.backend.free_bytes();
    assert_eq!(module.memory_bytes(), taken);
    assert!(
        taken > 100 * 1000 * 32,
        "{taken} bytes for 100,000 operations"
    );
    drop(module);
    assert_eq!(device.backend.free_bytes(), free);
}

/// The mediator charges a session what its modules say they take.
#[test]
fn heap_and_output_count_as_memory_of_each_module() {
    // What kernels allocate, and the records of it.
    const HEAP_BYTES: u64 = (8 + 8) << 20;
    let allocating = kernel(
        ".extern .func (.param .b64 p) malloc(.param .b64 n);",
        "{ .param .b64 n; .param .b64 p; st.param.b64 [n], 64; call (p), malloc, (n); }",
    );
    let printing = kernel(
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);",
        "{ .param .b64 f; .param .b32 r; st.param.b64 [f], %in; call (r), vprintf, (f, f); }",
    );
    let mut device = Device::new(1);
    let free = device.backend.free_bytes();
    let neither = device.load(&kernel("", "")).unwrap();
    assert!(neither.memory_bytes() < 1 << 20);
    drop(neither);

    let first = device.load(&allocating).unwrap();
    assert!(first.memory_bytes() > HEAP_BYTES);
    assert_eq!(free - device.backend.free_bytes(), first.memory_bytes());
    // The second module pays as well, although the heap is there already.
    let second = device.load(&allocating).unwrap();
    assert_eq!(second.memory_bytes(), first.memory_bytes());
    drop(first);
    let kept = free - device.backend.free_bytes();
    assert!(kept > HEAP_BYTES, "the second module uses the heap");
    drop(second);
    assert_eq!(device.backend.free_bytes(), free, "nobody uses the heap");
    let again = device.load(&allocating).unwrap();
    assert!(free - device.backend.free_bytes() > HEAP_BYTES);
    drop(again);

    let module = device.load(&printing).unwrap();
    assert!(module.memory_bytes() > 3 << 20, "text and lengths of calls");
    // What is left when no module pays any more: the last 64 KiB.
    let text = vec![u32::from_le_bytes(*b"abcd"); 2048];
    device.run_module(&module, (1, 20), &text, 1).unwrap();
    drop(module);
    assert_eq!(device.space.take_output(usize::MAX).len(), 64 << 10);
}

#[test]
fn vectors_at_the_end_of_memory_stay_within() {
    let shared = ".shared .align 32 .b8 s[64]; mov.u64 %d9, s;";
    let local = ".local .align 32 .b8 s[64]; mov.u64 %d9, s;";
    let value = "{%d1,%d2,%d3,%d4}";
    for (before, space, offset, allowed) in [
        ("mov.u64 %d9, %out;", "global", "4064", true),
        ("mov.u64 %d9, %out;", "global", "4096", false),
        ("mov.u64 %d9, %out;", "global", "-32", false),
        (shared, "shared", "32", true),
        (shared, "shared", "64", false),
        (shared, "shared", "-32", false),
        (local, "local", "32", true),
        (local, "local", "64", false),
        (local, "local", "-32", false),
        ("mov.u64 %d9, -32;", "global", "0", false),
        ("mov.u64 %d9, -32;", "shared", "0", false),
        ("mov.u64 %d9, 0x8f0000000000;", "global", "-32", false),
        ("mov.u64 %d9, 0x8f0300000000;", "global", "0", false),
    ] {
        for access in [
            format!("ld.{space}.v4.b64 {value}, [%d9+{offset}];"),
            format!("st.{space}.v4.b64 [%d9+{offset}], {value};"),
        ] {
            let mut device = Device::new(1);
            let result = device.run(&format!("{before} {access}"), (1, 32), &[], 32);
            match result {
                Ok(_) => assert!(allowed, "{before} {access}"),
                Err(fault) => {
                    assert!(!allowed, "{before} {access}: {fault}");
                    assert_eq!(fault.status, Status::MemoryFault, "{fault}");
                }
            }
        }
    }
}
