//! Checks of the repository's layout: which crate may depend on which ([`dependencies`]), and which
//! modules of a crate import each other in a circle ([`circles`]).
//!
//! The checks read manifests and sources as text; they build nothing. `tests/` holds the promises.

pub mod circles;
pub mod dependencies;
mod imports;
mod modules;

use std::path::{Path, PathBuf};

/// The root of the repository.
///
/// # Panics
/// If no folder above this crate has a lock file.
#[must_use]
pub fn repository() -> PathBuf {
    let of_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
    let above = of_crate
        .ancestors()
        .find(|f| f.join("Cargo.lock").is_file());
    above.expect("no Cargo.lock above the crate").to_owned()
}
