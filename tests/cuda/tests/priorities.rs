//! Streams with priorities, which have rings whose work has the priority.
//!
//! The software engine has no priorities: there, only the answers are tested.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use causeway_cuda_tests::{alone, is_on_gpu, is_on_software};

const NON_BLOCKING: u32 = 1;
const NOT_READY: u32 = 600;
/// `CU_STREAM_ATTRIBUTE_PRIORITY`
const PRIORITY: u32 = 8;
/// Blocks of the long work: many times as many as a GPU has room for.
const BLOCKS: u32 = 200_000;

/// Rounds of a block that takes some milliseconds on a GPU.
const ROUNDS: u32 = 1_000_000;

/// `count` counts its blocks, each of which takes some rounds. What it counts depends on what it
/// computes, so that no compiler takes the rounds away.
const KERNELS: &CStr = c"\
.version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 to, .param .u32 rounds)
{
    .reg .u64 %to;
    .reg .u32 %rounds, %thread, %word, %one;
    .reg .pred %is_end, %is_other, %is_odd;
    ld.param.u64 %to, [to];
    ld.param.u32 %rounds, [rounds];
    mov.u32 %word, 1;
again:
    setp.eq.u32 %is_end, %rounds, 0;
    @%is_end bra done;
    sub.u32 %rounds, %rounds, 1;
    mad.lo.u32 %word, %word, %word, %rounds;
    bra again;
done:
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %is_other, %thread, 0;
    @%is_other ret;
    setp.eq.u32 %is_odd, %word, 0x6b8e9d17;
    selp.u32 %one, 2, 1, %is_odd;
    atom.global.add.u32 %word, [%to], %one;
    ret;
}
";

unsafe extern "C" {
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> u32;
    fn cuStreamCreateWithPriority(stream: *mut usize, flags: u32, priority: i32) -> u32;
    fn cuStreamGetPriority(stream: usize, priority: *mut i32) -> u32;
    fn cuStreamSetAttribute(stream: usize, attribute: u32, value: *const [i32; 16]) -> u32;
    fn cuStreamDestroy_v2(stream: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamQuery(stream: usize) -> u32;
    fn cuModuleLoadData(module: *mut usize, image: *const i8) -> u32;
    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const i8) -> u32;
    fn cuMemHostAlloc(address: *mut *mut AtomicU32, bytes: usize, flags: u32) -> u32;
    fn cuLaunchKernel(
        function: usize,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: usize,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> u32;
}

/// Calls functions whose pointers are valid for the call, and asserts that they succeed.
macro_rules! good {
    ($($call:expr;)*) => {
        // SAFETY: as above.
        $(assert_eq!(unsafe { $call }, 0, stringify!($call));)*
    };
}

fn stream(flags: u32, priority: i32) -> usize {
    let mut stream = 0;
    good!(cuStreamCreateWithPriority(&raw mut stream, flags, priority););
    stream
}

fn priority(stream: usize) -> i32 {
    let mut priority = 9;
    good!(cuStreamGetPriority(stream, &raw mut priority););
    priority
}

/// The kernel and the word in which it counts.
struct Counter {
    function: usize,
    word: &'static AtomicU32,
}

impl Counter {
    fn new() -> Self {
        let (mut module, mut function, mut word) = (0, 0, std::ptr::null_mut());
        good! {
            cuModuleLoadData(&raw mut module, KERNELS.as_ptr());
            cuModuleGetFunction(&raw mut function, module, c"count".as_ptr());
            cuMemHostAlloc(&raw mut word, 64, 0);
        }
        // SAFETY: the memory is not freed, and begins with zeros.
        let word = unsafe { &*word };
        Self { function, word }
    }

    fn launch(&self, stream: usize, blocks: u32, mut rounds: u32) {
        let mut word = std::ptr::from_ref(self.word) as u64;
        let mut parameters = [(&raw mut word).cast(), (&raw mut rounds).cast::<c_void>()];
        let (to, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
        good!(cuLaunchKernel(self.function, blocks, 1, 1, 32, 1, 1, 0, stream, to, none););
    }

    fn count(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }
}

#[test]
fn a_stream_has_a_priority_within_the_range() {
    let _alone = alone();
    let (mut least, mut greatest) = (9, 9);
    good!(cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest););
    assert_eq!((least, greatest), (0, -5), "that of all GPUs since Volta");
    for (wanted, given) in [(0, 0), (-2, -2), (-5, -5), (-6, -5), (3, 0)] {
        // Non-blocking ones would take the rings of the other tests.
        let stream = stream(0, wanted);
        assert_eq!(priority(stream), given, "{wanted}");
        good!(cuStreamDestroy_v2(stream););
    }
}

/// Returns the priorities of the stand-in's streams that have had kernels.
fn priorities() -> Option<Vec<i32>> {
    let folder = std::env::var_os("CAUSEWAY_STANDIN_STATE").map(PathBuf::from);
    let list = Path::new(&folder?).join("priorities");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    Some(list.lines().map(|line| line.parse().unwrap()).collect())
}

#[test]
fn work_of_streams_is_on_queues_of_their_priorities() {
    let _alone = alone();
    if is_on_software() || is_on_gpu() {
        eprintln!("skipped: only the stand-in driver tells which priorities its streams have");
        return;
    }
    let Some(before) = priorities() else {
        eprintln!("skipped: CAUSEWAY_STANDIN_STATE names no folder");
        return;
    };
    let counter = Counter::new();
    let streams = [
        stream(NON_BLOCKING, 0),
        stream(NON_BLOCKING, -1),
        stream(NON_BLOCKING, -9),
        stream(0, -3),
    ];
    let late = [-4; 16];
    good!(cuStreamSetAttribute(streams[0], PRIORITY, &raw const late););
    assert_eq!(priority(streams[0]), -4);
    for stream in streams {
        counter.launch(stream, 1, 0);
        good!(cuStreamSynchronize(stream););
    }
    assert_eq!(counter.count(), 4);
    // The last stream waits for the default stream, whose ring it shares.
    assert_eq!(priorities().unwrap()[before.len()..], [0, -1, -5, 0]);
}

#[test]
fn urgent_work_overtakes_pending_blocks() {
    let _alone = alone();
    if !is_on_gpu() {
        eprintln!("skipped: only a GPU begins blocks of urgent kernels first");
        return;
    }
    let (flood, urgent) = (Counter::new(), Counter::new());
    let (slow, fast) = (stream(NON_BLOCKING, 0), stream(NON_BLOCKING, -5));
    // The first launch has the code loaded.
    urgent.launch(fast, 1, 0);
    good!(cuStreamSynchronize(fast););
    flood.launch(slow, BLOCKS, ROUNDS);
    let begun = Instant::now();
    while flood.count() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never begins");
        std::hint::spin_loop();
    }
    urgent.launch(fast, 1, 0);
    good!(cuStreamSynchronize(fast););
    let done = flood.count();
    // SAFETY: any handle is allowed.
    assert_eq!(unsafe { cuStreamQuery(slow) }, NOT_READY);
    assert!(done < BLOCKS / 2, "{done} of {BLOCKS} blocks came first");
    good!(cuStreamSynchronize(slow););
    assert_eq!(flood.count(), BLOCKS);
}
