//! Builds the agent, and the first program of guests, as static programs, and names them for the
//! harness.

use std::path::PathBuf;

use causeway_guest_build::{repository, static_linux, variable};

fn main() {
    let repository = repository();
    let target_folder = PathBuf::from(variable("OUT_DIR")).join("agent");
    let programs = static_linux(&repository, &["causeway-nested-agent"], &target_folder);
    for (variable, name) in [
        ("NESTED_AGENT", "nested-agent"),
        ("NESTED_FIRST_WORD", "nested-first-word"),
    ] {
        let program = programs.join(name);
        assert!(
            program.is_file(),
            "cargo has built no {}",
            program.display()
        );
        println!("cargo::rustc-env={variable}={}", program.display());
    }
}
