//! Builds the agent, and the first program of guests, as static programs, and names them for the
//! harness.

use causeway_guest_build::{repository, static_linux};

fn main() {
    let programs = [
        ("NESTED_AGENT", "nested-agent"),
        ("NESTED_FIRST_WORD", "nested-first-word"),
    ];
    let names = programs.map(|(_, name)| name);
    let folder = static_linux(&repository(), &["causeway-nested-agent"], &names);
    for (variable, name) in programs {
        println!(
            "cargo::rustc-env={variable}={}",
            folder.join(name).display()
        );
    }
}
