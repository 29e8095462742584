//! Calls before `cuInit`, in a forked child, from many threads, from signal handlers, at exit, and
//! after the server has been killed. Each is a function of this file in a process of its own.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod processes;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use causeway_cuda_tests::serve_at;
use processes::{Server, function, runs, succeeds};

const NOT_INITIALIZED: u32 = 3;
const DEVICE_UNAVAILABLE: u32 = 46;
const NO_DEVICE: u32 = 100;
const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;

unsafe extern "C" {
    fn cuInit(flags: u32) -> u32;
    fn cuDeviceGetCount(count: *mut i32) -> u32;
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) -> u32;
    fn cuCtxSetCurrent(context: usize) -> u32;
    fn cuCtxGetCurrent(context: *mut usize) -> u32;
    fn cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32) -> u32;
    fn cuCtxSynchronize() -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemAllocHost_v2(address: *mut usize, bytes: usize) -> u32;
    fn cuMemcpyHtoD_v2(to: u64, from: usize, bytes: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: usize, from: u64, bytes: usize) -> u32;
    fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: usize) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamDestroy_v2(stream: usize) -> u32;
    fn cuStreamQuery(stream: usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuModuleLoadData(module: *mut usize, image: usize) -> u32;
    fn cuModuleUnload(module: usize) -> u32;
    fn cuGraphCreate(graph: *mut usize, flags: u32) -> u32;
    fn cuLaunchHostFunc(stream: usize, function: extern "C" fn(usize), argument: usize) -> u32;
    fn nvmlInit_v2() -> u32;
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut usize) -> u32;
    fn nvmlDeviceGetUUID(device: usize, text: *mut u8, room: u32) -> u32;
    safe fn atexit(function: extern "C" fn()) -> i32;
    safe fn fork() -> i32;
    safe fn _exit(status: i32) -> !;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    safe fn raise(number: i32) -> i32;
}

/// `SIGUSR1`
const SIGNAL: i32 = 10;

#[test]
#[ignore = "a server that other tests run"]
fn server() {
    let socket = std::env::var_os("CAUSEWAY_SOCKET").unwrap();
    serve_at(Path::new(&socket));
}

/// What a process of these tests works with.
#[derive(Clone, Copy)]
struct Objects {
    stream: usize,
    memory: u64,
    module: usize,
}

const PTX: &str =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\0";

fn initialize() -> Objects {
    let (mut context, mut stream, mut module, mut memory) = (0, 0, 0, 0);
    // SAFETY: pointers are valid for the calls, and the image ends in NUL.
    let codes = unsafe {
        [
            cuInit(0),
            cuDevicePrimaryCtxRetain(&raw mut context, 0),
            cuCtxSetCurrent(context),
            cuStreamCreate(&raw mut stream, 1),
            cuMemAlloc_v2(&raw mut memory, 4096),
            cuModuleLoadData(&raw mut module, PTX.as_ptr() as usize),
        ]
    };
    assert_eq!(codes, [0; 6]);
    Objects {
        stream,
        memory,
        module,
    }
}

/// Returns what calls of all chapters answer.
fn calls(objects: Objects) -> Vec<u32> {
    let mut place = [0_u64; 8];
    let at = place.as_mut_ptr();
    // SAFETY: pointers are valid for the calls, which may be made at any time.
    unsafe {
        vec![
            cuDeviceGetCount(at.cast()),
            cuDevicePrimaryCtxRetain(at.cast(), 0),
            cuCtxGetCurrent(at.cast()),
            cuCtxCreate_v2(at.cast(), 0, 0),
            cuCtxSynchronize(),
            cuMemAlloc_v2(at, 64),
            cuMemAllocHost_v2(at.cast(), 64),
            cuMemcpyHtoD_v2(objects.memory, at as usize, 8),
            cuMemcpyDtoH_v2(at as usize, objects.memory, 8),
            cuMemsetD8Async(objects.memory, 0, 8, objects.stream),
            cuMemFree_v2(objects.memory),
            cuStreamQuery(objects.stream),
            cuStreamSynchronize(objects.stream),
            cuStreamDestroy_v2(objects.stream),
            cuModuleLoadData(at.cast(), PTX.as_ptr() as usize),
            cuModuleUnload(objects.module),
            cuGraphCreate(at.cast(), 0),
        ]
    }
}

const NOTHING: Objects = Objects {
    stream: 0,
    memory: 0x1000_0000,
    module: 0,
};

#[test]
#[ignore = "a program that other tests run"]
fn calls_too_early() {
    assert!(calls(NOTHING).iter().all(|code| *code == NOT_INITIALIZED));
    let objects = initialize();
    // SAFETY: the stream is the process's.
    assert_eq!(unsafe { cuStreamQuery(objects.stream) }, 0);
}

#[test]
fn calls_before_initialization_say_so_and_do_no_harm() {
    runs("calls_too_early");
}

#[test]
#[ignore = "a program that other tests run"]
fn forks() {
    let objects = initialize();
    let child = fork();
    if child == 0 {
        let first = calls(objects);
        // SAFETY: any argument is allowed.
        let again = unsafe { cuInit(0) };
        let mut all = first.iter().chain([&again]);
        let is_wrong = all.any(|code| *code != NOT_INITIALIZED);
        _exit(i32::from(is_wrong));
    }
    let mut status = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    let mut bytes = [7_u8; 64];
    let at = bytes.as_mut_ptr() as usize;
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuMemcpyHtoD_v2(objects.memory, at, 64), 0);
        assert_eq!(cuStreamSynchronize(objects.stream), 0);
    }
}

#[test]
fn a_forked_child_has_no_driver_and_its_parent_goes_on() {
    runs("forks");
}

/// One of many threads: right calls give right results, wrong ones their errors.
fn one_of_many(context: usize, seed: u8, shared: Objects) {
    let (mut stream, mut memory) = (0, 0);
    let (sent, mut got) = ([seed; 256], [0_u8; 256]);
    // SAFETY: pointers are valid for the calls; handles may be wrong.
    unsafe {
        assert_eq!(cuCtxSetCurrent(context), 0);
        for round in 0..20 {
            assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
            assert_eq!(cuMemAlloc_v2(&raw mut memory, 256 + round), 0);
            assert_eq!(cuMemcpyHtoD_v2(memory, sent.as_ptr() as usize, 256), 0);
            assert_eq!(cuMemsetD8Async(shared.memory, seed, 256, stream), 0);
            assert_eq!(cuMemFree_v2(memory + 1), INVALID_VALUE);
            assert_eq!(cuMemcpyDtoH_v2(got.as_mut_ptr() as usize, memory, 256), 0);
            assert_eq!(got, sent);
            assert_eq!(cuMemFree_v2(memory), 0);
            assert_eq!(cuStreamDestroy_v2(stream), 0);
            assert_eq!(cuStreamQuery(stream), INVALID_HANDLE);
        }
    }
}

#[test]
#[ignore = "a program that other tests run"]
fn calls_from_64_threads() {
    let objects = initialize();
    let mut context = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuCtxGetCurrent(&raw mut context) }, 0);
    std::thread::scope(|scope| {
        for seed in 0..64 {
            scope.spawn(move || one_of_many(context, seed, objects));
        }
    });
    assert_eq!(synchronize(), 0);
}

fn synchronize() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { cuCtxSynchronize() }
}

#[test]
fn threads_call_at_once_rightly_and_wrongly() {
    runs("calls_from_64_threads");
}

static CODE: AtomicU32 = AtomicU32::new(u32::MAX);

extern "C" fn handle(_number: i32) {
    let mut memory = 0;
    // SAFETY: the pointer is valid for the call.
    CODE.store(
        unsafe { cuMemAlloc_v2(&raw mut memory, 64) },
        Ordering::Relaxed,
    );
}

#[test]
#[ignore = "a program that other tests run"]
fn calls_from_a_handler() {
    initialize();
    let mut context = 0;
    // SAFETY: the handler stays, and the pointer is valid for the call.
    unsafe {
        signal(SIGNAL, handle);
        assert_eq!(cuCtxGetCurrent(&raw mut context), 0);
    }
    // In a thread without a context, then in one that has it.
    let in_thread = move |current| {
        let thread = std::thread::spawn(move || {
            // SAFETY: the context is the process's primary one, or none.
            assert_eq!(unsafe { cuCtxSetCurrent(current) }, 0);
            raise(SIGNAL);
            CODE.load(Ordering::Relaxed)
        });
        thread.join().unwrap()
    };
    assert_eq!(in_thread(0), 201);
    assert_eq!(in_thread(context), 0);
}

#[test]
fn a_signal_handler_calls_in_the_thread_that_it_interrupts() {
    runs("calls_from_a_handler");
}

/// Calls at the end of its thread.
struct Late(Objects);

impl Drop for Late {
    fn drop(&mut self) {
        calls(self.0);
    }
}

thread_local! {
    static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
}

static LEFT: std::sync::OnceLock<Objects> = std::sync::OnceLock::new();

extern "C" fn at_exit() {
    // What is freed already is an error, and work may be left: nothing may crash or wait forever.
    calls(*LEFT.get().unwrap());
    calls(*LEFT.get().unwrap());
}

extern "C" fn sleep_briefly(_: usize) {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
#[ignore = "a program that other tests run"]
fn calls_at_exit() {
    // Once before the library registers anything of its own, once behind it.
    assert_eq!(atexit(at_exit), 0);
    let objects = initialize();
    assert!(LEFT.set(objects).is_ok());
    assert_eq!(atexit(at_exit), 0);
    LATE.with(|late| *late.borrow_mut() = Some(Late(objects)));
    // SAFETY: the function takes any argument, and stays.
    let launched = unsafe { cuLaunchHostFunc(objects.stream, sleep_briefly, 0) };
    assert_eq!(launched, 0);
    std::thread::spawn(move || {
        LATE.with(|late| *late.borrow_mut() = Some(Late(objects)));
    });
}

#[test]
fn calls_at_exit_neither_crash_nor_hang() {
    runs("calls_at_exit");
}

#[test]
#[ignore = "a program that other tests run"]
fn goes_on_without_a_server() {
    let objects = initialize();
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    // More than the ring takes.
    let mut last = 0;
    for _ in 0..40_000 {
        // SAFETY: the arguments are the process's own.
        last = unsafe { cuMemsetD8Async(objects.memory, 0, 64, objects.stream) };
    }
    assert_eq!(last, DEVICE_UNAVAILABLE);
    let codes = calls(objects);
    let wrong = codes.iter().filter(|code| **code == 0).count();
    // The number of devices, the context, and its being current are known without the server.
    assert!(wrong <= 3, "{codes:?}");
    assert!(codes.contains(&DEVICE_UNAVAILABLE), "{codes:?}");
}

#[test]
#[ignore = "a program that other tests run"]
fn waits_without_a_server() {
    let objects = initialize();
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    // SAFETY: the arguments are the process's own.
    let ended = unsafe {
        cuMemsetD8Async(objects.memory, 0, 64, objects.stream);
        cuStreamSynchronize(objects.stream)
    };
    assert_eq!(ended, DEVICE_UNAVAILABLE);
}

/// Runs a program whose server is killed once it is ready.
fn runs_without_a_server(program: &str, waits: &str) {
    let mut server = Server::start(&format!("killed-{program}-{waits}"));
    let mut command = function(program, &server.socket());
    command.env("CAUSEWAY_CUDA_WAITS", waits);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert_ne!(
            output.read_line(&mut line).unwrap(),
            0,
            "the process has ended"
        );
    }
    server.kill();
    drop(process.stdin.take());
    succeeds(process, "a process without a server");
}

/// Returns how the UUID of the device begins.
fn uuid() -> String {
    let (mut device, mut text) = (0, [0; 96]);
    // SAFETY: pointers are valid for the calls, and the room is that of the array.
    let codes = unsafe {
        [
            nvmlInit_v2(),
            nvmlDeviceGetHandleByIndex_v2(0, &raw mut device),
            nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96),
        ]
    };
    assert_eq!(codes, [0; 3]);
    String::from_utf8_lossy(&text[..12]).into_owned()
}

/// Initializes CUDA with a value of `CUDA_VISIBLE_DEVICES`.
fn initialize_with(visible: &str) -> u32 {
    // SAFETY: no other thread of this process uses the environment meanwhile.
    unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", visible) };
    // SAFETY: any argument is allowed.
    unsafe { cuInit(0) }
}

#[test]
#[ignore = "a program that other tests run"]
fn sees_its_device() {
    let uuid = uuid();
    assert_eq!(initialize_with(&format!("{uuid},GPU-0")), 0, "{uuid}");
}

#[test]
#[ignore = "a program that other tests run"]
fn sees_no_device() {
    let uuid = uuid();
    let last = if uuid.ends_with('0') { '1' } else { '0' };
    let other = format!("{}{last},{uuid},0", &uuid[..uuid.len() - 1]);
    assert_eq!(initialize_with(&other), NO_DEVICE, "{other}");
}

#[test]
fn the_list_of_visible_devices_names_the_device_by_its_uuid() {
    runs("sees_its_device");
    runs("sees_no_device");
}

#[test]
fn every_call_answers_once_the_server_is_killed() {
    runs_without_a_server("goes_on_without_a_server", "auto");
}

#[test]
fn waits_end_once_the_server_is_killed() {
    for waits in ["spin", "sleep"] {
        runs_without_a_server("waits_without_a_server", waits);
    }
}
