//! The Causeway function on the guest's PCI bus.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use causeway_protocol::pci::{DEVICE_ID, VENDOR_ID};

use crate::console::say;

const DEVICES: &str = "/sys/bus/pci/devices";
const DRIVER: &str = "uio_pci_generic";

/// A Causeway function in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    folder: PathBuf,
}

/// The functions that there are; none if there is no PCI bus.
pub(crate) fn find_all() -> Vec<Function> {
    let mut functions = find_in(Path::new(DEVICES));
    functions.sort_by(|a, b| a.folder.cmp(&b.folder));
    functions
}

fn find_in(devices: &Path) -> Vec<Function> {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path());
    folders
        .filter(|folder| {
            number(folder, "vendor") == Some(VENDOR_ID)
                && number(folder, "device") == Some(DEVICE_ID)
        })
        .map(|folder| Function { folder })
        .collect()
}

/// A number of a function, which sysfs writes as 0x and four hexadecimal digits.
fn number(folder: &Path, name: &str) -> Option<u16> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

impl Function {
    #[cfg(test)]
    pub(crate) fn at(folder: &Path) -> Self {
        let folder = folder.to_owned();
        Self { folder }
    }

    /// A file of the function.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Has the function decode its addresses, and its interrupt reach processes where the kernel has the driver for it.
    pub(crate) fn prepare(&self) {
        if let Err(error) = fs::write(self.file("enable"), "1") {
            say(&format!("cannot enable {}: {error}", self.folder.display()));
        }
        if !Path::new("/sys/bus/pci/drivers").join(DRIVER).exists() {
            // Programs get along without interrupts.
            return;
        }
        if let Err(error) = self.bind() {
            let folder = self.folder.display();
            say(&format!("cannot give {folder} to {DRIVER}: {error}"));
        }
    }

    fn bind(&self) -> io::Result<()> {
        if self.file("driver").exists() {
            return Ok(());
        }
        let address = self.folder.file_name().ok_or(io::ErrorKind::NotFound)?;
        fs::write(self.file("driver_override"), DRIVER)?;
        fs::write("/sys/bus/pci/drivers_probe", address.as_encoded_bytes())?;
        // A driver that refuses a function is not an error of the probe.
        if self.file("driver").exists() {
            Ok(())
        } else {
            Err(io::Error::other("the driver has refused it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_vendor_and_device() {
        let devices = std::env::temp_dir().join(format!("causeway-init-{}", std::process::id()));
        let put = |name: &str, vendor: &str, device: &str| {
            fs::create_dir_all(devices.join(name)).unwrap();
            fs::write(devices.join(name).join("vendor"), vendor).unwrap();
            fs::write(devices.join(name).join("device"), device).unwrap();
        };
        put("0000:00:00.0", "0x8086\n", "0x29c0\n");
        put("0000:00:01.0", "0xca57\n", "0x0001\n");
        put("0000:00:02.0", "0xca57\n", "0x0002\n");
        put("0000:00:03.0", "garbage", "");
        let found = find_in(&devices);
        fs::remove_dir_all(&devices).unwrap();
        assert_eq!(
            found,
            [Function {
                folder: devices.join("0000:00:01.0")
            }]
        );
        assert_eq!(find_in(Path::new("/nonexistent")), []);
    }
}
