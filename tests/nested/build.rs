//! Builds the agent, and the first program of guests, as static programs, and a CUDA program and
//! `compute` as dynamic ones, and names them for the harness.

use causeway_guest_build::{dynamic_program, repository, static_linux};

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
    let client = dynamic_program(&repository(), "causeway-example-cuda", "cuda_vector_add");
    println!("cargo::rustc-env=NESTED_CUDA_CLIENT={}", client.display());
    let compute = dynamic_program(&repository(), "causeway-linux-programs", "compute");
    println!("cargo::rustc-env=NESTED_COMPUTE={}", compute.display());
}
