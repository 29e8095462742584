//! Launches with handles that were valid for the launch before: the library remembers what launches
//! have used last.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::c_void;
use std::ptr::null;

use causeway_cuda_tests::library as start;
use code::*;

unsafe extern "C" {
    safe fn cuStreamDestroy_v2(stream: usize) -> u32;
}

/// Stores its parameter.
const STORE: &str = "
.visible .entry store(.param .u64 to, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [value];
    atom.global.add.u32 %r1, [%d1], %r1;
    ret;
}";

fn stream() -> usize {
    let mut stream = 0;
    assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
    stream
}

fn zeroed() -> u64 {
    let mut address = 0;
    assert_eq!(cuMemAlloc_v2(&raw mut address, 4), 0);
    let zero = 0_u32;
    assert_eq!(cuMemcpyHtoD_v2(address, (&raw const zero).cast(), 4), 0);
    address
}

fn word(address: u64) -> u32 {
    let mut word = 0_u32;
    assert_eq!(cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4), 0);
    word
}

/// Adds `value` to the word at `to`, in a stream.
fn add(function: usize, stream: usize, to: u64, value: u32) -> u32 {
    let pointers: [*const c_void; 2] = [(&raw const to).cast(), (&raw const value).cast()];
    let (list, none) = (pointers.as_ptr(), null());
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none)
}

#[test]
fn a_destroyed_stream_takes_no_launch_and_its_work_goes_on() {
    start();
    let (module, to) = (module(STORE), zeroed());
    let store = function(module, c"store");
    let (first, second) = (stream(), stream());
    assert_eq!(add(store, first, to, 1), 0);
    assert_eq!(add(store, second, to, 10), 0);
    assert_eq!(cuStreamDestroy_v2(first), 0);
    assert_eq!(add(store, first, to, 100), INVALID_HANDLE);
    assert_eq!(add(store, second, to, 10), 0);
    for forged in [first + 1, second + 1, second ^ (1 << 40), usize::MAX] {
        assert_eq!(add(store, forged, to, 100), INVALID_HANDLE);
    }
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(word(to), 21);
    assert_eq!(cuStreamDestroy_v2(second), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn an_unloaded_function_is_launched_no_more() {
    start();
    let to = zeroed();
    let (gone, kept) = (module(STORE), module(STORE));
    let (old, other) = (function(gone, c"store"), function(kept, c"store"));
    assert_eq!(add(old, 0, to, 1), 0);
    assert_eq!(add(other, 0, to, 10), 0);
    assert_eq!(cuModuleUnload(gone), 0);
    assert_eq!(add(old, 0, to, 100), INVALID_HANDLE);
    // A new function in the old one's place has another handle.
    let again = module(STORE);
    let new = function(again, c"store");
    assert_ne!(new, old);
    assert_eq!(add(new, 0, to, 1000), 0);
    assert_eq!(add(old, 0, to, 100), INVALID_HANDLE);
    for forged in [new + 1, other ^ (1 << 45), new | (1 << 60), 0] {
        assert_eq!(add(forged, 0, to, 100), INVALID_HANDLE, "{forged:#x}");
    }
    assert_eq!(word(to), 1011);
    assert_eq!(cuModuleUnload(kept), 0);
    assert_eq!(cuModuleUnload(again), 0);
}

#[test]
fn many_functions_and_streams_in_turn_are_all_found() {
    start();
    let to = zeroed();
    // More than the library remembers.
    let modules: Vec<usize> = (0..80).map(|_| module(STORE)).collect();
    let stores: Vec<usize> = modules.iter().map(|m| function(*m, c"store")).collect();
    let streams: Vec<usize> = (0..40).map(|_| stream()).collect();
    for round in 0..3 {
        for (index, store) in stores.iter().enumerate() {
            let stream = streams[(index + round) % streams.len()];
            assert_eq!(add(*store, stream, to, 1), 0);
        }
    }
    streams
        .iter()
        .for_each(|s| assert_eq!(cuStreamSynchronize(*s), 0));
    assert_eq!(word(to), 240);
    modules
        .iter()
        .for_each(|m| assert_eq!(cuModuleUnload(*m), 0));
    for store in stores {
        assert_eq!(add(store, streams[0], to, 1), INVALID_HANDLE);
    }
    streams
        .iter()
        .for_each(|s| assert_eq!(cuStreamDestroy_v2(*s), 0));
}

#[test]
fn threads_that_launch_while_others_destroy_get_results_and_harm_nothing() {
    start();
    let to = zeroed();
    let kept = module(STORE);
    let store = function(kept, c"store");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                start();
                for _ in 0..100 {
                    let own = stream();
                    assert_eq!(add(store, own, to, 1), 0);
                    assert_eq!(cuStreamDestroy_v2(own), 0);
                    assert_eq!(add(store, own, to, 1), INVALID_HANDLE);
                }
            });
        }
        scope.spawn(move || {
            start();
            for _ in 0..20 {
                let module = module(STORE);
                let own = function(module, c"store");
                assert_eq!(add(own, 0, to, 1), 0);
                assert_eq!(cuModuleUnload(module), 0);
                assert_eq!(add(own, 0, to, 1), INVALID_HANDLE);
            }
        });
    });
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(word(to), 220);
    assert_eq!(cuModuleUnload(kept), 0);
}
