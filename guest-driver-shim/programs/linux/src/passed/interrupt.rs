//! Interrupts by the pin of a PCI function, through the Linux driver `uio_pci_generic`: for each
//! interrupt, the driver counts it and masks the pin.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use super::{COMMAND_NO_PIN, PciFunction, open};

/// Name of the Linux driver.
const DRIVER: &str = "uio_pci_generic";

/// The interrupt pin of a PCI function.
#[derive(Debug)]
pub struct Pin {
    function: PciFunction,
    events: File,
}

impl Pin {
    /// Binds the function to the driver, and opens the file by which the driver reports interrupts.
    ///
    /// # Errors
    /// The error of the Linux kernel, or one that says that the driver has refused the function.
    pub fn open(function: &PciFunction) -> io::Result<Self> {
        function.bind(DRIVER)?;
        let mut entries = fs::read_dir(function.path("uio"))?;
        let entry = entries.next().ok_or(io::ErrorKind::NotFound)??;
        Ok(Self {
            function: function.clone(),
            events: open(&PathBuf::from("/dev").join(entry.file_name()))?,
        })
    }

    /// Unmasks the pin. The function interrupts at once if it has a reason already.
    ///
    /// # Errors
    /// The error of the access to the function's configuration space.
    pub fn unmask(&self) -> io::Result<()> {
        self.function
            .change_command(|command| command & !COMMAND_NO_PIN)
    }

    /// Waits for an interrupt, but no longer than `longest`. Returns the number of interrupts so
    /// far; `None` if no interrupt came.
    ///
    /// # Errors
    /// The error of the system call that failed.
    #[allow(unsafe_code)] // Waiting for a file has no safe form in the standard library.
    pub fn wait(&self, longest: Duration) -> io::Result<Option<u32>> {
        let mut polled = libc::pollfd {
            fd: self.events.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit_ms = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one structure, which outlives the call; the descriptor is open.
        match unsafe { libc::poll(&raw mut polled, 1, limit_ms) } {
            0 => return Ok(None),
            1 => {}
            _ => return Err(io::Error::last_os_error()),
        }
        let mut count = [0; 4];
        (&self.events).read_exact(&mut count)?;
        Ok(Some(u32::from_ne_bytes(count)))
    }
}
