//! Builds the agent as a static program, with a cargo of its own: ordinary dependencies cannot have flags of their own.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    for source in ["agent/Cargo.toml", "agent/src"] {
        println!("cargo::rerun-if-changed={}", here.join(source).display());
    }
    // A target folder of its own: two cargos in one would wait for each other.
    let target_folder = PathBuf::from(variable("OUT_DIR")).join("agent");
    build(&here.join("agent"), &target_folder);
    let agent = target_folder.join(TARGET).join("release/nested-agent");
    assert!(agent.is_file(), "cargo has built no {}", agent.display());
    println!("cargo::rustc-env=NESTED_AGENT={}", agent.display());
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo has not set {name}"))
}

fn build(agent: &Path, target_folder: &Path) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(agent);
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
    // The machine has no C library to load.
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let status = cargo.status().expect("cannot run cargo");
    assert!(status.success(), "building the agent failed ({status})");
}

/// Whether a variable describes the build that this script is part of, and would change the agent's.
fn is_of_the_outer_build(name: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_PKG_",
        "CARGO_CFG_",
        "CARGO_FEATURE_",
        "CARGO_PROFILE_",
        "CARGO_TARGET_",
        "CARGO_BUILD_",
        "CARGO_MANIFEST_",
        "CLIPPY_",
        "DEP_",
        "LLVM_PROFILE",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_LINKER",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
