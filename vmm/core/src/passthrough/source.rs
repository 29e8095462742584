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
    #[error("KVM has no VFIO device: its kernel is built without KVM_VFIO")]
    Kvm(#[source] io::Error),
    /// No container.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// A device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Guest memory.
    #[error("cannot map the guest's memory for the device")]
    Dma(#[from] DmaError),
    /// Configuration space cannot be read.
    #[error("cannot read the device's configuration space")]
    Access(#[from] AccessError),
    /// A BAR cannot be mapped.
    #[error("cannot map the device's memory")]
    Map(#[from] MapError),
    /// A BAR has no place.
    #[error(
        "BAR {bar} of device {address}, of {bytes} bytes, does not fit into the guest's addresses: give the guest fewer devices, or one with smaller BARs"
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
        "the guest's PCI bus is full, so device {address} does not fit: give fewer devices or disks"
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
    /// Returns the devices, in order, reset, and the container that they are in. `kvm` makes KVM's
    /// VFIO device, which is to know of them.
    ///
    /// # Errors
    /// [`PassThroughError::Kvm`] if KVM has no VFIO device, `Container` or `Open` if a device
    /// cannot be opened.
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
