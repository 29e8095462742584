//! Builds programs for guests, for build scripts.
//!
//! The build script of a bare guest calls [`link_bare_guest`], and `cargo build` then links the
//! guest.
//!
//! The other functions build guests by a separate run of cargo, to embed them in another program. A
//! program that runs in a guest cannot be an ordinary dependency of the host's crates: it needs
//! other compiler flags, and it is embedded as a file. The separate cargo uses the lock file as
//! committed. Its target is explicit, so that its flags apply to the programs only, not to their
//! build scripts. All guests are built in one target folder beside that of the outer build, so that
//! derive macros are compiled once for all of them.
//!
//! So only one build script at a time can build guests. One that waits for another keeps a
//! processor from the rest of the build, and from the other's cargo. Crates with such build scripts
//! therefore depend on each other in a row, and have the key `links`: cargo then runs their build
//! scripts one after the other.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Rust target for which all programs for guests are compiled.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The cargo profile of all programs for guests, in both workspaces that have some.
const PROFILE: &str = "guest";

/// Arguments of the linker driver (`cc`) for bare guests: a static executable at a fixed address
/// without start files and libraries, whose entry is the runtime's (`causeway-bare`).
const BARE_LINK_ARGUMENTS: &[&str] = &[
    "-nostartfiles",
    "-nostdlib",
    "-static",
    // The last of `-pie` and `-no-pie` counts, and these arguments come behind rustc's own.
    "-no-pie",
    "-Wl,--entry=_start,--undefined=_start",
    "-Wl,--build-id=none,--gc-sections",
    "-Wl,-z,noexecstack,-z,max-page-size=4096",
    // core comes compiled with unwinding tables; a guest that panics ends.
    "-Wl,--defsym=rust_eh_personality=0,--defsym=_Unwind_Resume=0",
];

/// Links the executables of the calling build script's package as bare guests. The package's
/// profile must have `panic = "abort"`.
pub fn link_bare_guest() {
    for argument in BARE_LINK_ARGUMENTS {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// Makes cargo run the build script again when one of the files or folders `sources`, which are
/// relative to `folder`, changes.
///
/// [`bare`] and [`static_linux`] do this for the crates that they build.
pub fn rerun_if_changed(folder: &Path, sources: &[&str]) {
    for source in sources {
        println!("cargo::rerun-if-changed={}", folder.join(source).display());
    }
}

/// Returns the root of the repository: the nearest folder above the build script's crate that has a
/// `Cargo.lock`.
///
/// # Panics
/// If no folder above the crate has a `Cargo.lock`.
#[must_use]
pub fn repository() -> PathBuf {
    let of_crate = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let mut above = of_crate.ancestors();
    let root = above.find(|folder| folder.join("Cargo.lock").is_file());
    root.expect("no Cargo.lock above the crate").to_owned()
}

/// Returns the value of an environment variable that cargo sets for build scripts.
///
/// # Panics
/// If the variable is not set.
#[must_use]
pub fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo has not set {name}"))
}

/// Builds the bare guests of the package in `folder`, whose build script calls [`link_bare_guest`].
/// Returns a folder inside `OUT_DIR` with the executables `names`. Cargo runs the calling build
/// script again when a source of the guests changes.
///
/// # Panics
/// If the build fails, or makes no executable of one of the names.
#[must_use]
pub fn bare(folder: &Path, names: &[&str]) -> PathBuf {
    watch_sources(folder, &[]);
    build(cargo(folder, "build"), names)
}

/// Builds the programs of `packages` in the workspace in `folder` as static executables for Linux.
/// Returns a folder inside `OUT_DIR` with the executables `names`. The cargo profile `guest` makes
/// them small, because a guest's memory holds them. Cargo runs the calling build script again when
/// a source of the programs changes.
///
/// # Panics
/// If the build fails, or makes no executable of one of the names.
#[must_use]
pub fn static_linux(folder: &Path, packages: &[&str], names: &[&str]) -> PathBuf {
    watch_sources(folder, packages);
    let mut cargo = cargo(folder, "build");
    for package in packages {
        cargo.args(["--package", package]);
    }
    cargo.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
    build(cargo, names)
}

/// Builds the library of `package` in the workspace in `folder` as programs on Linux load it, fully
/// optimized. Returns a folder inside `OUT_DIR` with the file `name`. Cargo runs the calling build
/// script again when a source of the library changes.
///
/// # Panics
/// If the build fails, or makes no library of this name.
#[must_use]
pub fn library(folder: &Path, package: &str, name: &str) -> PathBuf {
    dynamic_linux(folder, &["--lib", "--package", package], package, name)
}

/// Builds the program `name` of `package` in the workspace in `folder` as a dynamic executable for
/// Linux, which loads such libraries. Returns its path inside `OUT_DIR`. Cargo runs the calling
/// build script again when a source of the program changes.
///
/// # Panics
/// If the build fails, or makes no executable of this name.
#[must_use]
pub fn dynamic_program(folder: &Path, package: &str, name: &str) -> PathBuf {
    let words = ["--bin", name, "--package", package];
    dynamic_linux(folder, &words, package, name).join(name)
}

/// Builds what the `words` for cargo say of `package`.
fn dynamic_linux(folder: &Path, words: &[&str], package: &str, name: &str) -> PathBuf {
    watch_sources(folder, &[package]);
    let mut cargo = cargo(folder, "build");
    cargo.args(words);
    // The profile stays that of guests, so that derive macros are compiled once for all. A panic
    // in a call must not end the program that called.
    cargo.env("CARGO_PROFILE_GUEST_PANIC", "unwind");
    cargo.env("CARGO_PROFILE_GUEST_OPT_LEVEL", "3");
    build(cargo, &[name])
}

/// Makes cargo run the build script again when a source of `packages` (of all packages if empty) in
/// the workspace in `folder` changes, or a source of a crate in this repository that they depend
/// on.
fn watch_sources(folder: &Path, packages: &[&str]) {
    let mut tree = cargo(folder, "tree");
    tree.args(["--prefix", "none", "--format", "{p}", "--edges", "no-dev"]);
    for package in packages {
        tree.args(["--package", package]);
    }
    let output = tree.output().expect("cannot run cargo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree failed: {errors}");
    let lines = String::from_utf8_lossy(&output.stdout);
    let crates: BTreeSet<&Path> = lines.lines().filter_map(crate_folder).collect();
    assert!(
        !crates.is_empty(),
        "cargo tree lists no crate of this repository"
    );
    rerun_if_changed(folder, &["Cargo.toml", "Cargo.lock"]);
    for source in crates.into_iter().flat_map(sources) {
        println!("cargo::rerun-if-changed={}", source.display());
    }
}

/// Returns the folder of the crate in a line of `cargo tree`, if the crate is not from a registry:
/// `causeway-shim v0.1.0 (/repository/guest-driver-shim/core)`.
fn crate_folder(line: &str) -> Option<&Path> {
    let (_, folder) = line.split_once(" (/")?;
    let end = folder.find(')')?;
    let start = line.len() - folder.len() - 1;
    Some(Path::new(&line[start..=start + end]))
}

/// Returns what a crate is built from: everything in its folder but tests, benchmarks, build
/// outputs and other crates.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = folder
        .read_dir()
        .expect("cannot read the folder of a crate");
    let paths = entries.map(|entry| entry.expect("cannot read the folder of a crate").path());
    let is_source = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        let others = ["tests", "benches", "target"];
        !others.iter().any(|other| name == *other) && !path.join("Cargo.toml").exists()
    };
    paths.filter(is_source).collect()
}

fn cargo(folder: &Path, command: &str) -> Command {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(folder);
    cargo.args([command, "--locked", "--target", TARGET]);
    for (name, _) in env::vars_os() {
        if is_of_the_outer_build(&name.to_string_lossy()) {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// Runs a `cargo build` in the target folder of all guests, and copies its outputs `names` to a
/// folder of this build script's own. Guests of different kinds have the same names, so no other
/// build script may run its cargo until they are copied.
fn build(mut cargo: Command, names: &[&str]) -> PathBuf {
    let out = PathBuf::from(variable("OUT_DIR"));
    // OUT_DIR is PROFILE/build/PACKAGE/out.
    let of_profile = out.ancestors().nth(3).expect("OUT_DIR is in no profile");
    let target_folder = of_profile.with_file_name("guests");
    fs::create_dir_all(&target_folder).expect("cannot make the target folder of guests");
    let turn = File::create(target_folder.join("turn")).expect("cannot make a lock file");
    turn.lock()
        .expect("cannot lock the target folder of guests");
    cargo.args(["--quiet", "--profile", PROFILE, "--target-dir"]);
    cargo.arg(&target_folder);
    let status = cargo.status().expect("cannot run cargo");
    assert!(status.success(), "{cargo:?} failed ({status})");
    let built = target_folder.join(TARGET).join(PROFILE);
    let programs = out.join("programs");
    fs::create_dir_all(&programs).expect("cannot make a folder for programs");
    for name in names {
        let copied = fs::copy(built.join(name), programs.join(name));
        copied.unwrap_or_else(|e| panic!("{cargo:?} built no {name}: {e}"));
    }
    programs
}

/// Returns whether the environment variable `name` describes the build to which the calling build
/// script belongs. Such a variable would change the build of the guests.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_the_repository_are_found_in_the_tree_with_their_sources() {
        let folder = |line| crate_folder(line).map(|path| path.to_str().unwrap());
        assert_eq!(folder("a v0.1.0 (/r/a)"), Some("/r/a"));
        assert_eq!(folder("a v0.1.0 (/r/a) (*)"), Some("/r/a"));
        assert_eq!(folder("derive v0.8.63 (proc-macro)"), None);
        assert_eq!(
            folder("derive v0.8.63 (proc-macro) (/r/derive)"),
            Some("/r/derive")
        );
        assert_eq!(folder("zerocopy v0.8.63"), None);
        let own = sources(Path::new(env!("CARGO_MANIFEST_DIR")));
        let names: Vec<_> = own.iter().filter_map(|path| path.file_name()).collect();
        assert!(names.iter().any(|name| *name == "src"), "{names:?}");
        assert!(names.iter().any(|name| *name == "Cargo.toml"), "{names:?}");
    }

    #[test]
    fn flags_of_the_outer_build_are_kept_from_the_guests_and_the_rest_is_not() {
        for name in ["RUSTFLAGS", "CARGO_FEATURE_STD", "CARGO_TARGET_DIR"] {
            assert!(is_of_the_outer_build(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_TOOLCHAIN"] {
            assert!(!is_of_the_outer_build(name), "{name}");
        }
    }
}
