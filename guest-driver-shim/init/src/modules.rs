//! Kernel modules.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::system::finit_module;

use crate::console::say;

/// `MODULE_INIT_COMPRESSED_FILE` (include/uapi/linux/module.h): the kernel decompresses the file
/// itself.
const COMPRESSED: i32 = 4;

/// Loads modules in this order. Reports a module that cannot be loaded, and goes on with the next.
pub(crate) fn load_all(modules: &[PathBuf]) {
    for module in modules {
        if let Err(error) = load(module) {
            say(&format!("cannot load {}: {error}", module.display()));
        }
    }
}

fn load(module: &Path) -> std::io::Result<()> {
    let file = File::open(module)?;
    match finit_module(file, c"", flags(module)) {
        // It was loaded already, or is a part of the kernel.
        Err(Errno::EXIST) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn flags(module: &Path) -> i32 {
    let plain = module
        .extension()
        .is_none_or(|extension| extension == "ko" || extension == "o");
    if plain { 0 } else { COMPRESSED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_modules_are_the_kernels_to_decompress() {
        assert_eq!(flags(Path::new("/lib/uio.ko")), 0);
        assert_eq!(flags(Path::new("/lib/uio.ko.xz")), COMPRESSED);
        assert_eq!(flags(Path::new("/lib/uio.ko.zst")), COMPRESSED);
    }
}
