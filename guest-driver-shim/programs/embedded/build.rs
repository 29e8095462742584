//! Builds the bare guests and `/init` by separate runs of cargo, and writes a table of the bare
//! guests' images with `include_bytes!`.
//!
//! One build script builds both: nothing needs only one of them.

use std::fs;
use std::path::{Path, PathBuf};

use causeway_guest_build::{bare, repository, rerun_if_changed, static_linux, variable};

/// The guests: file names in `guest-driver-shim/programs/bare/src/bin`.
const NAMES: &[&str] = &[
    "compute",
    "stream",
    "sharing",
    "visible",
    "peers",
    "hostile",
    "bench",
    "residue",
    "greedy",
    "panic",
    "spin",
    "triple",
    "exits",
    "lost",
    "endurance",
    "edu",
    "partition",
    "doorbell",
    "mechanisms",
];

fn main() {
    let repository = repository();
    rerun_if_changed(&repository, &["guest-driver-shim/programs/workloads"]);
    let out = PathBuf::from(variable("OUT_DIR"));
    let init = static_linux(&repository, &["causeway-init"], &["causeway-init"]);
    let init = init.join("causeway-init");
    println!("cargo::rustc-env=CAUSEWAY_INIT={}", init.display());
    let images = bare(&repository.join("guest-driver-shim/programs/bare"), NAMES);
    fs::write(out.join("images.rs"), table(&images)).expect("cannot write the table of images");
}

/// Returns the source text of a table with the name and the image of each guest.
fn table(images: &Path) -> String {
    let mut text = String::from("&[\n");
    for name in NAMES {
        let path = images.join(name);
        text += &format!(
            "    ({name:?}, include_bytes!({:?})),\n",
            path.display().to_string()
        );
    }
    text + "]\n"
}
