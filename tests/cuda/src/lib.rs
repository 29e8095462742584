//! Tests of Causeway's `libcuda`: they call the functions of the CUDA driver API as programs do, in
//! a process that reaches a server on the software engine, which runs in the same process.
//!
//! Each file in `tests/` is a process of its own, so that a fault in one ends no other.
//!
//! # Environment
//!
//! With `CAUSEWAY_CUDA_TESTS_GPU`, a value of `--gpu`, the server is a process of its own on that
//! back end. On a machine with a GPU, `cuda` tests the CUDA back end below the library. On one
//! without, it does so over the stand-in driver, if `LD_LIBRARY_PATH` names a folder where that is
//! called `libcuda.so.1`:
//!
//! ```text
//! cargo build -p causeway-standin-cuda
//! mkdir -p target/standin
//! ln -sf ../debug/libcauseway_standin_cuda.so target/standin/libcuda.so.1
//! LD_LIBRARY_PATH=$PWD/target/standin CAUSEWAY_CUDA_TESTS_GPU=cuda \
//!     cargo test -p causeway-cuda-tests
//! ```

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use causeway_libcuda as _;
use causeway_serve::ServeArguments;
use clap::Parser;
use cudarc::driver::sys;

/// The variable with the back end of a server beside this process.
const GPU: &str = "CAUSEWAY_CUDA_TESTS_GPU";
/// The program of such a server.
const SERVER: &str = "cuda-tests-server";

/// What the command line of `causeway serve` is parsed with.
#[derive(Parser)]
struct Command {
    #[command(flatten)]
    serve: ServeArguments,
}

unsafe extern "C" {
    fn cuInit(flags: u32) -> u32;
    fn cuDevicePrimaryCtxRetain(context: *mut sys::CUcontext, device: i32) -> u32;
    fn cuDeviceGetName(name: *mut u8, bytes: i32, device: i32) -> u32;
    fn cuCtxSetCurrent(context: sys::CUcontext) -> u32;
    fn atexit(function: extern "C" fn()) -> i32;
}

/// Starts the server and initializes the driver, once for the process, and makes the primary
/// context of the device current for the calling thread.
///
/// # Panics
/// If any of this fails.
pub fn library() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let folder = serve();
        if has_old_host() {
            // SAFETY: nothing else of this process reads or writes the environment meanwhile.
            unsafe { std::env::set_var("CAUSEWAY_CUDA_UNUSED_FEATURES", "ffff0000") };
        }
        start();
        // Connected: the socket's name is not needed any more.
        std::fs::remove_dir_all(&folder).expect("the folder is this process's");
    });
    make_current();
}

/// Does what [`library`] does. Other tests of the file that call this wait until the guard is
/// dropped: for tests that count, capture (which forbids calls of other threads), stop a ring by a
/// host function, share what the process has once, such as the list of the stand-in driver, or use
/// an address after it was freed, which another test's allocation may get.
///
/// # Panics
/// As [`library`].
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed has said so: the others go on.
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    library();
    guard
}

/// Does what [`library`] does, with devices on the software engine, of which each of `gpus` is a
/// value of `--gpu`.
///
/// # Panics
/// As [`library`].
pub fn library_on(gpus: &'static [&'static str]) {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let folder = serve_by(|socket| match std::env::var_os(GPU) {
            None => {
                let socket = socket.to_path_buf();
                std::thread::spawn(move || serve_gpus_at(&socket, gpus));
            }
            Some(back_end) => {
                let numbered = |number: usize| {
                    let mut gpu = back_end.clone();
                    gpu.push(format!(":{number}"));
                    gpu
                };
                serve_beside(socket, &(0..gpus.len()).map(numbered).collect::<Vec<_>>());
            }
        });
        start();
        std::fs::remove_dir_all(&folder).expect("the folder is this process's");
    });
    make_current();
}

/// Does what [`library`] does, but the socket stays until the process ends, for processes that the
/// test starts: they call [`library_of_child`].
///
/// # Panics
/// As [`library`].
pub fn library_for_children() {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    extern "C" fn remove() {
        if let Some(folder) = FOLDER.get() {
            // Nothing else is to be done at the end.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    FOLDER.get_or_init(|| {
        let folder = serve();
        start();
        // SAFETY: the function is there until the process ends.
        assert_eq!(unsafe { atexit(remove) }, 0);
        folder
    });
    make_current();
}

/// Initializes the driver with the server of the process that started this one, and makes the
/// primary context of the device current.
///
/// # Panics
/// As [`library`].
pub fn library_of_child() {
    start();
    make_current();
}

fn start() {
    // SAFETY: any argument is allowed.
    assert_eq!(unsafe { cuInit(0) }, 0);
}

fn make_current() {
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    // SAFETY: the context was made above.
    assert_eq!(unsafe { cuCtxSetCurrent(context) }, 0);
}

/// Returns whether this is the test process that has a host without the features which the library
/// can do without.
fn has_old_host() -> bool {
    let name = std::env::current_exe().ok();
    let name = name.as_deref().and_then(std::path::Path::file_name);
    name.is_some_and(|name| name.to_string_lossy().starts_with("old_host"))
}

/// Returns whether the server is on the software engine.
pub fn is_on_software() -> bool {
    std::env::var_os(GPU).is_none_or(|gpu| gpu.to_string_lossy().starts_with("software"))
}

/// Returns whether a GPU executes the kernels.
///
/// # Panics
/// If the device has no name.
pub fn is_on_gpu() -> bool {
    let mut name = [0_u8; 64];
    // SAFETY: stores a name of at most 64 bytes.
    assert_eq!(unsafe { cuDeviceGetName(name.as_mut_ptr(), 64, 0) }, 0);
    let name = String::from_utf8_lossy(&name);
    !is_on_software() && !name.contains("stand-in")
}

/// Serves processes at `socket`, until this process ends.
///
/// # Panics
/// If the server cannot start.
pub fn serve_at(socket: &Path) {
    serve_gpus_at(socket, &[]);
}

fn serve_gpus_at(socket: &Path, gpus: &[&str]) {
    let mut line = vec![
        OsStr::new("serve"),
        OsStr::new("--socket"),
        socket.as_os_str(),
    ];
    for gpu in gpus {
        line.extend([OsStr::new("--gpu"), OsStr::new(gpu)]);
    }
    let command = Command::parse_from(line);
    if let Err(failure) = causeway_serve::run(&command.serve) {
        panic!("the server failed: {}", failure.text());
    }
}

/// Starts the server, and initializes nothing. Returns the folder of the socket, which is to be
/// removed. A process calls this or [`library`], once.
///
/// # Panics
/// If the folder cannot be made.
pub fn serve() -> PathBuf {
    serve_by(|socket| match std::env::var_os(GPU) {
        None => serve_within(socket),
        Some(gpu) => serve_beside(socket, &[gpu]),
    })
}

/// Starts a server by `start`, and initializes nothing. Returns the folder of the socket.
fn serve_by(start: impl FnOnce(&Path)) -> PathBuf {
    let name = format!("causeway-cuda-tests-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).expect("a folder for the socket");
    let socket = folder.join("socket");
    start(&socket);
    for _ in 0..1000 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: nothing else of this process reads or writes the environment meanwhile: tests begin
    // with `library`, and the server has read what it wants.
    unsafe { std::env::set_var("CAUSEWAY_SOCKET", &socket) };
    folder
}

/// Starts a server on the software engine in this process.
fn serve_within(socket: &Path) {
    let socket = socket.to_path_buf();
    std::thread::spawn(move || serve_at(&socket));
}

/// Starts a server on the GPUs `gpus` as a process that ends with this one.
fn serve_beside(socket: &Path, gpus: &[OsString]) {
    let program = std::env::current_exe().expect("this program has a path");
    let folder = program.parent().expect("cargo's folder for programs");
    let server = folder.with_file_name(SERVER);
    let mut child = std::process::Command::new(&server)
        .arg("serve")
        .args(gpus.iter().flat_map(|gpu| [OsStr::new("--gpu"), gpu]))
        .args(["--socket".as_ref(), socket.as_os_str()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start {}: {e}", server.display()));
    // The pipe closes with this process, and the server sees that.
    std::mem::forget(child.stdin.take());
    std::thread::spawn(move || {
        let ended = child.wait();
        eprintln!("the server has ended: {ended:?}");
    });
}
