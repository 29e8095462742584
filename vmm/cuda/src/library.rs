//! The libraries as files, under the names by which programs look for NVIDIA's.

use std::fs;
use std::io;
use std::path::Path;

use causeway_terminal::{Code, Failure, shown_path};

/// A library, which the loader looks for by its name.
struct Library {
    name: &'static str,
    image: &'static [u8],
    /// Other names of it: linkers and some programs look for these.
    aliases: &'static [&'static str],
}

/// Text that is in Causeway's libraries, and in no others.
const MARK: &[u8] = b"CAUSEWAY_CUDA_LOG";

const LIBRARIES: [Library; 2] = [
    Library {
        name: "libcuda.so.1",
        image: causeway_embedded_libcuda::IMAGE,
        // Monitors look for the last two.
        aliases: &["libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"],
    },
    Library {
        name: "libcudart.so.13",
        image: causeway_embedded_libcudart::IMAGE,
        aliases: &["libcudart.so"],
    },
];

/// Writes the libraries to a folder.
pub fn write(folder: &Path) -> Result<(), Failure> {
    LIBRARIES.iter().try_for_each(|library| {
        library.place(folder).map_err(|e| {
            let message = format!("cannot write {} to {}", library.name, shown_path(folder));
            Failure::new(Code::Report, message, e)
        })
    })
}

/// Writes the libraries to a folder, which is created if it does not exist. Another driver's or
/// runtime's library is not replaced.
pub fn install(folder: &Path) -> Result<(), Failure> {
    for library in LIBRARIES {
        if let Some(name) = library.foreign(folder) {
            return Err(Failure::usage(format!(
                "invalid value {} for --install: {name} there is not Causeway's: choose another \
                 directory",
                shown_path(folder)
            )));
        }
    }
    fs::create_dir_all(folder).map_err(|e| {
        let message = format!("cannot create the directory {}", shown_path(folder));
        Failure::new(Code::Report, message, e)
    })?;
    write(folder)
}

impl Library {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.aliases.iter().copied())
    }

    /// Returns one of the names, if another library has it in the folder.
    fn foreign(&self, folder: &Path) -> Option<&'static str> {
        self.names().find(|name| {
            let content = fs::read(folder.join(name));
            content.is_ok_and(|content| !is_ours(&content))
        })
    }

    /// Replaces what the names stand for in one step each, because a program may have the old
    /// library open.
    fn place(&self, folder: &Path) -> io::Result<()> {
        let fresh = folder.join(format!(".{}.{}", self.name, std::process::id()));
        let named = |name: &str| fs::rename(&fresh, folder.join(name));
        let link =
            |name: &&str| std::os::unix::fs::symlink(self.name, &fresh).and_then(|()| named(name));
        fs::write(&fresh, self.image)
            .and_then(|()| named(self.name))
            .and_then(|()| self.aliases.iter().try_for_each(link))
            .inspect_err(|_| {
                let _ = fs::remove_file(&fresh);
            })
    }
}

fn is_ours(content: &[u8]) -> bool {
    content.windows(MARK.len()).any(|bytes| bytes == MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_replace_themselves_and_no_others() {
        let name = format!("causeway-library-{}", std::process::id());
        let folder = std::env::temp_dir().join(name).join("inner");
        for _ in 0..2 {
            install(&folder).unwrap();
            for library in LIBRARIES {
                for name in library.names() {
                    let content = fs::read(folder.join(name)).unwrap();
                    assert!(content == library.image, "{name}");
                }
            }
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 6);
        }
        for name in ["libcudart.so", "libnvidia-ml.so.1", "libcuda.so.1"] {
            fs::remove_file(folder.join(name)).unwrap();
            fs::write(folder.join(name), "another library").unwrap();
            let text = install(&folder).unwrap_err().text();
            assert!(
                text.contains(name) && text.contains("not Causeway's"),
                "{text}"
            );
            let kept = fs::read(folder.join(name)).unwrap();
            assert_eq!(kept, b"another library");
            fs::remove_file(folder.join(name)).unwrap();
        }
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
