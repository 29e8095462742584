//! Paths of files in a guest.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Longest path that the Linux kernel unpacks: `PATH_MAX` without the zero byte at the end and the
/// slash at the beginning.
const BYTES_MAX: usize = 4096 - 2;
/// Longest name of a file (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

/// An absolute path of a file in a guest, without `.`, `..` and doubled slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestPath(
    /// The path without the slash at its beginning.
    Vec<u8>,
);

/// The reason for which a path cannot be that of a file in a guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestPathError {
    /// The path does not begin with a slash.
    #[error("`{}` is not a path in the guest: it must begin with /", path.display())]
    Relative {
        /// The path as given.
        path: PathBuf,
    },
    /// The path contains `..`.
    #[error("`{}` is not a path in the guest: it must not contain ..", path.display())]
    Parent {
        /// The path as given.
        path: PathBuf,
    },
    /// The path is the root or ends with a slash, so it has no name.
    #[error("`{}` does not name a file in the guest: add the file's name", path.display())]
    NoName {
        /// The path as given.
        path: PathBuf,
    },
    /// The path contains a zero byte.
    #[error("`{}` is not a path in the guest: it contains a zero byte", path.display())]
    Zero {
        /// The path as given.
        path: PathBuf,
    },
    /// The path, or a name in it, is longer than Linux allows.
    #[error(
        "a path in the guest has {bytes} bytes and a name of {name_bytes} bytes: at most \
         {BYTES_MAX} and {NAME_BYTES_MAX} bytes are possible"
    )]
    Long {
        /// Length of the path in bytes.
        bytes: usize,
        /// Length of the longest name in the path, in bytes.
        name_bytes: usize,
    },
}

impl GuestPath {
    /// Checks that `path` can be the path of a file in a guest, and returns it.
    ///
    /// # Errors
    /// * [`GuestPathError::Relative`] if the path does not begin with `/`.
    /// * [`GuestPathError::Parent`] if the path contains `..`.
    /// * [`GuestPathError::NoName`] if the path ends with `/`.
    /// * [`GuestPathError::Zero`] if the path contains a zero byte.
    /// * [`GuestPathError::Long`] if the path or a name in it is longer than Linux allows.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, GuestPathError> {
        let path = path.as_ref();
        let given = || path.to_owned();
        let bytes = path.as_os_str().as_bytes();
        if bytes.contains(&0) {
            return Err(GuestPathError::Zero { path: given() });
        }
        if bytes.first() != Some(&b'/') {
            return Err(GuestPathError::Relative { path: given() });
        }
        let mut names: Vec<&[u8]> = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name.as_bytes()),
                Component::ParentDir => return Err(GuestPathError::Parent { path: given() }),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        if names.is_empty() || bytes.ends_with(b"/") {
            return Err(GuestPathError::NoName { path: given() });
        }
        let name_bytes = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let joined = names.join(&b'/');
        if joined.len() > BYTES_MAX || name_bytes > NAME_BYTES_MAX {
            let bytes = joined.len();
            return Err(GuestPathError::Long { bytes, name_bytes });
        }
        Ok(Self(joined))
    }

    /// Returns the path of the file `name` in the absolute path `folder`.
    ///
    /// # Errors
    /// [`GuestPathError`] if the name is empty, or cannot be the name of a file.
    pub fn in_folder(folder: &str, name: &OsStr) -> Result<Self, GuestPathError> {
        Self::new(Path::new(folder).join(name))
    }

    /// Returns the path without its leading slash: the form of paths in archives.
    pub(crate) fn archived(&self) -> &[u8] {
        &self.0
    }

    /// Returns the paths of all folders in which the file lies, the outermost first, without their
    /// leading slash.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &[u8]> {
        let slashes = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        slashes.map(|(at, _)| &self.0[..at])
    }

    /// Returns the path with its leading slash: the form that programs in the guest use.
    #[must_use]
    pub fn to_path(&self) -> PathBuf {
        let bytes = [b"/", self.0.as_slice()].concat();
        OsString::from_vec(bytes).into()
    }
}

impl std::fmt::Display for GuestPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_path().display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_plain() {
        let path = GuestPath::new("/data//./x").unwrap();
        assert_eq!(path, GuestPath::new("/data/x").unwrap());
        assert_eq!(path.to_string(), "/data/x");
        assert_eq!(path.folders().collect::<Vec<_>>(), [b"data"]);
        let deep = GuestPath::new("/a/b/c").unwrap();
        assert_eq!(deep.folders().collect::<Vec<_>>(), [&b"a"[..], b"a/b"]);
    }

    #[test]
    fn what_is_no_path_in_the_guest_is_refused_by_name() {
        for (path, reason) in [
            ("data/x", "must begin with /"),
            ("", "must begin with /"),
            ("/data/../../etc/x", "must not contain .."),
            ("/", "does not name a file"),
            ("/data/", "does not name a file"),
            ("/a\0b", "zero byte"),
        ] {
            let message = GuestPath::new(path).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
        let name = format!("/{}", "n".repeat(256));
        let message = GuestPath::new(name).unwrap_err().to_string();
        assert!(message.contains("a name of 256"), "{message}");
        let long = "/n".repeat(2048);
        assert!(GuestPath::new(long).is_err());
    }
}
