//! Where the library is that cargo has made of this crate.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What cargo calls the library.
const LIBRARY: &str = "libcauseway_standin_cuda.so";

/// The folder to put on `LD_LIBRARY_PATH` so that a program finds the stand-in as `libcuda.so.1`.
///
/// The library lies beside the programs that depend on this crate: cargo makes it together with
/// what they link. This makes a folder there with the names that loaders look for.
///
/// # Panics
/// If the running program does not lie in a folder that cargo has built into.
pub fn directory() -> PathBuf {
    let beside = beside();
    let library = library().unwrap_or_else(|| panic!("no {LIBRARY} in {}", beside.display()));
    let folder = beside.join("standin-cuda");
    std::fs::create_dir_all(&folder).expect("the build folder can be written");
    for name in ["libcuda.so.1", "libcuda.so"] {
        link(&library, &folder, name);
    }
    folder
}

/// The library, if it lies where cargo puts it. It does not where a test program was carried to
/// another machine.
pub fn library() -> Option<PathBuf> {
    let beside = beside();
    let folders = [beside.clone(), beside.join("deps")];
    let mut candidates = folders.iter().map(|folder| folder.join(LIBRARY));
    candidates.find(|library| library.is_file())
}

/// The folder of the running program.
fn beside() -> PathBuf {
    let mut program = std::env::current_exe().expect("the running program has a path");
    program.pop();
    program
}

/// Makes a link in one step, because other tests may be using the one that is there.
fn link(library: &Path, folder: &Path, name: &str) {
    let path = folder.join(name);
    if std::fs::read_link(&path).is_ok_and(|target| target == library) {
        return;
    }
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let fresh = folder.join(format!("{name}.{}.{number}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(library, &fresh)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
}

/// Loads the stand-in into this process, so that whoever loads `libcuda.so.1` here afterwards gets
/// it.
///
/// # Panics
/// If the library cannot be loaded.
pub fn preload() {
    let path = directory().join("libcuda.so.1");
    let path = CString::new(path.as_os_str().as_bytes()).expect("paths have no NUL");
    // SAFETY: the library's initialization does nothing that would not be sound.
    let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!loaded.is_null(), "cannot load {path:?}");
}
