//! The device over PCI, in an identity-mapped address space.

use core::ptr::NonNull;

use causeway_protocol::registers::{CONTROL_BYTES_MAX, Register, doorbells};
use causeway_shim::pci::{self, DeviceBars, FindError};
use causeway_shim::{ControlArea, Transport, Window};

use crate::machine::Machine;
use crate::port::IoPorts;

/// Addresses at and above this are not mapped (see [`causeway_protocol::boot`]).
const MAPPED_END: u64 = 512 << 30;

/// Why a bare guest cannot use the Causeway device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindDeviceError {
    /// The PCI bus has no usable Causeway function.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The guest's page tables do not map the addresses of the aperture.
    #[error(
        "cannot use the Causeway device: its aperture ({bytes:#x} bytes at guest-physical address \
         {aperture:#x}) ends above 512 GiB, but a bare guest maps only addresses below 512 GiB"
    )]
    OutOfReach {
        /// First guest-physical address of the aperture.
        aperture: u64,
        /// Size of the aperture in bytes.
        bytes: u64,
    },
    /// No RAM is left for the control area.
    #[error(
        "no RAM is left for the control area (the buffer for messages to the Causeway device): \
         give the VM more RAM with --memory"
    )]
    NoRam,
}

/// The transport of a bare guest. It reaches the device through the BARs of its PCI function, and
/// has its control area in guest RAM.
#[derive(Clone, Copy, Debug)]
pub struct PciTransport {
    found: DeviceBars,
    registers: Window,
    doorbells: Window,
    aperture: Window,
    control: ControlArea,
}

/// Returns a window over `bytes` bytes of device memory at guest-physical `address`, which must not
/// be RAM. Returns `None` for address 0, and if the guest's page tables do not map the range.
#[must_use]
pub fn device_memory(address: u64, bytes: u64) -> Option<Window> {
    let end = address.checked_add(bytes)?;
    (end <= MAPPED_END).then(|| device_window(address, bytes))?
}

fn device_window(address: u64, bytes: u64) -> Option<Window> {
    let base = NonNull::new(address as *mut u8)?;
    // SAFETY: identity-mapped device memory: never RAM that Rust uses, and any access to it is
    // defined by the device.
    Some(unsafe { Window::new(base, bytes as usize) })
}

impl PciTransport {
    /// Finds the first Causeway function on the PCI bus, and allocates RAM for the control area.
    ///
    /// # Errors
    /// [`FindDeviceError::Find`] if there is no usable function, `OutOfReach` if the guest's page
    /// tables do not map its aperture, `NoRam` if no RAM is left for the control area.
    pub fn find(machine: &Machine) -> Result<Self, FindDeviceError> {
        Self::find_nth(machine, 0)
    }

    /// As [`Self::find`], for GPU number `gpu` of the VM, counted from 0.
    ///
    /// # Errors
    /// As for [`Self::find`].
    pub fn find_nth(machine: &Machine, gpu: usize) -> Result<Self, FindDeviceError> {
        let found = pci::find_nth(&IoPorts, gpu)?;
        let control = machine.ram().window(CONTROL_BYTES_MAX as usize);
        let control = control.ok_or(FindDeviceError::NoRam)?;
        Self::at(found, control)
    }

    /// Returns the transport to the device whose BARs have the addresses `found`. `control` is
    /// guest RAM that becomes the control area.
    ///
    /// # Errors
    /// [`FindDeviceError::OutOfReach`] if the guest's page tables do not map the aperture, `Find`
    /// if a BAR has address 0.
    pub fn at(found: DeviceBars, control: Window) -> Result<Self, FindDeviceError> {
        let unset = |bar| FindDeviceError::Find(FindError::BarUnset { bar });
        let bar0 = causeway_protocol::registers::BAR0_BYTES;
        let registers = device_window(found.registers, bar0).ok_or(unset(0))?;
        let doorbells = device_window(found.doorbells, doorbells::BAR4_BYTES).ok_or(unset(4))?;
        let bytes = u64::from(load(&registers, Register::ApertureLow))
            | u64::from(load(&registers, Register::ApertureHigh)) << 32;
        let end = found.aperture.checked_add(bytes);
        if end.is_none_or(|end| end > MAPPED_END) {
            return Err(FindDeviceError::OutOfReach {
                aperture: found.aperture,
                bytes,
            });
        }
        let aperture = device_window(found.aperture, bytes).ok_or(unset(2))?;
        let address = control.as_ptr().as_ptr() as u64;
        let control = ControlArea {
            window: control,
            address,
        };
        Ok(Self {
            found,
            registers,
            doorbells,
            aperture,
            control,
        })
    }

    /// Returns the guest-physical addresses of the device's BARs.
    #[must_use]
    pub const fn found(&self) -> &DeviceBars {
        &self.found
    }

    /// Returns a window over BAR 0, for accesses to offsets at which no [`Register`] exists.
    #[must_use]
    pub const fn registers(&self) -> &Window {
        &self.registers
    }

    /// Returns a window over BAR 4, which contains the MSI-X structures and the doorbells.
    #[must_use]
    pub const fn doorbells(&self) -> &Window {
        &self.doorbells
    }

    /// Returns the guest-physical address of the byte at `offset` in the aperture.
    #[must_use]
    pub const fn aperture_address(&self, offset: u64) -> u64 {
        self.found.aperture + offset
    }
}

fn load(registers: &Window, register: Register) -> u32 {
    // Every register lies, aligned, in BAR 0.
    registers.load_u32(register as usize).unwrap_or(u32::MAX)
}

impl Transport for PciTransport {
    fn read_register(&self, register: Register) -> u32 {
        load(&self.registers, register)
    }
    fn write_register(&self, register: Register, value: u32) {
        // As for loads.
        let _ = self.registers.store_u32(register as usize, value);
    }
    fn control_area(&self) -> ControlArea {
        self.control
    }
    fn aperture(&self) -> Window {
        self.aperture
    }
    fn ring_doorbell(&self, index: u32) {
        let offset = doorbells::FIRST + u64::from(index) * doorbells::STRIDE;
        // A doorbell that does not exist cannot be rung; the device counts what it does not know as
        // stray.
        let _ = self.doorbells.store_u32(offset as usize, 1);
    }
}
