//! Containers: devices that share one translation of addresses, by groups or one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use causeway_protocol::Access;
use iommufd_bindings::iommufd::{
    iommu_ioas_map, iommufd_ioas_map_flags_IOMMU_IOAS_MAP_FIXED_IOVA as IOAS_FIXED,
    iommufd_ioas_map_flags_IOMMU_IOAS_MAP_READABLE as IOAS_READABLE,
    iommufd_ioas_map_flags_IOMMU_IOAS_MAP_WRITEABLE as IOAS_WRITABLE,
};
use iommufd_ioctls::{IommuFd, IommufdError};
use parking_lot::Mutex;
use vfio_bindings::bindings::vfio::{
    VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, vfio_iommu_type1_dma_map,
};
use vfio_ioctls::{VfioContainer, VfioDeviceFd, VfioError, VfioIommufd, VfioOps};

use crate::Address;
use crate::dma::{DmaError, Ledger, Translation};
use crate::host::Host;
use crate::ioctl;
use crate::statistics::DmaStatistics;

/// Which kernel interface a new container is to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// iommufd if the kernel has it and this process may open the file of each device in
    /// `/dev/vfio/devices`; otherwise groups.
    #[default]
    Automatic,
    /// IOMMU groups in a container with a type-1 IOMMU (`/dev/vfio/vfio`).
    Type1,
    /// Single devices, with iommufd (`/dev/iommu`).
    Iommufd,
}

/// The kernel interface through which a container holds devices and maps memory for DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IOMMU groups in a container with a type-1 IOMMU (`/dev/vfio/vfio`).
    Type1,
    /// Single devices, with iommufd (`/dev/iommu`).
    Iommufd,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1 => "group and type-1 container",
            Self::Iommufd => "iommufd",
        })
    }
}

/// Why a container cannot be created: a file of VFIO cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open {path}, which VFIO ({kind}) needs: load the module vfio-pci, or check the \
     permissions of the file"
)]
pub struct ContainerError {
    /// The kernel interface that the new container was to use.
    pub kind: Kind,
    /// Path of the kernel's file for that interface, which cannot be opened.
    pub path: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

/// A set of open devices that share one translation of DMA addresses: memory that is mapped for one
/// device is mapped for all of them.
pub struct Container {
    kind: Kind,
    host: Host,
    /// None behind a fake.
    pub(crate) vfio: Option<Vfio>,
    pub(crate) ledger: Ledger,
    pub(crate) open: Mutex<OpenDevices>,
}

/// Devices that are open, with the groups by which they were opened.
pub(crate) type OpenDevices = BTreeMap<Address, Option<u32>>;

/// The kernel's side.
#[derive(Clone)]
pub(crate) enum Vfio {
    Type1(Arc<VfioContainer>),
    Iommufd(Arc<VfioIommufd>),
}

impl Container {
    /// Creates an empty container for PCI functions of `host`. `choice` selects the kernel
    /// interface; for [`Choice::Automatic`], `devices` must name the functions that will be opened
    /// in the container. If `kvm` (KVM's VFIO device of a VM) is given, KVM is informed of each
    /// device that is opened.
    ///
    /// # Errors
    /// [`ContainerError`] if the kernel's file for the interface cannot be opened.
    pub fn new(
        host: &Host,
        choice: Choice,
        devices: &[Address],
        kvm: Option<Arc<VfioDeviceFd>>,
    ) -> Result<Arc<Self>, ContainerError> {
        let kind = kind(host, choice, devices);
        let path = match kind {
            Kind::Type1 => "/dev/vfio/vfio",
            Kind::Iommufd => "/dev/iommu",
        };
        let fail = |e| ContainerError {
            kind,
            path,
            source: vfio_errno(e),
        };
        let vfio = match kind {
            Kind::Type1 => Vfio::Type1(Arc::new(VfioContainer::new(kvm).map_err(fail)?)),
            Kind::Iommufd => {
                let file = IommuFd::new().map_err(|e| fail(VfioError::NewVfioIommufd(e)))?;
                let iommufd = VfioIommufd::new(Arc::new(file), None, kvm).map_err(fail)?;
                Vfio::Iommufd(Arc::new(iommufd))
            }
        };
        log::info!("PCI devices are opened through VFIO, by {kind}");
        let translation = Arc::new(vfio.clone());
        Ok(Self::over(kind, host.clone(), Some(vfio), translation))
    }

    pub(crate) fn over(
        kind: Kind,
        host: Host,
        vfio: Option<Vfio>,
        translation: Arc<dyn Translation>,
    ) -> Arc<Self> {
        Arc::new(Self {
            kind,
            host,
            vfio,
            ledger: Ledger::new(translation),
            open: Mutex::default(),
        })
    }

    /// Returns the kernel interface that the container uses.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the host whose devices this container opens.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Removes all mappings that [`Self::map_dma`] made, the latest one first. When this returns
    /// without an error, no device can access the memory any more: the IOMMU blocks such accesses,
    /// and the kernel logs them.
    ///
    /// # Errors
    /// The first [`DmaError`], if the kernel refuses to remove some mappings. All others are still
    /// removed, but devices can still access the memory of the mappings that remain.
    pub fn unmap_all_dma(&self) -> Result<(), DmaError> {
        self.ledger.unmap_all()
    }

    /// Returns how much memory the devices can access by DMA.
    pub fn statistics(&self) -> DmaStatistics {
        self.ledger.statistics()
    }

    /// Returns the addresses of the devices that are open now.
    pub fn devices(&self) -> Vec<Address> {
        self.open.lock().keys().copied().collect()
    }
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Container")
            .field("kind", &self.kind)
            .field("devices", &self.devices())
            .finish_non_exhaustive()
    }
}

/// What `choice` means for these devices.
fn kind(host: &Host, choice: Choice, devices: &[Address]) -> Kind {
    let has_file = |address: &Address| {
        let function = host.function(*address).ok().flatten();
        function.is_some_and(|function| host.can_open_alone(&function))
    };
    match choice {
        Choice::Type1 => Kind::Type1,
        Choice::Iommufd => Kind::Iommufd,
        Choice::Automatic if !devices.is_empty() && devices.iter().all(has_file) => Kind::Iommufd,
        Choice::Automatic => Kind::Type1,
    }
}

impl Vfio {
    pub(crate) fn operations(&self) -> Arc<dyn VfioOps> {
        match self {
            Self::Type1(container) => Arc::clone(container) as Arc<dyn VfioOps>,
            Self::Iommufd(iommufd) => Arc::clone(iommufd) as Arc<dyn VfioOps>,
        }
    }
}

impl fmt::Debug for Vfio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1(_) => "Type1",
            Self::Iommufd(_) => "Iommufd",
        })
    }
}

impl Translation for Vfio {
    #[allow(unsafe_code)] // Gives devices memory.
    unsafe fn map(&self, iova: u64, host: *mut u8, bytes: u64, access: Access) -> io::Result<()> {
        match self {
            // The methods of vfio-ioctls map everything writable.
            Self::Type1(container) => {
                let request = type1_request(iova, host, bytes, access);
                // SAFETY: by this function's contract.
                unsafe { ioctl::map_dma(&**container, &request) }
            }
            Self::Iommufd(iommufd) => {
                let request = ioas_request(iommufd.ioas().id(), iova, host, bytes, access);
                iommufd
                    .iommufd()
                    .map_iommu_ioas(&request)
                    .map_err(|e| vfio_errno(VfioError::IommufdIoctlError(e)))
            }
        }
    }

    fn unmap(&self, iova: u64, bytes: u64) -> io::Result<()> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        self.operations()
            .vfio_dma_unmap(iova, length)
            .map_err(vfio_errno)
    }
}

fn type1_request(iova: u64, host: *mut u8, bytes: u64, access: Access) -> vfio_iommu_type1_dma_map {
    let right = |allowed: Access, flag| if access.allows(allowed) { flag } else { 0 };
    vfio_iommu_type1_dma_map {
        argsz: size_of::<vfio_iommu_type1_dma_map>() as u32,
        flags: right(Access::Read, VFIO_DMA_MAP_FLAG_READ)
            | right(Access::ReadWrite, VFIO_DMA_MAP_FLAG_WRITE),
        vaddr: host as u64,
        iova,
        size: bytes,
    }
}

fn ioas_request(
    ioas_id: u32,
    iova: u64,
    host: *mut u8,
    bytes: u64,
    access: Access,
) -> iommu_ioas_map {
    let right = |allowed: Access, flag| if access.allows(allowed) { flag } else { 0 };
    iommu_ioas_map {
        size: size_of::<iommu_ioas_map>() as u32,
        flags: IOAS_FIXED
            | right(Access::Read, IOAS_READABLE)
            | right(Access::ReadWrite, IOAS_WRITABLE),
        ioas_id,
        __reserved: 0,
        user_va: host as u64,
        length: bytes,
        iova,
    }
}

/// Returns the kernel's error in an error of vfio-ioctls, if it has one.
pub(crate) fn vfio_errno(error: VfioError) -> io::Error {
    let number = match &error {
        VfioError::OpenContainer(e)
        | VfioError::OpenGroup(e, _)
        | VfioError::OpenDeviceCdev(e)
        | VfioError::NewVfioIommufd(IommufdError::OpenIommufd(e)) => e.raw_os_error(),
        VfioError::ContainerSetIOMMU(e)
        | VfioError::GroupGetDeviceFD(e)
        | VfioError::SetDeviceAttr(e)
        | VfioError::VfioDeviceGetInfo(e)
        | VfioError::IommuDmaMap(e)
        | VfioError::IommuDmaUnmap(e)
        | VfioError::VfioDeviceBindIommufd(e)
        | VfioError::VfioDeviceAttachIommufdPt(e) => Some(e.errno()),
        VfioError::IommufdIoctlError(
            IommufdError::IommuIoasMap(e) | IommufdError::IommuIoasUnmap(e),
        ) => Some(e.errno()),
        _ => None,
    };
    number.map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error)
}
