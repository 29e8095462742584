//! Builds `causeway-libcudart` by a separate run of cargo, and links the archive as the library
//! that programs ask for: their symbols have the version of NVIDIA's, which rustc cannot give.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_guest_build::{library, repository, variable};

/// The archive's name, as cargo calls it.
const ARCHIVE: &str = "libcauseway_libcudart.a";
/// The library's name, which is also the version of its symbols.
const NAME: &str = "libcudart.so.13";

fn main() {
    let archive = library(&repository(), "causeway-libcudart", ARCHIVE).join(ARCHIVE);
    let out = PathBuf::from(variable("OUT_DIR"));
    let versions = out.join("versions");
    let script = format!("{NAME} {{ global: cuda*; __cuda*; local: *; }};\n");
    fs::write(&versions, script).expect("cannot write the symbols' versions");
    let built = out.join(NAME);
    link(&archive, &versions, &built);
    println!("cargo::rustc-env=CAUSEWAY_LIBCUDART={}", built.display());
    println!("cargo::rerun-if-changed=build.rs");
}

fn link(archive: &Path, versions: &Path, built: &Path) {
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-o"])
        .arg(built)
        .arg(format!("-Wl,-soname,{NAME}"))
        .arg(format!("-Wl,--version-script={}", versions.display()))
        // Its own calls stay inside, and it stays when a program lets go of it.
        .args(["-Wl,-Bsymbolic-functions", "-Wl,-z,nodelete,-z,defs"])
        .args(["-Wl,--gc-sections,--strip-all", "-Wl,--whole-archive"])
        .arg(archive)
        .args([
            "-Wl,--no-whole-archive",
            "-lgcc_s",
            "-lpthread",
            "-ldl",
            "-lc",
        ]);
    let status = command.status().expect("cannot run cc");
    assert!(status.success(), "cc could not link {NAME}");
}
