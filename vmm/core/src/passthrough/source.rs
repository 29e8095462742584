//! Where the devices of a VM come from.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use causeway_host_vfio::{
    AccessError, Address, Choice, Container, ContainerError, Device, DmaError, Host, MapError,
    OpenError, VfioDeviceFd,
};

use crate::pci::DecodeError;

/// Why a VM cannot have its devices. They are given back.
#[derive(Debug, thiserror::Error)]
pub enum PassThroughError {
    /// KVM has no VFIO device.
    #[error("KVM cannot be told of devices: its kernel was built without KVM_VFIO")]
    Kvm(#[source] io::Error),
    /// No container.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// Not to be had.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Guest memory.
    #[error("the device cannot have the guest's memory")]
    Dma(#[from] DmaError),
    /// Configuration space cannot be read.
    #[error("the device does not say what it is")]
    Access(#[from] AccessError),
    /// A BAR cannot be mapped.
    #[error("the device's memory cannot be shown to the guest")]
    Map(#[from] MapError),
    /// A BAR has no place.
    #[error(
        "BAR {bar} of device {address}, of {bytes} bytes, has no place in the guest: give the guest fewer devices, or one with smaller BARs"
    )]
    Room {
        /// The device.
        address: Address,
        /// Number of the BAR.
        bar: usize,
        /// Its size.
        bytes: u64,
    },
    /// The bus is full.
    #[error(
        "the guest's PCI bus has no place left for device {address}: give fewer devices or disks"
    )]
    Bus {
        /// The device.
        address: Address,
    },
    /// BARs cannot be decoded.
    #[error("cannot put the device into the guest's address space")]
    Decode(#[from] DecodeError),
    /// No interrupts left.
    #[error("the guest has no interrupts left for the device")]
    Interrupts(#[source] io::Error),
}

/// Opens the devices of a VM.
pub trait DeviceSource: Debug + Send + Sync {
    /// The devices, in order, reset, and the container that they are in. `kvm` makes KVM's VFIO device, which is to know of
    /// them.
    ///
    /// # Errors
    /// [`PassThroughError`].
    fn open(
        &self,
        kvm: &dyn Fn() -> io::Result<VfioDeviceFd>,
    ) -> Result<(Arc<Container>, Vec<Device>), PassThroughError>;
}

/// Devices of a host, for one VM.
#[derive(Clone, Debug)]
pub struct HostDevices {
    /// The host.
    pub host: Host,
    /// Which interface to use.
    pub choice: Choice,
    /// Which devices.
    pub addresses: Vec<Address>,
}

impl DeviceSource for HostDevices {
    fn open(
        &self,
        kvm: &dyn Fn() -> io::Result<VfioDeviceFd>,
    ) -> Result<(Arc<Container>, Vec<Device>), PassThroughError> {
        let kvm = Arc::new(kvm().map_err(PassThroughError::Kvm)?);
        let container = Container::new(&self.host, self.choice, &self.addresses, Some(kvm))?;
        let addresses = self.addresses.iter();
        let devices = addresses.map(|address| Device::open(&container, *address));
        let devices = devices.collect::<Result<_, _>>()?;
        Ok((container, devices))
    }
}
