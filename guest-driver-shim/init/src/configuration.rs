//! What the init is to do: a file of the initramfs.
//!
//! The file is a sequence of `key=value` records, each ended by a zero byte, so that values can be
//! any words that a process can be given. Keys: `module` (path of a kernel module; in the order in
//! which they are loaded), `root` (block device with the root file system; at most once), `library`
//! (folder in which the program's dynamic linker looks for libraries, in order), `program` (path of
//! the program; exactly once), `argument` (of the program, in order).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Folder of a guest in which programs find what the initramfs brings beside a root file system:
/// files, and libraries in [`LIBRARIES`].
pub const FILES: &str = "/run/causeway";
/// Folder of a guest with the libraries that Causeway brings itself, such as `libcuda.so.1`.
pub const LIBRARIES: &str = "/run/causeway/lib";

const MODULE: &str = "module";
const ROOT: &str = "root";
const LIBRARY: &str = "library";
const PROGRAM: &str = "program";
const ARGUMENT: &str = "argument";

/// What `/init`, the first process of a Linux guest, is to do. It is stored in a file of the
/// initramfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Paths of the Linux kernel modules to load, in this order.
    pub modules: Vec<PathBuf>,
    /// Block device with the root file system of the program. Without one, the program runs in the
    /// initramfs. With one, it starts in [`FILES`].
    pub root: Option<PathBuf>,
    /// Folders in which the program's dynamic linker looks for libraries before all others.
    pub libraries: Vec<PathBuf>,
    /// Path of the program to run, in the guest.
    pub program: PathBuf,
    /// Arguments of the program, without its name.
    pub arguments: Vec<OsString>,
}

/// Why `/init` cannot use its configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error(
        "cannot read {path}, the file of the initramfs that says what /init runs: {source}; build \
         the initramfs again with `causeway initramfs`",
        path = Configuration::PATH
    )]
    Read {
        /// The kernel's error.
        source: io::Error,
    },
    /// A record has no key, or an unknown one.
    #[error(
        "invalid record `{record}` in {path}, the file of the initramfs that says what /init runs: \
         a record must begin with module=, root=, library=, program= or argument=; build the \
         initramfs again with `causeway initramfs`",
        path = Configuration::PATH
    )]
    Record {
        /// Content of the record.
        record: String,
    },
    /// The last record has no zero byte at its end.
    #[error(
        "{path}, the file of the initramfs that says what /init runs, is cut off (it does not end \
         with a zero byte): build the initramfs again with `causeway initramfs`",
        path = Configuration::PATH
    )]
    Truncated,
    /// The file names more than one root file system.
    #[error(
        "{path}, the file of the initramfs that says what /init runs, names {count} root file \
         systems instead of one at most: build the initramfs again with `causeway initramfs`",
        path = Configuration::PATH
    )]
    Roots {
        /// Number of root file systems that the file names.
        count: usize,
    },
    /// The file names no program, or more than one.
    #[error(
        "{path}, the file of the initramfs that says what /init runs, names {count} programs \
         instead of one: build the initramfs again with `causeway initramfs`",
        path = Configuration::PATH
    )]
    Programs {
        /// Number of programs that the file names.
        count: usize,
    },
}

impl Configuration {
    /// Path of the configuration file in the guest.
    pub const PATH: &str = "/causeway/run";

    /// Returns the content of the configuration file.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut record = |key: &str, value: &OsStr| {
            bytes.extend_from_slice(key.as_bytes());
            bytes.push(b'=');
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        };
        for module in &self.modules {
            record(MODULE, module.as_os_str());
        }
        if let Some(root) = &self.root {
            record(ROOT, root.as_os_str());
        }
        for folder in &self.libraries {
            record(LIBRARY, folder.as_os_str());
        }
        record(PROGRAM, self.program.as_os_str());
        for argument in &self.arguments {
            record(ARGUMENT, argument);
        }
        bytes
    }

    /// Reads the content of a configuration file.
    ///
    /// # Errors
    /// [`ConfigurationError::Truncated`] if the last record does not end with a zero byte, `Record`
    /// if a record has no known key, `Roots` if the file names several root file systems,
    /// `Programs` unless it names exactly one program.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigurationError> {
        let mut read = Self::default();
        let (mut roots, mut programs) = (Vec::new(), Vec::new());
        for record in bytes.split_inclusive(|byte| *byte == 0) {
            let record = record
                .strip_suffix(&[0])
                .ok_or(ConfigurationError::Truncated)?;
            let unknown = || ConfigurationError::Record {
                record: String::from_utf8_lossy(record).into_owned(),
            };
            let equals = record.iter().position(|byte| *byte == b'=');
            let (key, value) = record.split_at(equals.ok_or_else(unknown)?);
            let value = OsString::from_vec(value[1..].to_vec());
            match std::str::from_utf8(key) {
                Ok(MODULE) => read.modules.push(value.into()),
                Ok(ROOT) => roots.push(value.into()),
                Ok(LIBRARY) => read.libraries.push(value.into()),
                Ok(PROGRAM) => programs.push(value.into()),
                Ok(ARGUMENT) => read.arguments.push(value),
                _ => return Err(unknown()),
            }
        }
        let count = roots.len();
        read.root = roots.pop();
        if !roots.is_empty() {
            return Err(ConfigurationError::Roots { count });
        }
        let count = programs.len();
        let [program]: [PathBuf; 1] = programs
            .try_into()
            .map_err(|_| ConfigurationError::Programs { count })?;
        Ok(Self { program, ..read })
    }

    pub(crate) fn read() -> Result<Self, ConfigurationError> {
        let bytes = std::fs::read(Path::new(Self::PATH))
            .map_err(|source| ConfigurationError::Read { source })?;
        Self::parse(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_words_come_back_as_they_were() {
        let configuration = Configuration {
            modules: vec!["/lib/a.ko".into(), "/lib/b=c.ko".into()],
            root: Some("/dev/vda1".into()),
            libraries: vec![LIBRARIES.into(), "/opt/my libraries".into()],
            program: "/bin/my program".into(),
            arguments: ["", "two\nlines", "key=value", "program=/bin/sh"]
                .map(OsString::from)
                .into_iter()
                .chain([OsString::from_vec(vec![0xff, 0xfe])])
                .collect(),
        };
        let read = Configuration::parse(&configuration.render()).unwrap();
        assert_eq!(read, configuration);
    }

    #[test]
    fn odd_files_are_refused_with_what_is_wrong() {
        let refused = |bytes: &[u8]| Configuration::parse(bytes).unwrap_err().to_string();
        assert!(refused(b"").contains("0 programs"));
        assert!(refused(b"argument=x\0").contains("0 programs"));
        assert!(refused(b"program=/a\0program=/b\0").contains("2 programs"));
        assert!(refused(b"root=/a\0root=/b\0program=/c\0").contains("2 root file systems"));
        assert!(refused(b"program=/a").contains("cut off"));
        assert!(refused(b"colour=red\0").contains("`colour=red`"));
        assert!(refused(b"\0").contains("``"));
        assert!(refused(b"\xff\xff=\0").contains("must begin with module="));
    }
}
