//! Builds `/init` as a static program, and names it for `include_bytes!`.

use std::path::PathBuf;

use causeway_guest_build::{repository, static_linux, variable};

fn main() {
    let repository = repository();
    let target_folder = PathBuf::from(variable("OUT_DIR")).join("init");
    let programs = static_linux(&repository, &["causeway-init"], &target_folder);
    let init = programs.join("causeway-init");
    assert!(init.is_file(), "cargo has built no {}", init.display());
    println!("cargo::rustc-env=CAUSEWAY_INIT={}", init.display());
}
