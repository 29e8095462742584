//! What the init is to do: a file of the initramfs.
//!
//! The file is a sequence of `key=value` records, each ended by a zero byte, so that values can be
//! any words that a process can be given.
//!
//! | key | value | how often |
//! |---|---|---|
//! | `module` | path of a kernel module | any number, in the order in which they are loaded |
//! | `root` | the root file system, as [`Root`] says | at most once |
//! | `share` | a folder of the host, as [`Share`] says | any number |
//! | `network` | a network interface, as [`Network`] says | at most once |
//! | `library` | folder in which the program's dynamic linker looks first | any number, in order |
//! | `environment` | `NAME=VALUE` | any number |
//! | `folder` | folder in which the program starts | at most once |
//! | `user` | as [`User`] says | at most once |
//! | `program` | path of the program, or its name in `PATH` | once |
//! | `argument` | of the program | any number, in order |

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::network::Network;
use crate::sources::{Root, Share};
use crate::users::User;

/// Folder of a guest in which programs find what the initramfs brings beside a root file system:
/// files, and libraries in [`LIBRARIES`].
pub const FILES: &str = "/run/causeway";
/// Folder of a guest with the libraries that Causeway brings itself, such as `libcuda.so.1`.
pub const LIBRARIES: &str = "/run/causeway/lib";

const MODULE: &str = "module";
const ROOT: &str = "root";
const SHARE: &str = "share";
const NETWORK: &str = "network";
const LIBRARY: &str = "library";
const ENVIRONMENT: &str = "environment";
const FOLDER: &str = "folder";
const USER: &str = "user";
const PROGRAM: &str = "program";
const ARGUMENT: &str = "argument";

/// What `/init`, the first process of a Linux guest, is to do. It is stored in a file of the
/// initramfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Paths of the Linux kernel modules to load, in this order.
    pub modules: Vec<PathBuf>,
    /// The root file system of the program. Without one, the program runs in the initramfs.
    pub root: Option<Root>,
    /// Folders of the host, each of which is mounted in the root.
    pub shares: Vec<Share>,
    /// The network interface to start.
    pub network: Option<Network>,
    /// Folders in which the program's dynamic linker looks for libraries before all others.
    pub libraries: Vec<PathBuf>,
    /// Variables of the program's environment, as `NAME=VALUE`.
    pub environment: Vec<OsString>,
    /// Folder in which the program starts; by default [`FILES`] if a disk is the root, else the
    /// root's own folder.
    pub folder: Option<PathBuf>,
    /// User as which the program runs, instead of root.
    pub user: Option<User>,
    /// Path of the program to run, in the guest; or its name, which is looked up in `PATH`.
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
         a record must be KEY=VALUE, with a key and a value that this /init knows; build the \
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
    /// The file has too many records of a key, or too few.
    #[error(
        "{path}, the file of the initramfs that says what /init runs, has {count} records of \
         {key}= instead of {wanted}: build the initramfs again with `causeway initramfs`",
        path = Configuration::PATH
    )]
    Count {
        /// The key.
        key: &'static str,
        /// Number of its records in the file.
        count: usize,
        /// How many there may be.
        wanted: &'static str,
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
            record(ROOT, &root.render());
        }
        for share in &self.shares {
            record(SHARE, &share.render());
        }
        if let Some(network) = &self.network {
            record(NETWORK, &network.render());
        }
        for folder in &self.libraries {
            record(LIBRARY, folder.as_os_str());
        }
        for variable in &self.environment {
            record(ENVIRONMENT, variable);
        }
        if let Some(folder) = &self.folder {
            record(FOLDER, folder.as_os_str());
        }
        if let Some(user) = &self.user {
            record(USER, OsStr::new(&user.to_string()));
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
    /// if a record has no known key or an invalid value, `Count` if there are several roots,
    /// networks, folders or users, or not exactly one program.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigurationError> {
        let mut read = Self::default();
        let mut single = Single::default();
        for record in bytes.split_inclusive(|byte| *byte == 0) {
            let record = record
                .strip_suffix(&[0])
                .ok_or(ConfigurationError::Truncated)?;
            read.take(record, &mut single)
                .ok_or_else(|| ConfigurationError::Record {
                    record: String::from_utf8_lossy(record).into_owned(),
                })?;
        }
        read.root = at_most_one(ROOT, single.roots)?;
        read.network = at_most_one(NETWORK, single.networks)?;
        read.folder = at_most_one(FOLDER, single.folders)?;
        read.user = at_most_one(USER, single.users)?;
        let count = single.programs.len();
        let [program]: [PathBuf; 1] =
            single
                .programs
                .try_into()
                .map_err(|_| ConfigurationError::Count {
                    key: PROGRAM,
                    count,
                    wanted: "one",
                })?;
        Ok(Self { program, ..read })
    }

    /// Takes over one record. Returns `None` if it is not valid.
    fn take(&mut self, record: &[u8], single: &mut Single) -> Option<()> {
        let equals = record.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let value = OsString::from_vec(value.to_vec());
        match std::str::from_utf8(key).ok()? {
            MODULE => self.modules.push(value.into()),
            ROOT => single.roots.push(Root::parse(&value)?),
            SHARE => self.shares.push(Share::parse(&value)?),
            NETWORK => single.networks.push(Network::parse(&value)?),
            LIBRARY => self.libraries.push(value.into()),
            ENVIRONMENT => self.environment.push(value),
            FOLDER => single.folders.push(value.into()),
            USER => single.users.push(value.to_str()?.parse().ok()?),
            PROGRAM => single.programs.push(value.into()),
            ARGUMENT => self.arguments.push(value),
            _ => return None,
        }
        Some(())
    }

    pub(crate) fn read() -> Result<Self, ConfigurationError> {
        let bytes = std::fs::read(Path::new(Self::PATH))
            .map_err(|source| ConfigurationError::Read { source })?;
        Self::parse(&bytes)
    }
}

/// Records of which a file has one at most.
#[derive(Default)]
struct Single {
    roots: Vec<Root>,
    networks: Vec<Network>,
    folders: Vec<PathBuf>,
    users: Vec<User>,
    programs: Vec<PathBuf>,
}

fn at_most_one<T>(key: &'static str, mut found: Vec<T>) -> Result<Option<T>, ConfigurationError> {
    match found.len() {
        0 | 1 => Ok(found.pop()),
        count => Err(ConfigurationError::Count {
            key,
            count,
            wanted: "one at most",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Mac;
    use crate::sources::Layer;

    #[test]
    fn any_words_come_back_as_they_were() {
        let configuration = Configuration {
            modules: vec!["/lib/a.ko".into(), "/lib/b=c.ko".into()],
            root: Some(Root::Share(Share::new("root", true), Layer::Memory)),
            shares: vec![Share::new("data", false), Share::new("tools", true)],
            network: Some(Network {
                mac: Mac([2, 0, 0, 0, 0, 1]),
                address: Some(("10.0.2.15".parse().unwrap(), 24)),
                gateway: None,
                nameserver: None,
            }),
            libraries: vec![LIBRARIES.into(), "/opt/my libraries".into()],
            environment: vec!["A=b=c".into(), "B=".into()],
            folder: Some("/work here".into()),
            user: Some("1000:100".parse().unwrap()),
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
        assert!(refused(b"").contains("0 records of program="));
        assert!(refused(b"argument=x\0").contains("0 records of program="));
        assert!(refused(b"program=/a\0program=/b\0").contains("2 records of program="));
        for key in ["root", "network", "folder", "user"] {
            let value = match key {
                "user" => "1",
                "network" => "02:00:00:00:00:01,-,-,-",
                _ => "/dev/a",
            };
            let twice = format!("{key}={value}\0{key}={value}\0program=/c\0");
            let message = refused(twice.as_bytes());
            assert!(
                message.contains(&format!("2 records of {key}=")),
                "{message}"
            );
        }
        assert!(refused(b"share=\0program=/a\0").contains("`share=`"));
        assert!(refused(b"program=/a").contains("cut off"));
        assert!(refused(b"colour=red\0").contains("`colour=red`"));
        assert!(refused(b"\0").contains("``"));
        assert!(refused(b"\xff\xff=\0").contains("must be KEY=VALUE"));
    }
}
