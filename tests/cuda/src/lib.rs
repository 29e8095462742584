//! Tests of Causeway's `libcuda`: they call the functions of the CUDA driver API as programs do, in
//! a process that reaches a server on the software engine, which runs in the same process.
//!
//! Each file in `tests/` is a process of its own, so that a fault in one ends no other.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::sync::OnceLock;
use std::time::Duration;

use causeway_libcuda as _;
use causeway_serve::ServeArguments;
use clap::Parser;
use cudarc::driver::sys;

/// What the command line of `causeway serve` is parsed with.
#[derive(Parser)]
struct Command {
    #[command(flatten)]
    serve: ServeArguments,
}

unsafe extern "C" {
    fn cuInit(flags: u32) -> u32;
    fn cuDevicePrimaryCtxRetain(context: *mut sys::CUcontext, device: i32) -> u32;
    fn cuCtxSetCurrent(context: sys::CUcontext) -> u32;
}

/// Starts the server and initializes the driver, once for the process, and makes the primary
/// context of the device current for the calling thread.
///
/// # Panics
/// If any of this fails.
pub fn library() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(start);
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

fn start() {
    let name = format!("causeway-cuda-tests-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).expect("a folder for the socket");
    let socket = folder.join("socket");
    let line = ["serve".as_ref(), "--socket".as_ref(), socket.as_os_str()];
    let command = Command::parse_from(line);
    std::thread::spawn(move || {
        if let Err(failure) = causeway_serve::run(&command.serve) {
            panic!("the server failed: {}", failure.text());
        }
    });
    for _ in 0..1000 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: nothing else of this process reads or writes the environment meanwhile: tests begin
    // with `library`, and the server has read what it wants.
    unsafe { std::env::set_var("CAUSEWAY_SOCKET", &socket) };
    if has_old_host() {
        // SAFETY: as above.
        unsafe { std::env::set_var("CAUSEWAY_CUDA_UNUSED_FEATURES", "ffff0000") };
    }
    // SAFETY: any argument is allowed.
    assert_eq!(unsafe { cuInit(0) }, 0);
    // Connected: the socket's name is not needed any more.
    std::fs::remove_dir_all(&folder).expect("the folder is this process's");
}
