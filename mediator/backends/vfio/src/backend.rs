//! The back end: implements the mediator's [`Backend`] with partitions of one BAR of a device.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use causeway_cpu_queue::HostHandle;
use causeway_host_vfio::{
    AccessError, Address, Choice, Container, ContainerError, Device, Host, InterruptError,
    WatchError,
};
use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, DeviceFacts, Exported, LossObserver,
    Memory, Space,
};
use causeway_memory::{PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::registers::features;
use parking_lot::Mutex;

use crate::bar::{Bar, BarError};
use crate::memory::BarHandle;
use crate::options::Options;
use crate::pool::{End, Pool, Refusal};
use crate::scrubber;
use crate::space::{ADDRESSES, VfioSpace};
use crate::watcher::Watcher;

/// The reason for which the VFIO back end cannot open its device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// VFIO cannot be used on this host.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// VFIO does not open the device.
    #[error(transparent)]
    Device(#[from] causeway_host_vfio::OpenError),
    /// The device has no memory that can be partitioned.
    #[error(transparent)]
    Bar(#[from] BarError),
    /// The device's BAR has less memory than `--gpu memory=` asks for.
    #[error(
        "invalid value {wanted_mib} MiB for --gpu memory: the BAR of device {address} that guests \
         would use has {has_mib} MiB; ask for less memory, or choose another BAR with \
         --gpu vfio:{address},bar=N",
        wanted_mib = wanted_bytes >> 20,
        has_mib = has_bytes >> 20
    )]
    Memory {
        /// PCI address of the device.
        address: Address,
        /// Memory of the BAR that can be partitioned, in bytes.
        has_bytes: u64,
        /// Memory for one VM that `--gpu memory=` asks for, in bytes.
        wanted_bytes: u64,
    },
    /// The device's command register cannot be read or written, so its DMA cannot be turned off.
    #[error("cannot disable DMA by device {address} and enable access to the device's memory")]
    Command {
        /// PCI address of the device.
        address: Address,
        /// The error of the access to configuration space.
        source: AccessError,
    },
    /// The interrupts of the device cannot be turned off.
    #[error(transparent)]
    Interrupts(#[from] InterruptError),
    /// The Linux kernel does not report when the host wants the device back.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A thread of the back end cannot be started.
    #[error("cannot start a thread that serves device {address}")]
    Thread {
        /// PCI address of the device.
        address: Address,
        /// The error of the Linux kernel.
        source: io::Error,
    },
}

/// State that the back end shares with its threads.
pub(crate) struct Shared {
    pub address: Address,
    pub pool: Arc<Pool>,
    /// The BAR whose memory is partitioned. `None` once the host has asked for the device back:
    /// allocations then fail with [`Status::DeviceLost`].
    pub bar: Mutex<Option<Arc<Bar>>>,
    /// The mediator's callback for the loss of the device. When it is called, all sessions lose the
    /// device. Empty until the mediator sets it.
    pub loss: OnceLock<LossObserver>,
}

impl Shared {
    /// Returns the BAR; `None` if the host has asked for the device back.
    pub fn bar(&self) -> Option<Arc<Bar>> {
        self.bar.lock().clone()
    }
}

/// The VFIO back end, which partitions the memory of one PCI device. Dropping it fills the memory
/// that guests had with zeros, resets the device and closes it, so that the host can use it again.
pub struct Vfio {
    attributes: Attributes,
    host_pages: PageSize,
    shared: Arc<Shared>,
    /// Ends before the device is given back: taken out only by `drop`.
    watcher: Option<Watcher>,
    scrubber: Option<JoinHandle<()>>,
}

causeway_memory::debug_fields!(Vfio { attributes });

impl Vfio {
    /// Opens and resets the device that `options` names, and begins to fill its memory with zeros.
    /// `vm_bytes` is the memory that the user wants for one VM (`--gpu memory=`): opening fails if
    /// the BAR has less. `None` means that any size will do. `host_pages` is the page size for
    /// allocations of host memory. It should be [`PageSize::Small`] in a process that passes
    /// descriptors of that memory to programs that Causeway does not trust.
    ///
    /// # Errors
    /// [`OpenError`] has a variant for each step that can fail.
    pub fn open(
        options: Options,
        vm_bytes: Option<u64>,
        host_pages: PageSize,
    ) -> Result<Arc<Self>, OpenError> {
        let Options { address, bar } = options;
        let host = Host::default();
        // Checked first: without an available device the container may fail, too, with a message
        // that helps less.
        host.preflight(address, 0)
            .map_err(causeway_host_vfio::OpenError::from)?;
        let container = Container::new(&host, Choice::default(), &[address], None)?;
        let vfio = Self::with_pages(Device::open(&container, address)?, bar, host_pages)?;
        let has_bytes = vfio.attributes.memory_bytes;
        match vm_bytes.filter(|bytes| *bytes > has_bytes) {
            None => Ok(vfio),
            Some(wanted_bytes) => Err(OpenError::Memory {
                address,
                has_bytes,
                wanted_bytes,
            }),
        }
    }

    /// Returns a back end on `device`, which is already open. The caller must not have mapped any
    /// memory for the device's DMA. `bar` is the number of the BAR to partition; `None` means the
    /// largest BAR of prefetchable memory.
    ///
    /// # Errors
    /// * [`OpenError::Bar`]: the device does not have that BAR, or its memory cannot be
    ///   partitioned.
    /// * [`OpenError::Command`]: the device's DMA cannot be turned off or its memory turned on.
    /// * [`OpenError::Interrupts`]: the device's interrupts cannot be turned off.
    /// * [`OpenError::Watch`]: the Linux kernel does not report when the host wants the device
    ///   back.
    /// * [`OpenError::Thread`]: a thread cannot be started.
    pub fn over(device: Device, bar: Option<u8>) -> Result<Arc<Self>, OpenError> {
        Self::with_pages(device, bar, PageSize::default())
    }

    fn with_pages(
        device: Device,
        bar: Option<u8>,
        host_pages: PageSize,
    ) -> Result<Arc<Self>, OpenError> {
        let address = device.address();
        device.disable_interrupts()?;
        device
            .set_bus_mastering(false)
            .and_then(|()| device.set_memory_decoding(true))
            .map_err(|source| OpenError::Command { address, source })?;
        let watch = device.watch()?;
        let bar = Arc::new(Bar::map(device, bar)?);
        let pool = Pool::new(&bar);
        let attributes = attributes(address, &bar);
        let failed = |source| OpenError::Thread { address, source };
        let scrubber = scrubber::start(Arc::clone(&bar), Arc::clone(&pool)).map_err(failed)?;
        let mut backend = Self {
            attributes,
            host_pages,
            shared: Arc::new(Shared {
                address,
                pool,
                bar: Mutex::new(Some(bar)),
                loss: OnceLock::new(),
            }),
            watcher: None,
            scrubber: Some(scrubber),
        };
        let watcher = Watcher::start(watch, Arc::clone(&backend.shared)).map_err(failed)?;
        backend.watcher = Some(watcher);
        Ok(Arc::new(backend))
    }

    fn check(&self, what: &str) -> Result<Arc<Bar>, BackendError> {
        let bar = self.shared.bar();
        let bar = bar.filter(|_| !self.shared.pool.has_ended());
        bar.ok_or_else(|| self.given_back(what))
    }

    fn given_back(&self, what: &str) -> BackendError {
        let address = self.shared.address;
        BackendError::new(
            Status::DeviceLost,
            format!("{what}: device {address} was given back to the host"),
        )
    }
}

impl Drop for Vfio {
    fn drop(&mut self) {
        self.watcher = None;
        self.shared.pool.end(End::Now);
        let scrubber = self.scrubber.take();
        if scrubber.is_some_and(|thread| thread.join().is_err()) {
            log::error!(
                "the thread that fills freed memory of device {address} with zeros panicked, so \
                 the device may still contain data of guests; this is a bug in Causeway",
                address = self.shared.address
            );
        }
    }
}

fn attributes(address: Address, bar: &Bar) -> Attributes {
    Attributes {
        name: format!("vfio {address} BAR {}", bar.number()),
        memory_bytes: bar.bytes(),
        granularity_bytes: PAGE_BYTES,
        va: ADDRESSES,
        compute_units: 0,
        warp_threads: 0,
        block_threads_max: 0,
        shared_bytes_max: 0,
        features: features::GUEST_RAM
            | features::SHARING
            | features::RECORDING
            | features::DEVICE_VISIBLE,
    }
}

impl Backend for Vfio {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn device_facts(&self) -> DeviceFacts {
        let address = self.shared.address;
        DeviceFacts {
            pci: [
                address.domain(),
                address.bus().into(),
                address.device().into(),
            ],
            ..DeviceFacts::of(&self.attributes)
        }
    }

    fn allocate(
        &self,
        kind: MemoryKind,
        bytes: u64,
        _: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        let what = || format!("allocate {bytes} bytes");
        let bar = self.check(&what())?;
        let visible = match kind {
            MemoryKind::Host => return HostHandle::allocate(bytes, self.host_pages),
            MemoryKind::Device => false,
            MemoryKind::DeviceVisible => true,
        };
        let pool = Arc::clone(&self.shared.pool);
        let piece = pool.take(bytes).map_err(|refused| {
            let (status, why) = match refused {
                Refusal::Ended => return self.given_back(&what()),
                Refusal::Paused => (
                    Status::Busy,
                    "a reset or an error of the device has lasted for seconds; try again later"
                        .to_owned(),
                ),
                Refusal::Full { free } => (
                    Status::NoMemory,
                    format!(
                        "{free} bytes of the device are free, but not in one piece of this size"
                    ),
                ),
            };
            BackendError::new(status, format!("{}: {why}", what()))
        })?;
        BarHandle::share(bar, pool, piece, visible)
    }

    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError> {
        self.check("import memory")?;
        if exported.kind != MemoryKind::Host {
            return Err(BackendError::new(
                Status::Unsupported,
                "import memory of a VFIO device from another process",
            ));
        }
        HostHandle::import(exported)
    }

    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        self.check("register guest RAM")?;
        HostHandle::register(ram, offset, bytes)
    }

    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
        self.check("create an address space")?;
        Ok(Arc::new(VfioSpace::new(stop)))
    }

    fn observe_loss(&self, lost: LossObserver) {
        // Only the first callback is kept.
        let _ = self.shared.loss.set(lost);
    }
}
