//! The library as a file, under the names by which programs look for NVIDIA's.

use std::fs;
use std::io;
use std::path::Path;

use causeway_embedded_libcuda::IMAGE;
use causeway_terminal::{Code, Failure, shown_path};

/// Name of the library, which the loader looks for.
const NAME: &str = "libcuda.so.1";
/// Other names of it: linkers and some programs look for the first, monitors for the others.
const ALIASES: [&str; 3] = ["libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"];
/// Text that is in this library, and in no other.
const MARK: &[u8] = b"CAUSEWAY_CUDA_LOG";

/// Writes the library to a folder.
pub fn write(folder: &Path) -> Result<(), Failure> {
    place(folder).map_err(|e| {
        let message = format!("cannot write {NAME} to {}", shown_path(folder));
        Failure::new(Code::Report, message, e)
    })
}

/// Writes the library to a folder, which is created if it does not exist. Another driver's library
/// is not replaced.
pub fn install(folder: &Path) -> Result<(), Failure> {
    let foreign = ALIASES.iter().chain([&NAME]).find(|name| {
        let content = fs::read(folder.join(name));
        content.is_ok_and(|content| !is_ours(&content))
    });
    if let Some(name) = foreign {
        return Err(Failure::usage(format!(
            "invalid value {} for --install: {name} there is another driver's: choose another \
             directory",
            shown_path(folder)
        )));
    }
    fs::create_dir_all(folder).map_err(|e| {
        let message = format!("cannot create the directory {}", shown_path(folder));
        Failure::new(Code::Report, message, e)
    })?;
    write(folder)
}

fn is_ours(content: &[u8]) -> bool {
    content.windows(MARK.len()).any(|bytes| bytes == MARK)
}

/// Replaces what the names stand for in one step each, because a program may have the old library
/// open.
fn place(folder: &Path) -> io::Result<()> {
    let fresh = folder.join(format!(".{NAME}.{}", std::process::id()));
    let named = |name| fs::rename(&fresh, folder.join(name));
    let link = |name| std::os::unix::fs::symlink(NAME, &fresh).and_then(|()| named(name));
    fs::write(&fresh, IMAGE)
        .and_then(|()| named(NAME))
        .and_then(|()| ALIASES.into_iter().try_for_each(link))
        .inspect_err(|_| {
            let _ = fs::remove_file(&fresh);
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_replaces_itself_and_no_other() {
        let name = format!("causeway-library-{}", std::process::id());
        let folder = std::env::temp_dir().join(name).join("inner");
        for _ in 0..2 {
            install(&folder).unwrap();
            for name in ALIASES.into_iter().chain([NAME]) {
                assert!(fs::read(folder.join(name)).unwrap() == IMAGE, "{name}");
            }
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
        }
        for name in ["libnvidia-ml.so.1", NAME] {
            fs::remove_file(folder.join(name)).unwrap();
            fs::write(folder.join(name), "another library").unwrap();
            let text = install(&folder).unwrap_err().text();
            assert!(text.contains("another driver's"), "{text}");
            let kept = fs::read(folder.join(name)).unwrap();
            assert_eq!(kept, b"another library");
        }
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
