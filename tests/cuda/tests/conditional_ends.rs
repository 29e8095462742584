//! How loops of graphs end that would not end by themselves, and faults in them: each is a process
//! of its own, with a server in another one.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod conditions;
mod processes;

use std::path::Path;

use causeway_cuda_tests::serve_at;
use conditions::code::{
    cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxSetCurrent, cuCtxSynchronize, cuGraphLaunch,
};
use conditions::*;
use processes::runs;

const ILLEGAL_ADDRESS: u32 = 700;
const NOT_READY: u32 = 600;

unsafe extern "C" {
    fn cuInit(flags: u32) -> u32;
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) -> u32;
    fn cuDevicePrimaryCtxReset_v2(device: i32) -> u32;
    fn cuStreamQuery(stream: usize) -> u32;
}

#[test]
#[ignore = "a server that other tests run"]
fn server() {
    let socket = std::env::var_os("CAUSEWAY_SOCKET").unwrap();
    serve_at(Path::new(&socket));
}

fn initialize() {
    let mut context = 0;
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), 0);
    }
    assert_eq!(cuCtxSetCurrent(context), 0);
}

/// Launches a loop whose condition never changes. Returns the word that counts the rounds.
fn launch_endless(is_empty: bool) -> u64 {
    let (graph, word) = (graph(), words(1, 0));
    let handle = condition(graph, Some(1));
    let (_, bodies) = branch(graph, &[], (handle, WHILE, 1));
    if !is_empty {
        launch(bodies[0], &[], c"add", &[word, 1]);
    }
    let executable = instantiate(graph).unwrap();
    assert_eq!(cuGraphLaunch(executable, 0), 0);
    std::thread::sleep(std::time::Duration::from_millis(50));
    // SAFETY: any handle is allowed.
    assert_eq!(unsafe { cuStreamQuery(0) }, NOT_READY);
    word
}

#[test]
#[ignore = "a program that other tests run"]
fn exits_within_a_loop() {
    initialize();
    launch_endless(false);
}

#[test]
fn a_process_ends_while_a_loop_runs() {
    runs("exits_within_a_loop");
}

#[test]
#[ignore = "a program that other tests run"]
fn destroys_contexts() {
    initialize();
    // In the primary context, which the others do not take with them.
    kernel(c"add");
    for is_empty in [false, true] {
        let mut context = 0;
        assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
        launch_endless(is_empty);
        assert_eq!(cuCtxDestroy_v2(context), 0);
    }
    launch_endless(false);
    // SAFETY: any number is allowed.
    assert_eq!(unsafe { cuDevicePrimaryCtxReset_v2(0) }, 0);
    initialize();
    assert_eq!(cuCtxSynchronize(), 0);
}

#[test]
fn a_context_that_is_destroyed_ends_its_loops() {
    runs("destroys_contexts");
}

/// Launches a loop with a node that faults, behind which nothing ends the loop.
fn faults(name: &std::ffi::CStr, values: &[u64]) {
    let graph = graph();
    let handle = condition(graph, Some(1));
    let (node, bodies) = branch(graph, &[], (handle, WHILE, 1));
    launch(bodies[0], &[], name, values);
    Node::new(EMPTY).add(graph, &[node]).unwrap();
    let executable = instantiate(graph).unwrap();
    assert_eq!(cuGraphLaunch(executable, 0), 0);
    assert_eq!(cuCtxSynchronize(), ILLEGAL_ADDRESS);
    assert_eq!(cuGraphLaunch(executable, 0), ILLEGAL_ADDRESS);
    assert_eq!(cuCtxSynchronize(), ILLEGAL_ADDRESS);
}

#[test]
#[ignore = "a program that other tests run"]
fn faults_in_a_body() {
    initialize();
    faults(c"wild", &[]);
}

#[test]
fn a_fault_in_a_body_ends_the_loop_and_the_use_of_cuda() {
    runs("faults_in_a_body");
}

#[test]
#[ignore = "a program that other tests run"]
fn sets_what_is_no_condition() {
    initialize();
    faults(c"set", &[0x770, 1]);
}

#[test]
fn a_forged_handle_faults_as_a_wild_store_does() {
    runs("sets_what_is_no_condition");
}
