//! For build scripts: programs for guests, built by a cargo of their own.
//!
//! What runs in a guest cannot be an ordinary dependency of what runs on the host: it has other flags, and it is wanted as
//! a file. Cargo is run with a target folder of its own (two cargos in one target folder would wait for each other), with
//! the lock file as committed. With an explicit target, its flags are for the programs only, not for their build scripts.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of all programs for guests.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Has cargo run the build script again when one of these changes; they are relative to `folder`.
pub fn rerun_if_changed(folder: &Path, sources: &[&str]) {
    for source in sources {
        println!("cargo::rerun-if-changed={}", folder.join(source).display());
    }
}

/// The root of the repository: the folder above the build script's crate that has the lock file.
///
/// # Panics
/// If no folder above has one.
#[must_use]
pub fn repository() -> PathBuf {
    let of_crate = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let mut above = of_crate.ancestors();
    let root = above.find(|folder| folder.join("Cargo.lock").is_file());
    root.expect("no Cargo.lock above the crate").to_owned()
}

/// A variable that cargo sets for build scripts.
///
/// # Panics
/// If it is not set.
#[must_use]
pub fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo has not set {name}"))
}

/// Builds bare guests, in whose folder cargo finds their configuration, and gives the folder of the executables.
///
/// # Panics
/// If the build fails.
#[must_use]
pub fn bare(folder: &Path, target_folder: &Path) -> PathBuf {
    let mut cargo = cargo(folder, target_folder);
    cargo.arg("--release");
    finish(cargo, target_folder, "release")
}

/// Builds Linux programs of the workspace in `folder` as static executables, and gives the folder of the executables. They
/// are small (profile `guest`), because guests read them before anything else.
///
/// # Panics
/// If the build fails.
#[must_use]
pub fn static_linux(folder: &Path, packages: &[&str], target_folder: &Path) -> PathBuf {
    let mut cargo = cargo(folder, target_folder);
    cargo.args(["--profile", "guest"]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    cargo.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
    finish(cargo, target_folder, "guest")
}

fn cargo(folder: &Path, target_folder: &Path) -> Command {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(folder);
    cargo.args(["build", "--locked", "--quiet", "--target", TARGET]);
    cargo.arg("--target-dir").arg(target_folder);
    for (name, _) in env::vars_os() {
        if is_of_the_outer_build(&name.to_string_lossy()) {
            cargo.env_remove(&name);
        }
    }
    cargo
}

fn finish(mut cargo: Command, target_folder: &Path, profile: &str) -> PathBuf {
    let status = cargo.status().expect("cannot run cargo");
    let words: Vec<_> = cargo.get_args().collect();
    let folder = cargo.get_current_dir();
    assert!(
        status.success(),
        "cargo {words:?} in {folder:?} failed ({status})"
    );
    target_folder.join(TARGET).join(profile)
}

/// Whether a variable describes the build that the script is part of, and would change that of the guests.
fn is_of_the_outer_build(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_LINKER",
        "CLIPPY_ARGS",
        "CLIPPY_CONF_DIR",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "OUT_DIR",
        "NUM_JOBS",
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_PATH",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_TARGET_DIR",
    ];
    const PREFIXES: &[&str] = &[
        "CARGO_PKG_",
        "CARGO_CFG_",
        "CARGO_FEATURE_",
        "CARGO_PROFILE_",
        "DEP_",
        "LLVM_PROFILE",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_outer_build_are_kept_from_the_guests_and_the_rest_is_not() {
        for name in ["RUSTFLAGS", "CARGO_FEATURE_STD", "CARGO_TARGET_DIR"] {
            assert!(is_of_the_outer_build(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_TOOLCHAIN"] {
            assert!(!is_of_the_outer_build(name), "{name}");
        }
    }
}
