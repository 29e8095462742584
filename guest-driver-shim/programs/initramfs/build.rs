//! Builds `/init` as a static program, and names it for `include_bytes!`.

use std::path::PathBuf;

use causeway_guest_build::{repository, rerun_if_changed, static_linux, variable};

/// What it is made of, relative to the repository. A change there builds it again.
const SOURCES: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "guest-driver-shim/init/Cargo.toml",
    "guest-driver-shim/init/src",
    "guest-driver-shim/sysfs",
    "guest-driver-shim/core/Cargo.toml",
    "guest-driver-shim/core/src",
    "protocol/Cargo.toml",
    "protocol/src",
    "vmm/testdev/records",
];

fn main() {
    let repository = repository();
    rerun_if_changed(&repository, SOURCES);
    let target_folder = PathBuf::from(variable("OUT_DIR")).join("init");
    let programs = static_linux(&repository, &["causeway-init"], &target_folder);
    let init = programs.join("causeway-init");
    assert!(init.is_file(), "cargo has built no {}", init.display());
    println!("cargo::rustc-env=CAUSEWAY_INIT={}", init.display());
}
