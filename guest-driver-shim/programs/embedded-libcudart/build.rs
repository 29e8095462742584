//! Builds `causeway-libcudart` by a separate run of cargo, and makes of its archive what programs
//! are linked with: a library whose symbols have the version of NVIDIA's, which rustc cannot give,
//! and a static one that is a single object, so that nothing of Rust's library is seen outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_guest_build::{library, repository, variable};

/// The archive's name, as cargo calls it.
const ARCHIVE: &str = "libcauseway_libcudart.a";
/// The library's name, which is also the version of its symbols.
const NAME: &str = "libcudart.so.13";
/// The static library's, as nvcc asks for it.
const STATIC_NAME: &str = "libcudart_static.a";
/// Symbols of the API, as patterns.
const API: [&str; 2] = ["cuda*", "__cuda*"];

fn main() {
    let archive = library(&repository(), "causeway-libcudart", ARCHIVE).join(ARCHIVE);
    let out = PathBuf::from(variable("OUT_DIR"));
    let shared = link(&archive, &out);
    println!("cargo::rustc-env=CAUSEWAY_LIBCUDART={}", shared.display());
    let fixed = merge(&archive, &out);
    println!(
        "cargo::rustc-env=CAUSEWAY_LIBCUDART_STATIC={}",
        fixed.display()
    );
    println!("cargo::rerun-if-changed=build.rs");
}

/// Links the shared library.
fn link(archive: &Path, out: &Path) -> PathBuf {
    let versions = out.join("versions");
    let script = format!("{NAME} {{ global: {}; local: *; }};\n", API.join("; "));
    fs::write(&versions, script).expect("cannot write the symbols' versions");
    let built = out.join(NAME);
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-o"])
        .arg(&built)
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
    run(&mut command);
    built
}

/// Makes the static library: links the archive to one object, in which only the API is visible.
fn merge(archive: &Path, out: &Path) -> PathBuf {
    let roots: String = functions(archive)
        .iter()
        .map(|name| format!("-Wl,--undefined={name}\n"))
        .collect();
    let (words, object) = (out.join("roots"), out.join("libcudart.o"));
    fs::write(&words, roots).expect("cannot write the linker's words");
    let mut linker = Command::new("cc");
    linker
        .args(["-r", "-nostdlib", "-o"])
        .arg(&object)
        // Groups of another library of Rust's in the program must not replace those here. Only
        // GNU's linker has the option for it.
        .args(["-fuse-ld=bfd", "-Wl,--gc-sections,--force-group-allocation"])
        .arg(format!("@{}", words.display()))
        .arg(archive);
    run(&mut linker);
    let mut copier = Command::new("objcopy");
    copier
        .args(["--wildcard", "--strip-unneeded"])
        .args(API.map(|pattern| format!("--keep-global-symbol={pattern}")))
        // The compiler's own code, of Rust's library.
        .args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]);
    run(copier.arg(&object));
    let built = out.join(STATIC_NAME);
    let _ = fs::remove_file(&built);
    run(Command::new("ar").arg("rcsD").arg(&built).arg(&object));
    built
}

/// Returns the functions of the API in the archive.
fn functions(archive: &Path) -> Vec<String> {
    let mut names = Command::new("nm");
    names.args(["--defined-only", "--extern-only", "--format=just-symbols"]);
    // Of Rust's library there are members that it cannot read: those it names, and goes on.
    let output = names.arg(archive).output().expect("cannot run nm");
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().filter(|name| is_of_the_api(name));
    let found: Vec<_> = found.map(str::to_owned).collect();
    assert!(!found.is_empty(), "nm finds no function in {archive:?}");
    found
}

fn is_of_the_api(name: &str) -> bool {
    API.iter()
        .any(|pattern| name.starts_with(&pattern[..pattern.len() - 1]))
}

fn run(command: &mut Command) {
    let status = command.status();
    let status = status.unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(status.success(), "{command:?} failed ({status})");
}
