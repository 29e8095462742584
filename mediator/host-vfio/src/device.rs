//! Devices that are held.

use std::error::Error;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_memory::DeviceMemory;
use parking_lot::Mutex;

use crate::Address;
use crate::container::{Container, Kind, vfio_errno};
use crate::hardware::{Description, Hardware};
use crate::host::PciFunction;
use crate::kernel::KernelDevice;
use crate::mapping::{MapError, Mapping};
use crate::memory::RegionMemory;
use crate::preflight::PreflightError;
use crate::region::{Region, RegionIndex};
use crate::reset::{ResetError, ResetMethod, ResetReach};
use crate::statistics::{Counters, DeviceStatistics};
use crate::watch::{Watch, WatchError};

mod access;
mod decoding;
mod vectors;

pub use decoding::Decoding;
use vectors::Enabled;

/// Why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device is not available.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// This process has the device open already.
    #[error("device {address} is given twice: it is open already")]
    Twice {
        /// The device.
        address: Address,
    },
    /// The container is a fake without VFIO.
    #[error("device {address} cannot be opened in a container without VFIO")]
    NoVfio {
        /// The device.
        address: Address,
    },
    /// The kernel does not open the device.
    #[error("cannot open device {address} by {kind}")]
    Failed {
        /// The device.
        address: Address,
        /// The kernel interface.
        kind: Kind,
        /// The kernel's error.
        source: io::Error,
    },
    /// The device does not describe its regions and interrupts.
    #[error("cannot read the regions and interrupts of device {address}")]
    Describe {
        /// The device.
        address: Address,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A device that this process has open.
///
/// Dropping it disables its interrupts, takes its right to do DMA (bus mastering), and resets it.
/// It is given back when its [mappings](Mapping) are gone too: then the container's DMA is unmapped
/// if it was the last device in it, the device is closed, and its group and the container follow.
#[derive(Debug)]
pub struct Device {
    address: Address,
    /// What else is in its IOMMU group.
    companions: Vec<PciFunction>,
    description: Description,
    counters: Counters,
    enabled: Mutex<Option<Enabled>>,
    hardware: Arc<dyn Hardware>,
}

impl Device {
    /// Checks that a device is available, opens it in a container, and resets it.
    ///
    /// A device that cannot be reset is opened nevertheless, with a warning that says what that
    /// means.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(container: &Arc<Container>, address: Address) -> Result<Self, OpenError> {
        let vfio = container
            .vfio
            .as_ref()
            .ok_or(OpenError::NoVfio { address })?;
        if container.open().contains_key(&address) {
            return Err(OpenError::Twice { address });
        }
        let function = container.host().preflight(address, 0)?;
        let hardware = hold(container, &function, || {
            KernelDevice::open(container, vfio, &function)
        })?;
        let companions = function.group.map(|group| container.host().group(group));
        let mut companions = companions.unwrap_or_default();
        companions.retain(|companion| companion.address != address);
        let device = Self::over(address, companions, Arc::new(hardware))?;
        match device.reset_within(ResetReach::Alone) {
            Ok(method) => log::debug!("device {address}: {method}"),
            Err(e) => warn(&e),
        }
        Ok(device)
    }

    pub(crate) fn over(
        address: Address,
        companions: Vec<PciFunction>,
        hardware: Arc<dyn Hardware>,
    ) -> Result<Self, OpenError> {
        let description = hardware.describe();
        let description = description.map_err(|source| OpenError::Describe { address, source })?;
        Ok(Self {
            address,
            companions,
            description,
            counters: Counters::default(),
            enabled: Mutex::default(),
            hardware,
        })
    }

    /// Returns its address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Returns the other functions of its IOMMU group. None of them is used by a driver of the
    /// host.
    pub fn companions(&self) -> &[PciFunction] {
        &self.companions
    }

    /// Returns its regions; those that are empty are left out.
    pub fn regions(&self) -> &[Region] {
        &self.description.regions
    }

    /// Returns a region, if it is not empty.
    pub fn region(&self, index: RegionIndex) -> Option<&Region> {
        self.regions().iter().find(|region| region.index == index)
    }

    /// Returns the device's file, in which regions begin at their [`Region::file_offset`].
    pub fn file(&self) -> BorrowedFd<'_> {
        self.hardware.file()
    }

    /// Maps `[offset, offset + bytes)` of a region, in multiples of 4 KiB.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map(&self, index: RegionIndex, offset: u64, bytes: u64) -> Result<Mapping, MapError> {
        let region = self.mappable(index)?;
        let mapping = Mapping::new(&self.hardware, self.address, region, offset, bytes)?;
        Counters::add(&self.counters.mapped_bytes, bytes);
        Ok(mapping)
    }

    /// `[offset, offset + bytes)` of a region, in multiples of 4 KiB, as memory that can be shown
    /// to a guest.
    ///
    /// # Errors
    /// [`MapError`], if it cannot be mapped.
    pub fn memory(
        &self,
        index: RegionIndex,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, MapError> {
        let region = self.mappable(index)?;
        let memory = RegionMemory::new(&self.hardware, self.address, region, offset, bytes)?;
        Ok(Arc::new(memory))
    }

    fn mappable(&self, index: RegionIndex) -> Result<&Region, MapError> {
        self.region(index).ok_or(MapError::Absent {
            address: self.address,
            region: index,
        })
    }

    /// Brings the device into the state that it has after power-up, except for configuration space,
    /// which the kernel restores. A device that has no reset of its own is reset with its bus, if
    /// all others there are open in the same container: they are hit too. (The resets when a device
    /// is opened and dropped hit no others.)
    ///
    /// # Errors
    /// [`ResetError`]: the device has no reset, or its reset failed.
    pub fn reset(&self) -> Result<ResetMethod, ResetError> {
        self.reset_within(ResetReach::Container)
    }

    fn reset_within(&self, reach: ResetReach) -> Result<ResetMethod, ResetError> {
        let method = self.hardware.reset(reach)?;
        Counters::add(&self.counters.resets, 1);
        Ok(method)
    }

    /// Watches for resets, errors and requests to give the device back. A second watch replaces the
    /// first.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn watch(&self) -> Result<Watch, WatchError> {
        Watch::new(self.address, &*self.hardware, &self.description)
    }

    /// Returns counters of accesses, interrupts, resets and mappings.
    pub fn statistics(&self) -> DeviceStatistics {
        self.counters.sample()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Err(e) = self.disable_interrupts() {
            warn(&e);
        }
        if let Err(e) = self.set_bus_mastering(false) {
            warn(&e);
        }
        match self.reset_within(ResetReach::Alone) {
            Ok(_) => {}
            // It was said when the device was opened.
            Err(e) if e.is_permanent() => log::debug!("{e}"),
            Err(e) if e.is_locked_out() => {
                log::info!(
                    "{e}: the host unbinds the device at the moment, and gets it without a reset"
                );
            }
            Err(e) => warn(&e),
        }
    }
}

/// Logs what is no reason to stop, with its cause.
fn warn(error: &dyn Error) {
    match error.source() {
        Some(cause) => log::warn!("{error}: {cause}"),
        None => log::warn!("{error}"),
    }
}

/// Opens what `open` opens, and notes it as open in the container.
fn hold(
    container: &Container,
    function: &PciFunction,
    open: impl FnOnce() -> Result<KernelDevice, vfio_ioctls::VfioError>,
) -> Result<KernelDevice, OpenError> {
    let address = function.address;
    // Held meanwhile: another thread may give back a function of the same group.
    let mut devices = container.open();
    if devices.contains_key(&address) {
        return Err(OpenError::Twice { address });
    }
    let device = open().map_err(|e| open_error(container, function, vfio_errno(e)))?;
    devices.insert(address, function.group);
    Ok(device)
}

fn open_error(container: &Container, function: &PciFunction, source: io::Error) -> OpenError {
    let (address, kind) = (function.address, container.kind());
    let host = container.host();
    let [_, file] = match kind {
        Kind::Iommufd => host.device_files(function),
        Kind::Type1 => None,
    }
    .unwrap_or_else(|| host.group_files(function));
    let path = host.path(&file);
    match source.raw_os_error() {
        Some(libc::EBUSY) => match host.holder(&file) {
            Some(holder) if holder.pid == std::process::id() => OpenError::Twice { address },
            holder => PreflightError::InUse {
                address,
                path,
                holder,
            }
            .into(),
        },
        Some(libc::EACCES | libc::EPERM) => PreflightError::Permission { address, path }.into(),
        _ => OpenError::Failed {
            address,
            kind,
            source,
        },
    }
}
