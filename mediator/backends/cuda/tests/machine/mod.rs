//! Which driver tests use: the stand-in that cargo has built beside them, or the system's, on a
//! machine with a GPU.
//!
//! | variable | meaning |
//! |---|---|
//! | `CAUSEWAY_GPU_TESTS` | use the system's driver, and skip what needs the stand-in |
//! | `CAUSEWAY_REQUIRE_GPU` | the same, and fail where there is no GPU |
#![allow(dead_code, reason = "each test program uses its own part")]

use std::path::PathBuf;

/// What the stand-in's device is called.
const STANDIN: &str = "Causeway stand-in";

/// The driver that tests are for.
pub enum Driver {
    /// The stand-in, in this folder.
    StandIn(PathBuf),
    /// The system's.
    System,
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Whether a GPU must be there.
pub fn is_gpu_required() -> bool {
    is_set("CAUSEWAY_REQUIRE_GPU")
}

/// The stand-in, unless a GPU is asked for.
///
/// # Errors
/// Why there is none.
pub fn driver() -> Result<Driver, String> {
    if is_set("CAUSEWAY_GPU_TESTS") || is_gpu_required() {
        return gpu().map(|_| Driver::System);
    }
    standin().map(Driver::StandIn)
}

/// The folder with the stand-in.
///
/// # Errors
/// It is not here.
pub fn standin() -> Result<PathBuf, String> {
    match causeway_standin_cuda::library() {
        Some(_) => Ok(causeway_standin_cuda::directory()),
        None => Err(String::from(
            "the stand-in driver is not beside this program (for a GPU, set CAUSEWAY_GPU_TESTS=1)",
        )),
    }
}

/// Name of the system's GPU.
///
/// # Errors
/// Why there is none.
pub fn gpu() -> Result<String, String> {
    let gpus = causeway_cuda::identities().map_err(|e| e.to_string())?;
    let gpu = gpus.into_iter().next().ok_or("the driver has no GPU")?;
    if is_standin(&gpu.name) {
        return Err(format!("the driver is no GPU's, but the {}", gpu.name));
    }
    Ok(gpu.name)
}

/// Whether a device of this name is none.
pub fn is_standin(name: &str) -> bool {
    name.contains(STANDIN)
}

/// Says that a test is skipped.
///
/// # Panics
/// If a GPU must be there.
pub fn skip(test: &str, reason: &str) {
    assert!(
        !is_gpu_required(),
        "{test}: a GPU is required here: {reason}"
    );
    eprintln!("skipped: {test}: {reason}");
}
