//! The libraries that Causeway gives to CUDA programs, on the host and in Linux guests, under the
//! names by which programs look for NVIDIA's.

use std::ffi::OsStr;

use causeway_embedded_libcudart::{RUNTIME_12, RUNTIME_13};

/// A library, which the loader looks for by its name.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// Its name (`DT_SONAME`), which is the file's.
    pub name: &'static str,
    /// Content of the file, an ELF shared object.
    pub image: &'static [u8],
    /// Other names of it: linkers and some programs look for these.
    pub aliases: &'static [&'static str],
}

impl Library {
    /// All names, its own first.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        [self.name].into_iter().chain(self.aliases.iter().copied())
    }
}

/// All libraries.
pub const LIBRARIES: [Library; 3] = [
    Library {
        name: "libcuda.so.1",
        image: causeway_embedded_libcuda::IMAGE,
        // Monitors look for the last two.
        aliases: &["libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"],
    },
    Library {
        name: "libcudart.so.13",
        image: RUNTIME_13.image,
        aliases: &["libcudart.so"],
    },
    Library {
        name: "libcudart.so.12",
        image: RUNTIME_12.image,
        aliases: &[],
    },
];

/// A library that linkers put into programs.
#[derive(Clone, Copy, Debug)]
pub struct Archive {
    /// The version of CUDA whose programs it is for.
    pub cuda: u32,
    /// Folder in which it is among the other libraries: all archives have the name by which nvcc
    /// asks for them. Empty for none.
    pub folder: &'static str,
    /// Content of the file.
    pub content: &'static [u8],
}

impl Archive {
    /// Name of the file, as nvcc asks for it.
    pub const NAME: &'static str = "libcudart_static.a";
}

/// The runtime libraries, that for the newest CUDA first.
pub const ARCHIVES: [Archive; 2] = [
    Archive {
        cuda: RUNTIME_13.cuda,
        folder: "",
        content: RUNTIME_13.archive,
    },
    Archive {
        cuda: RUNTIME_12.cuda,
        folder: "cuda-12",
        content: RUNTIME_12.archive,
    },
];

/// What the name of each runtime library of CUDA begins with; the version of CUDA follows.
const RUNTIME_PREFIX: &str = "libcudart.so.";

/// Returns the version of CUDA, such as 12, whose runtime library is called `name`, if Causeway has
/// none of that version.
#[must_use]
pub fn foreign_runtime(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?;
    let version = name.strip_prefix(RUNTIME_PREFIX)?;
    let is_ours = LIBRARIES.iter().any(|library| library.name == name);
    let (major, _) = version.split_once('.').unwrap_or((version, ""));
    major.parse().ok().filter(|_| !is_ours)
}

/// Text that is in Causeway's libraries, and in no others.
const MARK: &[u8] = b"CAUSEWAY_CUDA_LOG";

/// Whether `content` is a library of Causeway's, of this or another version.
#[must_use]
pub fn is_ours(content: &[u8]) -> bool {
    content.windows(MARK.len()).any(|bytes| bytes == MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_are_known_as_causeways() {
        for library in LIBRARIES {
            assert!(is_ours(library.image), "{}", library.name);
        }
        for archive in ARCHIVES {
            assert!(is_ours(archive.content), "CUDA {}", archive.cuda);
        }
        assert!(!is_ours(b"\x7fELF another library"));
    }

    #[test]
    fn runtimes_of_other_versions_are_known_by_their_names() {
        let version = |name: &str| foreign_runtime(OsStr::new(name));
        assert_eq!(version("libcudart.so.11.0"), Some(11));
        assert_eq!(version("libcudart.so.14"), Some(14));
        for name in [
            "libcudart.so.12",
            "libcudart.so.13",
            "libcudart.so",
            "libcuda.so.1",
            "libc.so.6",
        ] {
            assert_eq!(version(name), None, "{name}");
        }
    }
}
