//! Builds the bare guests with a cargo of their own, and names the images for `include_bytes!`.
//!
//! The guests cannot be ordinary dependencies: they have another panic strategy, link flags and no std. So
//! this script runs cargo on `tests/guests`, into a folder of its own (two cargos in one target folder would
//! wait for each other), with its lock file as committed.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The guests: file names in `tests/guests/src/bin`.
const NAMES: &[&str] = &[
    "compute", "stream", "sharing", "visible", "hostile", "bench", "residue", "panic", "spin",
    "triple", "exits", "lost",
];
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What the guests are made of, relative to the repository. A change there builds them again.
const SOURCES: &[&str] = &[
    "tests/guests/Cargo.toml",
    "tests/guests/Cargo.lock",
    "tests/guests/.cargo",
    "tests/guests/src",
    "tests/kernels/Cargo.toml",
    "tests/kernels/src",
    "tests/kernels/ptx",
    "guest-driver-shim/Cargo.toml",
    "guest-driver-shim/src",
    "guest-driver-shim/bare/Cargo.toml",
    "guest-driver-shim/bare/src",
    "protocol/Cargo.toml",
    "protocol/src",
];

fn main() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for source in SOURCES {
        println!(
            "cargo::rerun-if-changed={}",
            repository.join(source).display()
        );
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let target_folder = out.join("guests");
    build(&repository.join("tests/guests"), &target_folder);
    let images = target_folder.join(TARGET).join("release");
    fs::write(out.join("images.rs"), table(&images)).expect("cannot write the table of images");
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo has not set {name}"))
}

fn build(guests: &Path, target_folder: &Path) {
    let mut cargo = Command::new(variable("CARGO"));
    // In the folder of the guests, cargo finds their configuration: target and link flags.
    cargo.current_dir(guests);
    cargo.args([
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--target",
        TARGET,
    ]);
    cargo.arg("--target-dir").arg(target_folder);
    for (name, _) in env::vars_os() {
        if is_of_the_outer_build(&name.to_string_lossy()) {
            cargo.env_remove(&name);
        }
    }
    let status = cargo.status().expect("cannot run cargo");
    assert!(
        status.success(),
        "building the guests in {} failed ({status})",
        guests.display()
    );
}

/// Whether a variable describes the build that this script is part of, and would change that of the guests.
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

/// The source text of a table of (name, image).
fn table(images: &Path) -> String {
    let mut text = String::from("&[\n");
    for name in NAMES {
        let path = images.join(name);
        assert!(
            path.is_file(),
            "cargo has built no image {}",
            path.display()
        );
        text += &format!(
            "    ({name:?}, include_bytes!({:?})),\n",
            path.display().to_string()
        );
    }
    text + "]\n"
}
