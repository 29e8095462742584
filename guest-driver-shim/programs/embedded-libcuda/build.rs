//! Builds `causeway-libcuda` by a separate run of cargo: the command needs it as a file.

use causeway_guest_build::{library, repository};

/// The file's name, as cargo calls it.
const NAME: &str = "libcauseway_libcuda.so";

fn main() {
    let built = library(&repository(), "causeway-libcuda", NAME).join(NAME);
    println!("cargo::rustc-env=CAUSEWAY_LIBCUDA={}", built.display());
}
