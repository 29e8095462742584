//! Devices that are held.

use std::error::Error;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_memory::DeviceMemory;
use parking_lot::Mutex;

use crate::Address;
use crate::container::{Container, Kind, Vfio, vfio_errno};
use crate::hardware::{Description, Hardware};
use crate::host::PciFunction;
use crate::interrupts::InterruptKind;
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

/// Why a PCI device cannot be opened through VFIO.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device is not available.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// This process has the device open already.
    #[error("device {address} is given twice: this process already has it open; give it once")]
    Twice {
        /// PCI address of the device.
        address: Address,
    },
    /// The container is a fake without VFIO.
    #[error("device {address} cannot be opened, because its VFIO container is a fake for tests")]
    NoVfio {
        /// PCI address of the device.
        address: Address,
    },
    /// The kernel refuses to open the device.
    #[error("cannot open device {address} through VFIO ({kind})")]
    Failed {
        /// PCI address of the device.
        address: Address,
        /// The kernel interface through which the device was to be opened.
        kind: Kind,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel does not describe the regions and interrupts of the device.
    #[error("cannot read the regions and interrupts of device {address}")]
    Describe {
        /// PCI address of the device.
        address: Address,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A PCI device that this process has opened through VFIO.
///
/// Dropping it disables the device's interrupts and DMA, and resets the device. The device file is
/// closed once every [mapping](Mapping) of the device is dropped too. Before the last device of a
/// container is closed, all DMA mappings of the container are removed.
#[derive(Debug)]
pub struct Device {
    address: Address,
    /// What else is in its IOMMU group.
    companions: Vec<PciFunction>,
    description: Description,
    counters: Counters,
    /// The kind of interrupts that is set up.
    enabled: Mutex<Option<InterruptKind>>,
    hardware: Arc<dyn Hardware>,
}

impl Device {
    /// Checks that the device at `address` can be opened, opens it in `container`, and resets it.
    ///
    /// If the device cannot be reset, it is opened nevertheless, and a warning in the log says why.
    /// The next user of the device may then read what this one leaves in it.
    ///
    /// # Errors
    /// [`OpenError`]: a check failed, the device is open already, or the kernel refuses.
    pub fn open(container: &Arc<Container>, address: Address) -> Result<Self, OpenError> {
        let vfio = container
            .vfio
            .as_ref()
            .ok_or(OpenError::NoVfio { address })?;
        if container.open.lock().contains_key(&address) {
            return Err(OpenError::Twice { address });
        }
        let function = container.host().preflight(address, 0)?;
        let hardware = hold(container, vfio, &function)?;
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

    /// Returns the device's address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Returns the other PCI functions in the device's IOMMU group. When the device was opened, no
    /// driver of the host used them for DMA.
    pub fn companions(&self) -> &[PciFunction] {
        &self.companions
    }

    /// Returns the regions of the device that are not empty, such as its BARs and its configuration
    /// space.
    pub fn regions(&self) -> &[Region] {
        &self.description.regions
    }

    /// Returns the region `index`; `None` if the device does not have it or it is empty.
    pub fn region(&self, index: RegionIndex) -> Option<&Region> {
        self.regions().iter().find(|region| region.index == index)
    }

    /// Returns the device's VFIO file, in which each region begins at its [`Region::file_offset`].
    pub fn file(&self) -> BorrowedFd<'_> {
        self.hardware.file()
    }

    /// Maps the `bytes` bytes at `offset` of the region `index` into this process. Both numbers
    /// must be multiples of 4 KiB.
    ///
    /// # Errors
    /// [`MapError`]: the device has no such region, the range cannot be mapped, or the kernel
    /// refuses.
    pub fn map(&self, index: RegionIndex, offset: u64, bytes: u64) -> Result<Mapping, MapError> {
        let region = self.mappable(index)?;
        let mapping = Mapping::new(&self.hardware, self.address, region, offset, bytes)?;
        Counters::add(&self.counters.mapped_bytes, bytes);
        Ok(mapping)
    }

    /// Returns the `bytes` bytes at `offset` of the region `index` as memory that can be placed in
    /// a guest's aperture. Both numbers must be multiples of 4 KiB.
    ///
    /// # Errors
    /// [`MapError`]: the device has no such region, or the range cannot be mapped.
    pub fn memory(
        &self,
        index: RegionIndex,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, MapError> {
        let region = self.mappable(index)?;
        Mapping::new(&self.hardware, self.address, region, offset, bytes)?;
        Ok(Arc::new(RegionMemory {
            hardware: Arc::clone(&self.hardware),
            address: self.address,
            region: region.clone(),
            offset,
            bytes,
        }))
    }

    fn mappable(&self, index: RegionIndex) -> Result<&Region, MapError> {
        self.region(index).ok_or(MapError::Absent {
            address: self.address,
            region: index,
        })
    }

    /// Resets the device to its state after power-up, except for the configuration space, which the
    /// kernel restores. A device that cannot be reset alone is reset together with all other
    /// devices on its bus, but only if all of these are open in the same container. Returns which
    /// of the two resets was used.
    ///
    /// # Errors
    /// [`ResetError`]: the device has no reset, its only reset would affect devices outside the
    /// container, or the reset failed.
    pub fn reset(&self) -> Result<ResetMethod, ResetError> {
        self.reset_within(ResetReach::Container)
    }

    fn reset_within(&self, reach: ResetReach) -> Result<ResetMethod, ResetError> {
        let method = self.hardware.reset(reach)?;
        Counters::add(&self.counters.resets, 1);
        Ok(method)
    }

    /// Returns a source of events: resets by other processes, errors of the device, and requests of
    /// the host to close the device. Keep only one watch for each device, because errors and
    /// requests are reported only to the latest.
    ///
    /// # Errors
    /// [`WatchError`] if the kernel refuses to report one of these kinds of events.
    pub fn watch(&self) -> Result<Watch, WatchError> {
        Watch::new(self.address, &*self.hardware, &self.description)
    }

    /// Returns the device's counters of accesses, interrupts, resets and mappings.
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
                    "{e}: the host is unbinding the device, and gets it back without a reset"
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

/// Opens a function, and records it as open in the container.
fn hold(
    container: &Arc<Container>,
    vfio: &Vfio,
    function: &PciFunction,
) -> Result<KernelDevice, OpenError> {
    let address = function.address;
    // Held meanwhile: another thread may give back a function of the same group.
    let mut devices = container.open.lock();
    if devices.contains_key(&address) {
        return Err(OpenError::Twice { address });
    }
    let device = KernelDevice::open(container, vfio, function)
        .map_err(|e| open_error(container, function, vfio_errno(e)))?;
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
