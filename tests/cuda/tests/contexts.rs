//! Contexts: current per thread, a stack of them, the primary one, and wrong handles.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use causeway_cuda_tests::library;

const INVALID_CONTEXT: u32 = 201;
const INVALID_DEVICE: u32 = 101;
const CONTEXT_IS_DESTROYED: u32 = 709;

unsafe extern "C" {
    fn cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32) -> u32;
    fn cuCtxDestroy_v2(context: usize) -> u32;
    fn cuCtxAttach(context: *mut usize, flags: u32) -> u32;
    fn cuCtxDetach(context: usize) -> u32;
    fn cuCtxGetCurrent(context: *mut usize) -> u32;
    fn cuCtxSetCurrent(context: usize) -> u32;
    fn cuCtxSynchronize() -> u32;
    fn cuCtxGetDevice(device: *mut i32) -> u32;
}

/// Bytes that this process has allocated and not freed.
static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn current() -> usize {
    let mut context = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuCtxGetCurrent(&raw mut context) }, 0);
    context
}

#[test]
fn a_context_is_current_for_the_thread_that_made_it_and_wrong_ones_are_refused() {
    library();
    let primary = current();
    let mut own = 0;
    // SAFETY: pointers are valid for the calls; handles may be wrong.
    unsafe {
        assert_eq!(cuCtxCreate_v2(&raw mut own, 0, 7), INVALID_DEVICE);
        assert_eq!(cuCtxCreate_v2(&raw mut own, 0, 0), 0);
        assert_eq!(current(), own);
        assert_eq!(std::thread::spawn(current).join().unwrap(), 0);
        assert_eq!(cuCtxSetCurrent(own + 1), INVALID_CONTEXT);
        assert_eq!(cuCtxSynchronize(), 0);
        let other = std::thread::spawn(move || {
            assert_eq!(cuCtxSetCurrent(own), 0);
            own
        });
        assert_eq!(other.join().unwrap(), own);
        assert_eq!(cuCtxDestroy_v2(own), 0);
        assert_eq!(current(), primary);
        assert_eq!(cuCtxDestroy_v2(own), INVALID_CONTEXT);
        assert_eq!(
            cuCtxDestroy_v2(primary),
            INVALID_CONTEXT,
            "it is released instead"
        );
    }
}

#[test]
fn a_context_that_another_thread_has_destroyed_says_so() {
    library();
    let mut own = 0;
    let mut device = -1;
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuCtxCreate_v2(&raw mut own, 0, 0), 0);
        let destroyed = std::thread::spawn(move || cuCtxDestroy_v2(own));
        assert_eq!(destroyed.join().unwrap(), 0);
        assert_eq!(cuCtxGetDevice(&raw mut device), CONTEXT_IS_DESTROYED);
    }
}

#[test]
fn the_last_user_who_detaches_ends_a_context() {
    library();
    let primary = current();
    let (mut own, mut again) = (0, 0);
    // SAFETY: pointers are valid for the calls; handles may be wrong.
    unsafe {
        assert_eq!(cuCtxDetach(primary), INVALID_CONTEXT, "it is released");
        assert_eq!(cuCtxCreate_v2(&raw mut own, 0, 0), 0);
        assert_eq!(cuCtxAttach(&raw mut again, 0), 0);
        assert_eq!(again, own);
        let elsewhere = std::thread::spawn(move || cuCtxDetach(own)).join();
        assert_eq!(
            elsewhere.unwrap(),
            INVALID_CONTEXT,
            "it is not current there"
        );
        assert_eq!(cuCtxDetach(own), 0);
        assert_eq!(current(), own);
        assert_eq!(cuCtxDetach(own), 0);
        assert_eq!(current(), primary);
        assert_eq!(cuCtxDetach(own), INVALID_CONTEXT);
    }
}

#[test]
fn contexts_that_end_leave_no_memory() {
    const ROUNDS: isize = 2000;
    library();
    let rounds = |count: isize| {
        for _ in 0..count {
            let (mut own, mut below) = (0, 0);
            // SAFETY: pointers are valid for the calls.
            unsafe {
                assert_eq!(cuCtxCreate_v2(&raw mut below, 0, 0), 0);
                assert_eq!(cuCtxCreate_v2(&raw mut own, 0, 0), 0);
                // The current one, and one that stays on the stack of the thread.
                assert_eq!(cuCtxDestroy_v2(below), 0);
                assert_eq!(cuCtxDestroy_v2(own), 0);
                assert_eq!(cuCtxSetCurrent(0), 0);
            }
        }
    };
    rounds(ROUNDS);
    let before = ALLOCATED.load(Ordering::Relaxed);
    rounds(ROUNDS);
    let more = ALLOCATED.load(Ordering::Relaxed) - before;
    // Other tests allocate meanwhile.
    assert!(
        more < 50 * ROUNDS,
        "{more} bytes are left of {ROUNDS} rounds"
    );
}

#[test]
fn a_thread_that_ends_leaves_its_contexts_to_others() {
    library();
    let made = std::thread::spawn(|| {
        let mut own = 0;
        // SAFETY: the pointer is valid for the call.
        assert_eq!(unsafe { cuCtxCreate_v2(&raw mut own, 0, 0) }, 0);
        own
    });
    let own = made.join().unwrap();
    // SAFETY: handles may be wrong.
    unsafe {
        assert_eq!(cuCtxSetCurrent(own), 0);
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(cuCtxDestroy_v2(own), 0);
    }
}
