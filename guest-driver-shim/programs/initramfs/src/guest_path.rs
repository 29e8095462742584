//! Paths in a guest.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Longest path that the kernel unpacks (`PATH_MAX`, with the zero byte at its end and the slash at
/// its begin).
const BYTES_MAX: usize = 4096 - 2;
/// Longest name of a file (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

/// An absolute path of a file in a guest, without `.`, `..` and repeated slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestPath(
    /// Without the slash at its begin.
    Vec<u8>,
);

/// Why a path cannot name a file in a guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestPathError {
    /// The path does not have the form of a file's absolute path.
    #[error("`{}` is not a path of a file in the guest: {rule}", path.display())]
    Form {
        /// The path.
        path: PathBuf,
        /// The rule that the path breaks.
        rule: &'static str,
    },
    /// The path, or a name in it, is longer than Linux allows.
    #[error(
        "the path in the guest is too long: it has {bytes} bytes (at most {BYTES_MAX} are allowed) \
         and its longest part has {name_bytes} bytes (at most {NAME_BYTES_MAX})"
    )]
    Long {
        /// Length of the path in bytes.
        bytes: usize,
        /// Length of the longest name in the path, in bytes.
        name_bytes: usize,
    },
}

impl GuestPath {
    /// Checks that `path` can name a file in a guest, and returns it in its shortest form.
    ///
    /// # Errors
    /// [`GuestPathError::Form`] if `path` does not begin with `/`, does not end with a file name,
    /// or contains `..` or a zero byte; [`GuestPathError::Long`] if it is longer than Linux allows.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, GuestPathError> {
        let path = path.as_ref();
        let wrong = |rule| GuestPathError::Form {
            path: path.to_owned(),
            rule,
        };
        let bytes = path.as_os_str().as_bytes();
        if bytes.contains(&0) {
            return Err(wrong("it must not contain a zero byte"));
        }
        if bytes.first() != Some(&b'/') {
            return Err(wrong("it must begin with /"));
        }
        let mut names: Vec<&[u8]> = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name.as_bytes()),
                Component::ParentDir => return Err(wrong("it must not contain ..")),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        if names.is_empty() || bytes.ends_with(b"/") {
            return Err(wrong("it must end with the name of a file"));
        }
        let name_bytes = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let joined = names.join(&b'/');
        if joined.len() > BYTES_MAX || name_bytes > NAME_BYTES_MAX {
            let bytes = joined.len();
            return Err(GuestPathError::Long { bytes, name_bytes });
        }
        Ok(Self(joined))
    }

    /// Returns the path of a file called `name` in `folder`, which is an absolute path.
    ///
    /// # Errors
    /// [`GuestPathError::Form`] if `name` is empty, is `..`, or contains a zero byte;
    /// [`GuestPathError::Long`] if the path is longer than Linux allows.
    pub fn in_folder(folder: &str, name: &OsStr) -> Result<Self, GuestPathError> {
        Self::new(Path::new(folder).join(name))
    }

    /// Returns the path without its leading slash, as archives have it.
    pub(crate) fn archived(&self) -> &[u8] {
        &self.0
    }

    /// Returns the folders above the path, outermost first, as archives have them.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &[u8]> {
        let slashes = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        slashes.map(|(at, _)| &self.0[..at])
    }

    /// Returns the path with its leading slash, as programs in the guest use it.
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
            ("/", "end with the name of a file"),
            ("/data/", "end with the name of a file"),
            ("/a\0b", "zero byte"),
        ] {
            let message = GuestPath::new(path).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
        let name = format!("/{}", "n".repeat(256));
        let message = GuestPath::new(name).unwrap_err().to_string();
        assert!(message.contains("its longest part has 256"), "{message}");
        let long = "/n".repeat(2048);
        assert!(GuestPath::new(long).is_err());
    }
}
