//! Where the devices of a VM come from.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use causeway_host_vfio::{
    AccessError, Address, Choice, Container, ContainerError, Device, DmaError, Host, MapError,
    OpenError, VfioDeviceFd,
};

use crate::pci::DecodeError;

/// Why devices cannot be passed through to a VM. If any were opened, they have been returned to the
/// host.
#[derive(Debug, thiserror::Error)]
pub enum PassThroughError {
    /// KVM cannot create its VFIO device.
    #[error(
        "KVM cannot create a VFIO device: use a host kernel that is built with CONFIG_KVM_VFIO"
    )]
    Kvm(#[source] io::Error),
    /// VFIO's container cannot be created.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// A device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Guest RAM cannot be mapped for DMA.
    #[error("cannot map the guest's memory for DMA by its --vfio devices")]
    Dma(#[from] DmaError),
    /// A device's configuration space cannot be read.
    #[error("cannot read the PCI configuration space of a device that --vfio names")]
    Access(#[from] AccessError),
    /// A device's BAR cannot be mapped.
    #[error("cannot map the memory of a device that --vfio names for the guest")]
    Map(#[from] MapError),
    /// No guest-physical address is free for a device's BAR.
    #[error(
        "BAR {bar} of device {address}, {bytes} bytes, does not fit into the guest's physical \
         addresses: give the guest fewer devices, or devices with smaller BARs"
    )]
    Room {
        /// PCI address of the device on the host.
        address: Address,
        /// Number of the BAR, 0 to 5.
        bar: usize,
        /// Size of the BAR in bytes.
        bytes: u64,
    },
    /// No device number is free on the guest's PCI bus.
    #[error(
        "no place for device {address} on the guest's PCI bus: give the guest fewer devices \
         or disks"
    )]
    Bus {
        /// PCI address of the device on the host.
        address: Address,
    },
    /// A BAR cannot be put at its guest-physical address.
    #[error("cannot place the BARs of a --vfio device at guest-physical addresses of the VM")]
    Decode(#[from] DecodeError),
    /// The VM has too many interrupts, or the host has no descriptor left for one.
    #[error("cannot create the guest's interrupts for a --vfio device, so the VM does not start")]
    Interrupts(#[source] io::Error),
}

/// A source of host devices that are passed through to a VM. Tests have an implementation without
/// hardware.
pub trait DeviceSource: Debug + Send + Sync {
    /// Opens and resets the devices. Returns the VFIO container that holds them, and the devices in
    /// order. `kvm` creates KVM's VFIO device, which has to be told of each device.
    ///
    /// # Errors
    /// [`PassThroughError::Kvm`] if KVM cannot create its VFIO device, `Container` or `Open` if a
    /// device cannot be opened.
    fn open(
        &self,
        kvm: &dyn Fn() -> io::Result<VfioDeviceFd>,
    ) -> Result<(Arc<Container>, Vec<Device>), PassThroughError>;
}

/// PCI functions of the host that are to be passed through to one VM.
#[derive(Clone, Debug)]
pub struct HostDevices {
    /// Reads from the host's `/sys`, `/dev` and `/proc` what PCI functions there are.
    pub host: Host,
    /// Which VFIO interface to use: groups or iommufd.
    pub choice: Choice,
    /// PCI addresses of the functions on the host.
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
