//! Prepares the Causeway function for processes: enables it, and binds it to the driver that counts
//! its interrupts.

use std::fs;
use std::io;
use std::path::Path;

use causeway_sysfs::PciFunction;

use crate::console::say;

const DRIVERS: &str = "/sys/bus/pci/drivers";
const DRIVER: &str = "uio_pci_generic";

/// Enables the function, and binds it to the driver that reports its interrupts to processes, if
/// the kernel has that driver.
pub(crate) fn prepare(function: &PciFunction) {
    if let Err(error) = function.enable() {
        say(&error.to_string());
    }
    if !Path::new(DRIVERS).join(DRIVER).exists() {
        // Programs get along without interrupts.
        return;
    }
    if let Err(error) = bind(function) {
        let name = function.name();
        say(&format!("cannot bind {name} to {DRIVER}: {error}"));
    }
}

fn bind(function: &PciFunction) -> io::Result<()> {
    let bound = function.path("driver");
    if bound.exists() {
        return Ok(());
    }
    fs::write(function.path("driver_override"), DRIVER)?;
    fs::write("/sys/bus/pci/drivers_probe", function.name())?;
    // A driver that refuses a function is not an error of the probe.
    if bound.exists() {
        Ok(())
    } else {
        Err(io::Error::other("the driver refuses the function"))
    }
}
