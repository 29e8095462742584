//! Blocks that wait for each other, and memory that kernels allocate.

mod support;

use causeway_mediator::backend::{Fault, Launch, LaunchOptions, LaunchShape, Work};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use causeway_protocol::packet::launch_flags;
use support::{Device, kernel};

/// Declares the functions of CUDA's device run-time library that wait for the grid.
const LIBRARY: &str = ".extern .func (.param .b64 h) cudaCGGetIntrinsicHandle(.param .b32 s);\n\
    .extern .func (.param .b32 e) cudaCGSynchronize(.param .b64 h, .param .b32 f);";

/// Waits for all blocks through the library.
const CALL: &str = "{ .param .b32 s; .param .b64 h; .param .b32 f; .param .b32 e;\n\
    st.param.b32 [s], 1; call (h), cudaCGGetIntrinsicHandle, (s); st.param.b32 [f], 0;\n\
    call (e), cudaCGSynchronize, (h, f); ld.param.b32 %r59, [e]; }";

/// Waits for all blocks as compilers inline it: the first block adds what makes the top bit change
/// once all have come.
const INLINE: &str = "{ .reg .pred %q<3>; .reg .b32 %s<8>; .reg .b64 %w;\n\
    mov.u32 %s1, %envreg2; mov.u32 %s2, %envreg1; mov.b64 %w, {%s1, %s2};\n\
    setp.eq.u64 %q1, %w, 0; @%q1 trap; barrier.sync 0;\n\
    setp.ne.u32 %q1, %tid, 0; @%q1 bra met;\n\
    mov.u32 %s3, %ctaid.x; mov.u32 %s4, %nctaid.x; sub.u32 %s4, 0x80000001, %s4;\n\
    setp.eq.u32 %q2, %s3, 0; selp.b32 %s5, %s4, 1, %q2;\n\
    atom.add.release.gpu.u32 %s6, [%w+4], %s5;\n\
    wait: ld.acquire.gpu.u32 %s7, [%w+4]; xor.b32 %s7, %s7, %s6;\n\
    setp.gt.s32 %q2, %s7, -1; @%q2 bra wait;\n\
    met: barrier.sync 0; }";

/// Each thread writes its number, waits, reads that of the thread half a grid away, waits, and adds
/// that to its own; `rounds` times.
fn exchange(wait: &str, threads: u32, rounds: u32) -> String {
    // The labels of an inlined wait belong to its braces.
    format!(
        "mov.u32 %r40, 0; mov.u32 %r41, %t;\n\
         mov.u32 %r42, {threads}; add.u32 %r43, %t, {}; rem.u32 %r43, %r43, %r42;\n\
         mul.wide.u32 %d10, %r43, 4; add.u64 %d10, %out, %d10;\n\
         again: st.global.u32 [%o], %r41;\n{wait}\nld.global.u32 %r44, [%d10];\n{wait}\n\
         add.u32 %r41, %r41, %r44; add.u32 %r40, %r40, 1; setp.lt.u32 %p9, %r40, {rounds};\n\
         @%p9 bra again; st.global.u32 [%o], %r41;",
        threads / 2
    )
}

#[test]
fn all_blocks_of_a_grid_meet() {
    let (blocks, threads, rounds) = (24, 96, 5);
    let total = blocks * threads;
    for (before, wait) in [(LIBRARY, CALL), ("", INLINE)] {
        let mut device = Device::new(2);
        let module = device
            .load(&kernel(before, &exchange(wait, total, rounds)))
            .unwrap();
        // Twice: every launch begins with a workspace of its own.
        for _ in 0..2 {
            let found = device
                .run_module(&module, (blocks, threads), &[], total as usize)
                .unwrap();
            let mut want: Vec<u32> = (0..total).collect();
            for _ in 0..rounds {
                let before = want.clone();
                for (index, value) in want.iter_mut().enumerate() {
                    let other = (index + total as usize / 2) % total as usize;
                    *value = value.wrapping_add(before[other]);
                }
            }
            assert_eq!(found, want);
        }
    }
}

/// Waits for all blocks by a counter of its own, as any kernel may that is launched cooperatively.
const OWN: &str = "setp.ne.u32 %p1, %tid, 0; @%p1 bra met;\n\
    atom.add.release.gpu.u32 %r1, [%out], 1; mov.u32 %r2, %nctaid.x;\n\
    wait: ld.acquire.gpu.u32 %r3, [%out]; setp.lt.u32 %p2, %r3, %r2; @%p2 bra wait;\n\
    met: barrier.sync 0;";

fn cooperative(device: &mut Device, body: &str, blocks: u32) -> Result<Vec<u32>, Fault> {
    let module = device.load(&kernel("", body)).unwrap();
    let launched = module.kernel("k").unwrap();
    let output = device.buffer(4096, Access::ReadWrite);
    let parameters = [output.va.to_le_bytes(), output.va.to_le_bytes()].concat();
    let shape = LaunchShape {
        grid: [blocks, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
    };
    let options = LaunchOptions {
        flags: launch_flags::COOPERATIVE,
        cluster: [1; 3],
    };
    let launch = Launch::new(&launched, shape, &parameters)?.with_options(options)?;
    device.queue.submit(Work::Launch(launch))?;
    Ok(output.words(1))
}

#[test]
fn blocks_of_a_cooperative_launch_meet_in_their_own_way() {
    // One core, and more blocks than it has threads: plain, the first would wait for ever.
    let mut device = Device::new(1);
    assert_eq!(cooperative(&mut device, OWN, 100), Ok(vec![100]));
    assert_eq!(cooperative(&mut device, INLINE, 100).map(|_| ()), Ok(()));
    let fault = cooperative(&mut device, OWN, 1 << 16).unwrap_err();
    assert_eq!((fault.status, fault.cuda_result), (Status::BadLaunch, 720));
}

#[test]
fn kernels_that_require_larger_clusters_are_not_launched() {
    let device = Device::new(1);
    let shape = LaunchShape {
        grid: [4, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
    };
    for (cluster, is_launched) in [("1", true), ("2", false), ("1, 1, 4", false)] {
        let text = kernel("", "").replacen(")", &format!(") .reqnctapercluster {cluster}"), 1);
        let module = device.load(&text).unwrap();
        let launched = module.kernel("k").unwrap();
        let launch = Launch::new(&launched, shape, &[0; 16]).map(|_| ());
        let status = launch.map_err(|fault| fault.status);
        let wanted = if is_launched {
            Ok(())
        } else {
            Err(Status::BadLaunch)
        };
        assert_eq!(status, wanted, "{cluster}");
    }
    let none = kernel("", "").replacen(")", ") .reqnctapercluster 2, 0", 1);
    assert!(device.load(&none).is_err());
}

#[test]
fn clusters_have_one_block() {
    let device = Device::new(1);
    let module = device.load(&kernel("", "")).unwrap();
    let launched = module.kernel("k").unwrap();
    let launch = |grid: [u32; 3], cluster: [u32; 3]| {
        let shape = LaunchShape {
            grid,
            block: [32, 1, 1],
            shared_bytes: 0,
        };
        let options = LaunchOptions { flags: 0, cluster };
        let checked = Launch::new(&launched, shape, &[0; 16])?.with_options(options);
        checked.map(|launch| launch.options())
    };
    for cluster in [[0; 3], [1; 3]] {
        assert_eq!(launch([4, 2, 1], cluster).unwrap().cluster, cluster);
    }
    for cluster in [[2, 1, 1], [1, 0, 1], [3, 1, 1], [u32::MAX; 3]] {
        let fault = launch([4, 2, 1], cluster).unwrap_err();
        assert_eq!((fault.status, fault.cuda_result), (Status::BadLaunch, 912));
    }
}

#[test]
fn blocks_that_are_too_many_trap_as_in_cuda() {
    let mut device = Device::new(2);
    let module = device.load(&kernel("", INLINE)).unwrap();
    let fault = device
        .run_module(&module, (40_000, 32), &[], 1)
        .unwrap_err();
    assert!(fault.text.contains("trap"), "{fault}");
}

#[test]
fn a_wait_that_not_all_blocks_reach_can_be_stopped() {
    let body = format!("mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 3; @%p1 exit; {INLINE}");
    let mut device = Device::new(2);
    let module = device.load(&kernel("", &body)).unwrap();
    let stop = std::sync::Arc::clone(&device.stop);
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    device.run_module(&module, (8, 64), &[], 512).unwrap();
    stopper.join().unwrap();
}

#[test]
fn a_fault_of_one_block_ends_all() {
    let body = format!(
        "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 3; @%p1 st.global.u32 [24], %r1; {INLINE}"
    );
    let mut device = Device::new(2);
    let module = device.load(&kernel("", &body)).unwrap();
    let fault = device.run_module(&module, (8, 64), &[], 512).unwrap_err();
    assert!(fault.text.contains("block (3,0,0)"), "{fault}");
}

/// The fault stops the launch in the first turn of the first block.
#[test]
fn a_launch_that_is_stopped_gives_no_block_another_turn() {
    let blocks = 1000;
    let body = format!(
        "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [24], %r1;\n\
         mov.u32 %r2, 1; st.global.u32 [%o], %r2; {INLINE}"
    );
    let mut device = Device::new(2);
    let module = device.load(&kernel("", &body)).unwrap();
    let out = device.buffer(4 * u64::from(blocks), Access::ReadWrite);
    let given = [out.va.to_le_bytes(), out.va.to_le_bytes()].concat();
    let shape = ([blocks, 1, 1], [1, 1, 1], 0);
    let fault = device.launch(&module, "k", shape, &given).unwrap_err();
    assert!(fault.text.contains("block (0,0,0)"), "{fault}");
    assert_eq!(out.words(blocks as usize).iter().sum::<u32>(), 0);
}

/// Registers of these blocks take 28 MiB. What else the back end keeps for them takes four times as
/// much.
#[test]
fn what_blocks_take_beside_registers_counts_too() {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {{\n\
         .reg .b32 %tid; mov.u32 %tid, %tid.x; {INLINE} ret; }}"
    );
    let mut device = Device::new(1);
    let module = device.load(&text).unwrap();
    let mut run = |blocks| device.launch(&module, "k", ([blocks, 1, 1], [1, 1, 1], 0), &[]);
    run(100).unwrap();
    let fault = run(25_000).unwrap_err();
    assert!(fault.text.contains("trap"), "{fault}");
}

#[test]
fn the_workspace_is_sixteen_bytes() {
    let body = "mov.u32 %r1, %envreg2; mov.u32 %r2, %envreg1; mov.b64 %d1, {%r1, %r2};\n\
                st.global.u64 [%d1+8], %d1; st.global.u64 [%d1+16], %d1;";
    let fault = Device::new(1).run(body, (1, 1), &[], 1).unwrap_err();
    assert!(
        fault.text.contains("store of 8 bytes at 0x8f0300000010"),
        "{fault}"
    );
    // Other kernels do not have it.
    let body = "mov.u64 %d1, 0x8f0300000000; ld.global.u32 %r1, [%d1];";
    let fault = Device::new(1).run(body, (1, 1), &[], 1).unwrap_err();
    assert!(
        fault.text.contains("load of 4 bytes at 0x8f0300000000"),
        "{fault}"
    );
}

const HEAP: &str = ".extern .func (.param .b64 p) malloc(.param .b64 n);\n\
    .extern .func free(.param .b64 p);";

#[test]
fn kernels_allocate_memory_and_give_it_back() {
    // Each thread keeps its number in memory of its own, and says where; odd ones free it.
    let first = "{ .param .b64 n; .param .b64 p; st.param.b64 [n], 24; call (p), malloc, (n);\n\
        ld.param.b64 %d1, [p]; st.global.u32 [%d1+20], %t; add.u64 %d2, %o, %off;\n\
        st.global.u64 [%d2], %d1; and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra kept;\n\
        st.param.b64 [p], %d1; call free, (p); kept: }";
    let second = "add.u64 %d2, %i, %off; ld.global.u64 %d1, [%d2]; ld.global.u32 %r1, [%d1+20];\n\
        st.global.u32 [%o], %r1;";
    let mut device = Device::new(2);
    let module = device.load(&kernel(HEAP, first)).unwrap();
    let found = device.run_module(&module, (4, 32), &[], 256).unwrap();
    let address = |t: usize| u64::from(found[2 * t]) | u64::from(found[2 * t + 1]) << 32;
    let mut kept: Vec<u64> = (0..128).step_by(2).map(address).collect();
    kept.sort_unstable();
    assert!(kept.windows(2).all(|w| w[1] - w[0] >= 32), "{kept:x?}");
    // Another kernel of the address space finds what has been kept.
    let even: Vec<u32> = found.chunks(4).flat_map(|c| [c[0], c[1]]).collect();
    let module = device.load(&kernel("", second)).unwrap();
    let found = device.run_module(&module, (1, 64), &even, 64).unwrap();
    assert_eq!(found, (0..128).step_by(2).collect::<Vec<u32>>());
}

#[test]
fn a_full_heap_gives_null() {
    let body = "{ .param .b64 n; .param .b64 p; st.param.b64 [n], 3000000; \
        call (p), malloc, (n); ld.param.b64 %d1, [p]; setp.ne.u64 %p1, %d1, 0;\n\
        selp.u32 %r1, 1, 0, %p1; st.global.u32 [%o], %r1; mov.u64 %d1, 5; call free, (%d1); }";
    let mut device = Device::new(1);
    let module = device.load(&kernel(HEAP, body)).unwrap();
    let found = device.run_module(&module, (1, 8), &[], 8).unwrap();
    assert_eq!(found, [1, 1, 0, 0, 0, 0, 0, 0]);
}
