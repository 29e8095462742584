//! Sets `CAUSEWAY_REVISION` for the command: the revision of the source code from which it is
//! built.
//!
//! The command is the only crate that is compiled with the revision, so a commit compiles this
//! crate again and no other.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of the product's source code, from the root of the repository.
const SOURCES: [&str; 4] = ["protocol", "mediator", "guest-driver-shim", "vmm"];
const VARIABLE: &str = "CAUSEWAY_REVISION";

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for folder in SOURCES {
        // An edit can make the revision a modified one. It compiles this crate again anyway.
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
    }
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    // Packagers, who build from an archive, can set the variable.
    let given = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let revision = given.or_else(|| described(&root));
    let revision = revision.unwrap_or_else(|| String::from("unknown"));
    println!("cargo::rustc-env={VARIABLE}={revision}");
}

/// Returns the revision that Git describes, or `None` if `root` is not the root of a repository.
fn described(root: &Path) -> Option<String> {
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    // An archive may lie in a repository that is not ours.
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // Written by each commit, checkout and reset.
    let log = root.join(git(root, &["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    let words = ["describe", "--always", "--abbrev=12", "--dirty=-modified"];
    git(root, &words)
}

/// Returns the line that a Git command prints, or `None` if it fails.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(words)
        // Only reads: another Git may be at work.
        .env("GIT_OPTIONAL_LOCKS", "0")
        .output()
        .ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
