//! Builds the bare guests by a separate run of cargo, and writes a table of their images with
//! `include_bytes!`.

use std::fs;
use std::path::{Path, PathBuf};

use causeway_guest_build::{bare, repository, rerun_if_changed, variable};

/// The guests: file names in `guest-driver-shim/programs/bare/src/bin`.
const NAMES: &[&str] = &[
    "compute",
    "stream",
    "sharing",
    "visible",
    "hostile",
    "bench",
    "residue",
    "panic",
    "spin",
    "triple",
    "exits",
    "lost",
    "edu",
    "partition",
    "doorbell",
    "mechanisms",
];

fn main() {
    let repository = repository();
    rerun_if_changed(&repository, &["guest-driver-shim/programs/workloads"]);
    let out = PathBuf::from(variable("OUT_DIR"));
    let images = bare(
        &repository.join("guest-driver-shim/programs/bare"),
        &out.join("guests"),
    );
    fs::write(out.join("images.rs"), table(&images)).expect("cannot write the table of images");
}

/// Returns the source text of a table with the name and the image of each guest.
fn table(images: &Path) -> String {
    let mut text = String::from("&[\n");
    for name in NAMES {
        let path = images.join(name);
        assert!(
            path.is_file(),
            "cargo has built no image {}",
            path.display()
        );
        text += &format!(
            "    ({name:?}, include_bytes!({:?})),\n",
            path.display().to_string()
        );
    }
    text + "]\n"
}
