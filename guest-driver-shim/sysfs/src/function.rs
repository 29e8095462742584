//! A PCI function in sysfs.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use causeway_protocol::pci::{BAR_APERTURE, DEVICE_ID, VENDOR_ID};

use crate::registers::Registers;

/// Where Linux lists PCI functions.
const DEVICES: &str = "/sys/bus/pci/devices";
/// Environment variable that names a function, where there are several.
pub const FUNCTION_VARIABLE: &str = "CAUSEWAY_FUNCTION";

/// Why this process cannot use a Causeway function.
#[derive(Debug, thiserror::Error)]
pub enum PciFunctionError {
    /// The machine has no Causeway function.
    #[error(
        "this machine has no Causeway device: {DEVICES} has no PCI function \
         {VENDOR_ID:04x}:{DEVICE_ID:04x}"
    )]
    Absent,
    /// The environment variable `CAUSEWAY_FUNCTION` does not contain the address of a Causeway
    /// function.
    #[error(
        "invalid value `{name}` of the environment variable {FUNCTION_VARIABLE}: it must be the \
         address of a Causeway device of this machine ({there})"
    )]
    NotNamed {
        /// Content of the environment variable.
        name: String,
        /// Addresses of the machine's Causeway functions on the PCI bus.
        there: String,
    },
    /// This process cannot use the function.
    #[error("cannot use the Causeway device {function}: {what}")]
    Forbidden {
        /// Address of the function on the bus.
        function: String,
        /// Why this process cannot use the function.
        what: NotUsable,
    },
}

/// Why a PCI function cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NotUsable {
    /// A file of the function in sysfs cannot be opened or mapped.
    #[error(
        "cannot open or map the Causeway device's file {path}: {source}{hint}",
        path = .path.display(),
        hint = hint(.source)
    )]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The BAR with this number has no address.
    #[error(
        "BAR {0} of the Causeway device has no address: neither the guest's firmware nor its Linux \
         kernel assigned one"
    )]
    Bar(usize),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run the program as root",
        _ => "",
    }
}

/// The memory that a base address register (BAR) of a PCI function describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Guest-physical address of the BAR's memory.
    pub address: u64,
    /// Size of the BAR's memory in bytes.
    pub bytes: u64,
}

/// A Causeway function of this machine, which Linux represents as a folder in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    folder: PathBuf,
}

impl PciFunction {
    /// Returns the Causeway function that the environment variable `CAUSEWAY_FUNCTION` names, or
    /// the first one if the variable is not set.
    ///
    /// # Errors
    /// [`PciFunctionError::Absent`] if the machine has no Causeway function,
    /// [`PciFunctionError::NotNamed`] if the variable does not contain the address of a Causeway
    /// function.
    pub fn find() -> Result<Self, PciFunctionError> {
        choose(Self::all(), std::env::var_os(FUNCTION_VARIABLE))
    }

    /// Returns all Causeway functions of this machine, in the order of their addresses on the bus.
    pub fn all() -> Vec<Self> {
        all_in(Path::new(DEVICES))
    }

    #[cfg(test)]
    pub(crate) const fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the address of the function on the bus, such as `0000:00:01.0`.
    pub fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns the path of the function's sysfs file `name`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Opens the function's sysfs file `name` for reading and writing.
    ///
    /// # Errors
    /// [`PciFunctionError::Forbidden`] if the file cannot be opened.
    pub fn open(&self, name: &str) -> Result<File, PciFunctionError> {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).open(self.path(name));
        opened.map_err(|source| self.failed(name, source))
    }

    /// Returns the address and size of BAR number `index`.
    ///
    /// # Errors
    /// [`PciFunctionError::Forbidden`] if the BAR has no address, or sysfs cannot be read.
    pub fn bar(&self, index: usize) -> Result<Bar, PciFunctionError> {
        let text = fs::read_to_string(self.path("resource"))
            .map_err(|source| self.failed("resource", source))?;
        parse_bar(&text, index).ok_or_else(|| self.forbidden(NotUsable::Bar(index)))
    }

    /// Enables the function, so that it answers accesses to its BARs.
    ///
    /// # Errors
    /// [`PciFunctionError::Forbidden`] if the Linux kernel refuses, for example because the process
    /// is not root.
    pub fn enable(&self) -> Result<(), PciFunctionError> {
        let path = self.path("enable");
        let enabled = fs::read_to_string(&path).is_ok_and(|text| text.trim() != "0");
        if enabled {
            return Ok(());
        }
        fs::write(&path, "1").map_err(|source| self.failed("enable", source))
    }

    /// Maps all memory of BAR number `bar` into this process.
    ///
    /// # Errors
    /// [`PciFunctionError::Forbidden`] if the BAR has no address or cannot be mapped.
    pub fn map(&self, bar: usize) -> Result<Registers, PciFunctionError> {
        let bytes = self.bar(bar)?.bytes;
        self.map_part(bar, 0, bytes)
    }

    /// Maps the `bytes` bytes at `offset` of BAR number `bar` into this process. Both must be
    /// multiples of the page size.
    ///
    /// # Errors
    /// [`PciFunctionError::Forbidden`] if the Linux kernel cannot map them.
    pub fn map_part(
        &self,
        bar: usize,
        offset: u64,
        bytes: u64,
    ) -> Result<Registers, PciFunctionError> {
        debug_assert_ne!(bar, BAR_APERTURE, "is mapped piece by piece");
        let name = format!("resource{bar}");
        let mapped = Registers::map(self.open(&name)?, offset, bytes);
        mapped.map_err(|source| self.failed(&name, source))
    }

    /// Returns the error which says that this process cannot use the function's sysfs file `name`,
    /// because of the Linux kernel's error `source`.
    pub fn failed(&self, name: &str, source: io::Error) -> PciFunctionError {
        let path = self.path(name);
        self.forbidden(NotUsable::File { path, source })
    }

    /// Returns the error which says that this process cannot use the function, for the reason
    /// `what`.
    #[must_use]
    pub fn forbidden(&self, what: NotUsable) -> PciFunctionError {
        PciFunctionError::Forbidden {
            function: self.name(),
            what,
        }
    }
}

fn all_in(devices: &Path) -> Vec<PciFunction> {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path());
    let mut functions: Vec<_> = folders
        .filter(|folder| {
            number(folder, "vendor") == Some(VENDOR_ID)
                && number(folder, "device") == Some(DEVICE_ID)
        })
        .map(|folder| PciFunction { folder })
        .collect();
    functions.sort_by(|a, b| a.folder.cmp(&b.folder));
    functions
}

fn choose(
    functions: Vec<PciFunction>,
    wanted: Option<OsString>,
) -> Result<PciFunction, PciFunctionError> {
    let Some(wanted) = wanted else {
        return functions.into_iter().next().ok_or(PciFunctionError::Absent);
    };
    let name = wanted.to_string_lossy().into_owned();
    let there: Vec<_> = functions.iter().map(PciFunction::name).collect();
    let named = functions
        .into_iter()
        .find(|function| function.name() == name);
    named.ok_or_else(|| PciFunctionError::NotNamed {
        name,
        there: if there.is_empty() {
            String::from("none")
        } else {
            there.join(", ")
        },
    })
}

/// A number, which sysfs writes as 0x and four hexadecimal digits.
fn number(folder: &Path, name: &str) -> Option<u16> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// Line `index` of sysfs `resource`: first address, last address, flags. Zeros stand for a BAR that
/// has no address.
fn parse_bar(text: &str, index: usize) -> Option<Bar> {
    let mut words = text.lines().nth(index)?.split_whitespace();
    let mut hexadecimal = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (first, last) = (hexadecimal()?, hexadecimal()?);
    let bytes = last.checked_sub(first)?.checked_add(1)?;
    (first != 0).then_some(Bar {
        address: first,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCE: &str = "\
0x00000000e0000000 0x00000000e003ffff 0x0000000000040200
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000004000000000 0x0000004fffffffff 0x000000000014220c
";

    #[test]
    fn bars_are_read_and_those_without_an_address_are_none() {
        let registers = Bar {
            address: 0xe000_0000,
            bytes: 256 << 10,
        };
        assert_eq!(parse_bar(RESOURCE, 0), Some(registers));
        assert_eq!(parse_bar(RESOURCE, 1), None);
        assert_eq!(parse_bar(RESOURCE, 2).map(|bar| bar.bytes), Some(64 << 30));
        assert_eq!(parse_bar(RESOURCE, 3), None);
        assert_eq!(parse_bar("0x5 0x4 0x0", 0), None);
        assert_eq!(parse_bar("garbage", 0), None);
    }

    #[test]
    fn functions_are_found_chosen_and_missed_with_what_there_is() {
        let devices = std::env::temp_dir().join(format!("causeway-pci-{}", std::process::id()));
        for (name, vendor, device) in [
            ("0000:00:02.0", "0xca57\n", "0x0001\n"),
            ("0000:00:01.0", "0xca57\n", "0x0001\n"),
            ("0000:00:00.0", "0x8086\n", "0x0001\n"),
            ("0000:00:03.0", "0xca57\n", "0x0002\n"),
            ("0000:00:04.0", "garbage", ""),
        ] {
            let folder = devices.join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("vendor"), vendor).unwrap();
            fs::write(folder.join("device"), device).unwrap();
        }
        let all = all_in(&devices);
        fs::remove_dir_all(&devices).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all_in(&devices), [], "the folder is gone");
        let name = |wanted: Option<&str>| {
            choose(all.clone(), wanted.map(Into::into)).map(|function| function.name())
        };
        assert_eq!(name(None).unwrap(), "0000:00:01.0");
        assert_eq!(name(Some("0000:00:02.0")).unwrap(), "0000:00:02.0");
        let missed = name(Some("0000:00:09.0")).unwrap_err().to_string();
        assert!(missed.contains("0000:00:01.0, 0000:00:02.0"), "{missed}");
        let absent = choose(Vec::new(), None).unwrap_err().to_string();
        assert!(absent.contains("no PCI function ca57:0001"), "{absent}");
    }
}
