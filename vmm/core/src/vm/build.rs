//! Putting a VM together.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_mediator::host::RamError;
use causeway_mediator::{OpenError, Quota, SessionSource};
use causeway_memory::MemoryError;
use kvm_ioctls::Kvm;

use super::board::Board;
use super::processors::Processors;
use super::{AttachError, Boot, ConfigError, Vm, VmConfig};
use crate::aperture::{Aperture, Leased};
use crate::bus::BusError;
use crate::console::ConsoleOutput;
use crate::counters::ExitCounters;
use crate::device::FunctionError;
use crate::exit::Platform;
use crate::harness::{Harness, MappedMemory, PhaseRecorder, PostOffice};
use crate::kvm;
use crate::lifecycle::Lifecycle;
use crate::linux;
use crate::loader::LoadError;
use crate::memory::RamCreateError;
use crate::passthrough::PassThroughError;
use crate::pci::LayoutError;
use crate::statistics::{StatisticsError, VmStatistics};
use crate::vcpu::{Machine, Vcpu};
use crate::virtio::VirtioError;

/// Why a VM cannot be made. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// It cannot be like that.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No guest memory.
    #[error(transparent)]
    Memory(#[from] RamCreateError),
    /// The image.
    #[error("cannot boot this image")]
    Image(#[from] LoadError),
    /// The operating system.
    #[error("cannot boot this system")]
    Linux(#[from] linux::SetupError),
    /// KVM refused a call.
    #[error("KVM refused {call}")]
    Kvm {
        /// Name of the ioctl, or of what was made with it.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// No statistics.
    #[error("KVM's statistics cannot be had")]
    Statistics(#[from] StatisticsError),
    /// Boot tables do not fit.
    #[error("guest memory has no room for boot tables")]
    Boot(#[from] RamError),
    /// No room for the device.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// No aperture.
    #[error("cannot reserve addresses for an aperture of {bytes} bytes")]
    Aperture {
        /// Size.
        bytes: u64,
        /// Why.
        source: MemoryError,
    },
    /// Two devices want the same addresses.
    #[error("the devices of the VM are in each other's way")]
    Bus(#[from] BusError),
    /// No session.
    #[error("the guest has no GPU")]
    Session(#[from] OpenError),
    /// The Causeway function.
    #[error("cannot put the device into the guest's address space")]
    Function(#[from] FunctionError),
    /// A virtio device.
    #[error("cannot give the guest its virtio devices")]
    Virtio(#[from] VirtioError),
    /// Devices of somebody else's.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Devices of the host's.
    #[error("the guest cannot have the devices that were asked for")]
    PassThrough(#[from] PassThroughError),
    /// No interrupt.
    #[error("cannot create an interrupt")]
    Interrupt(#[source] io::Error),
    /// No eventfd.
    #[error("cannot create an eventfd")]
    Event(#[source] io::Error),
}

impl Vm {
    /// Makes a VM with a session of `sessions`. Letters go through `post`; console lines go to `console`.
    ///
    /// # Errors
    /// [`VmError`].
    pub fn new(
        kvm: &Kvm,
        config: &VmConfig,
        sessions: &dyn SessionSource,
        quota: Quota,
        post: &Arc<PostOffice>,
        console: impl Into<ConsoleOutput>,
    ) -> Result<Self, VmError> {
        config.check(u32::try_from(kvm.get_max_vcpus()).unwrap_or(u32::MAX))?;
        let processors = Processors::new(kvm, config)?;
        processors.boot(config)?;
        let statistics = Arc::new(statistics(kvm, &processors)?);
        let stop = Arc::new(AtomicBool::new(false));
        let console = console.into();
        let board = Board::new(&processors, config, sessions, quota, console, &stop)?;
        assemble(config, processors, board, statistics, (post, stop))
    }
}

/// KVM's own count of exits. A KVM that has none can run guests all the same; reports then lack the referee.
fn statistics(kvm: &Kvm, processors: &Processors) -> Result<VmStatistics, StatisticsError> {
    if kvm::has_statistics(kvm) {
        return VmStatistics::open(&processors.vm, &processors.vcpus);
    }
    log::warn!(
        "this KVM keeps no binary statistics (Linux 5.14 has them): only the VMM counts exits"
    );
    Ok(VmStatistics::unavailable())
}

fn assemble(
    config: &VmConfig,
    processors: Processors,
    board: Board,
    statistics: Arc<VmStatistics>,
    (post, stop): (&Arc<PostOffice>, Arc<AtomicBool>),
) -> Result<Vm, VmError> {
    let counters: Vec<Arc<ExitCounters>> =
        processors.vcpus.iter().map(|_| Arc::default()).collect();
    let harness = Harness::new(
        Arc::clone(&processors.ram),
        Arc::new(ApertureMemory(Arc::clone(&board.aperture))),
        Arc::clone(post),
        PhaseRecorder::new(Arc::clone(&statistics), counters.clone()),
        processors.tsc_khz,
        Arc::clone(&stop),
    )
    .compared_with(config.counterpart.clone())
    .numbered(config.index, config.vms);
    let machine = Arc::new(Machine {
        platform: Platform {
            ports: board.ports,
            mmio: board.mmio,
            harness,
            has_power: matches!(config.boot, Boot::Linux(_)),
        },
        console: Arc::clone(&board.console),
        aperture: board.aperture,
        life: Lifecycle::new(counters.len(), stop).map_err(VmError::Event)?,
    });
    let vcpus = (0..).zip(processors.vcpus).zip(&counters);
    let waiting = vcpus.map(|((index, fd), counters)| Vcpu {
        index,
        fd,
        counters: Arc::clone(counters),
        machine: Arc::clone(&machine),
    });
    Ok(Vm {
        name: config.name.clone(),
        session: board.session,
        passed: board.passed,
        waiting: waiting.collect(),
        machine,
        threads: Vec::new(),
        counters,
        statistics,
        strays: board.strays,
        console: board.console,
        post: Arc::clone(post),
        ram: processors.ram,
        report: None,
        device_events: 0,
    })
}

/// The aperture, by guest-physical address.
struct ApertureMemory(Arc<Aperture>);

impl MappedMemory for ApertureMemory {
    fn object(&self, address: u64, bytes: u64) -> Option<Leased> {
        let offset = address.checked_sub(self.0.base()?)?;
        self.placed(offset, bytes)
    }

    fn placed(&self, offset: u64, bytes: u64) -> Option<Leased> {
        self.0.object(offset, bytes)
    }
}
