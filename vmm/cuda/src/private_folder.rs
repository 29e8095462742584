//! A folder for one run of a program: the library, and the socket of its server.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use causeway_terminal::{Code, Failure, Leftover, shown_path};

/// A folder that only this user can enter. A drop removes it with all that is in it.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    _leftover: Leftover,
}

impl PrivateFolder {
    /// Creates a folder in the one for temporary files (`TMPDIR`).
    pub fn create() -> Result<Self, Failure> {
        let parent = std::env::temp_dir();
        let own = std::process::id();
        let mut number = 0_u32;
        loop {
            let path = parent.join(format!("causeway-cuda-{own}-{number}"));
            // Fails if the path exists, whoever has made it.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self::at(path)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(e) => {
                    let message = format!(
                        "cannot create a directory in {} (set TMPDIR to a directory that you can \
                         write to)",
                        shown_path(&parent)
                    );
                    return Err(Failure::new(Code::Crashed, message, e));
                }
            }
        }
    }

    fn at(path: PathBuf) -> Self {
        let left = path.clone();
        Self {
            path,
            _leftover: Leftover::new(move || drop(std::fs::remove_dir_all(left))),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.path) {
            log::warn!(
                "cannot remove {}, which this process created and no longer uses: {e}",
                shown_path(&self.path)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn folders_are_private_differ_and_go_with_their_files() {
        let (one, other) = (
            PrivateFolder::create().unwrap(),
            PrivateFolder::create().unwrap(),
        );
        let path = one.path().to_owned();
        assert_ne!(path, other.path());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::write(path.join("file"), "text").unwrap();
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }
}
