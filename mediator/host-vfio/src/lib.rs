//! PCI devices of the host, opened through VFIO.
//!
//! * [`Host`] lists devices, and tells why one cannot be opened ([`PreflightError`]), before
//!   anything is opened.
//! * [`Container`] is a translation of addresses that devices share: the memory of the host that
//!   they access by DMA.
//! * [`Device`] is a device that this process has open: its [regions](Region), by checked reads and
//!   writes or by [mappings](Mapping); its [interrupts](InterruptKind), as events; its reset; and
//!   what others do to it ([`Watch`]).
//!
//! It knows nothing of guests. Exclusive pass-through gives one guest all of a device; a mediator's
//! back end partitions a BAR among several guests ([`Device::memory`]).
//!
//! Below [`Device`] and [`Container`] there is a seam each ([`hardware::Hardware`],
//! [`dma::Translation`]), with a [fake] that is a device without a device.
//!
//! vfio-ioctls opens containers, groups and devices and tells KVM of them. What it only logs
//! (accesses of regions, resets) or says without the kernel's error (interrupts) is done here by
//! the same requests, with errors.

mod address;
mod container;
mod device;
pub mod dma;
pub mod fake;
pub mod hardware;
mod host;
mod interrupts;
mod ioctl;
mod kernel;
mod locked;
mod mapping;
mod memory;
mod preflight;
mod region;
mod reset;
mod statistics;
mod watch;

pub use address::{Address, ParseAddressError};
pub use container::{Choice, Container, ContainerError, Kind};
pub use device::{Decoding, Device, OpenError};
pub use dma::DmaError;
pub use host::{Host, PciFunction};
pub use interrupts::{Action, InterruptError, InterruptInfo, InterruptKind};
pub use mapping::{MapError, Mapping, TouchError};
pub use preflight::{Holder, PreflightError};
pub use region::{AccessError, Area, BARS, Region, RegionIndex};
pub use reset::{ResetError, ResetMethod, ResetReach};
pub use statistics::{DeviceStatistics, DmaStatistics};
/// KVM's VFIO device of one VM. [`Container::new`] takes it, so that KVM learns which devices are
/// opened for the VM.
pub use vfio_ioctls::VfioDeviceFd;
pub use watch::{DeviceEvent, Watch, WatchError};
