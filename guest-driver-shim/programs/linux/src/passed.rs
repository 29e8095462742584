//! PCI functions that are passed through to a Linux guest, for programs that use them without a
//! driver in the Linux kernel.

mod interrupt;
mod memory;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use causeway_sysfs::Registers;

pub use interrupt::Pin;
pub use memory::dma_page;

/// Folder in which Linux lists PCI functions.
const DEVICES: &str = "/sys/bus/pci/devices";

/// Offset of the command register in configuration space (PCI Local Bus Specification 3.0, 6.2.2).
const COMMAND: u64 = 4;
/// Bits of the command register: the function may do DMA; the function must not use its pin.
const COMMAND_MASTER: u16 = 1 << 2;
const COMMAND_NO_PIN: u16 = 1 << 10;

/// A PCI function of the guest, found in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    folder: PathBuf,
}

impl PciFunction {
    /// Returns all PCI functions with this vendor and device ID, in the order of their addresses.
    #[must_use]
    pub fn all((vendor, device): (u16, u16)) -> Vec<Self> {
        let entries = fs::read_dir(DEVICES).into_iter().flatten().flatten();
        let mut functions: Vec<_> = entries
            .map(|entry| Self {
                folder: entry.path(),
            })
            .filter(|function| {
                function.id("vendor") == Some(vendor) && function.id("device") == Some(device)
            })
            .collect();
        functions.sort_by(|a, b| a.folder.cmp(&b.folder));
        functions
    }

    /// Returns the PCI address of the function, such as `0000:00:03.0`.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns the path of the function's file `name` in sysfs.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the ID in the function's file `name`, such as `subsystem_device`; `None` if the file
    /// has no number.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<u16> {
        let text = fs::read_to_string(self.path(name)).ok()?;
        u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    }

    /// Binds the function to the Linux driver `driver`.
    ///
    /// # Errors
    /// The error of writing to sysfs, or one that says that the driver has refused the function.
    pub fn bind(&self, driver: &str) -> io::Result<()> {
        fs::write(self.path("driver_override"), driver)?;
        fs::write("/sys/bus/pci/drivers_probe", self.name())?;
        match self.path("driver").exists() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "the driver {driver} has refused the PCI function {}",
                self.name()
            ))),
        }
    }

    /// Enables the function's memory and its DMA.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn enable(&self) -> io::Result<()> {
        fs::write(self.path("enable"), "1")?;
        self.change_command(|command| command | COMMAND_MASTER)
    }

    /// Maps BAR number `bar`, which has `bytes` bytes, in this process.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn map(&self, bar: usize, bytes: u64) -> io::Result<Registers> {
        let file = open(&self.path(&format!("resource{bar}")))?;
        Registers::map(file, 0, bytes)
    }

    fn change_command(&self, change: impl FnOnce(u16) -> u16) -> io::Result<()> {
        let configuration = open(&self.path("config"))?;
        let mut bytes = [0; 2];
        configuration.read_exact_at(&mut bytes, COMMAND)?;
        let command = u16::from_le_bytes(bytes);
        let changed = change(command);
        match changed == command {
            true => Ok(()),
            false => configuration.write_all_at(&changed.to_le_bytes(), COMMAND),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

impl crate::edu::Registers for Registers {
    fn load(&self, offset: u64) -> u32 {
        Self::load(self, offset)
    }

    fn store(&self, offset: u64, value: u32) {
        Self::store(self, offset, value);
    }
}
