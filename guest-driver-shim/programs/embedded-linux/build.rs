//! Builds the programs for Linux guests as static executables, and writes a table of them with
//! `include_bytes!`.

use std::fs;
use std::path::{Path, PathBuf};

use causeway_guest_build::{repository, rerun_if_changed, static_linux, variable};

/// The packages that are built, with the names of the programs in each.
const PACKAGES: &[(&str, &[&str])] = &[
    (
        "causeway-linux-programs",
        &[
            "compute",
            "stream",
            "sharing",
            "disk",
            "files",
            "packets",
            "processes",
            "console",
            "interrupts",
            "edu",
            "random",
            "phases",
        ],
    ),
    ("causeway-info", &["causeway-info"]),
    // Shown to work in a guest and over a socket.
    ("causeway-example-vector-add", &["vector_add"]),
];

fn main() {
    let repository = repository();
    rerun_if_changed(&repository, &["guest-driver-shim/programs/workloads"]);
    let out = PathBuf::from(variable("OUT_DIR"));
    let packages: Vec<_> = PACKAGES.iter().map(|(package, _)| *package).collect();
    let names: Vec<_> = PACKAGES
        .iter()
        .flat_map(|(_, names)| *names)
        .copied()
        .collect();
    let programs = static_linux(&repository, &packages, &names);
    fs::write(out.join("images.rs"), table(&programs, &names))
        .expect("cannot write the table of programs");
}

/// Returns the source text of a table with the name and the image of each program.
fn table(programs: &Path, names: &[&str]) -> String {
    let line = |name: &&str| {
        let path = programs.join(name).display().to_string();
        format!("    ({name:?}, include_bytes!({path:?})),\n")
    };
    let lines: String = names.iter().map(line).collect();
    format!("&[\n{lines}]\n")
}
