//! Putting a VM together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_mediator::{Quota, SessionSource};
use kvm_ioctls::Kvm;

use super::board::Board;
use super::error::VmError;
use super::processors::Processors;
use super::{Boot, Vm, VmConfig};
use crate::aperture::{Aperture, Leased};
use crate::console::ConsoleOutput;
use crate::counters::ExitCounters;
use crate::exit::Platform;
use crate::harness::{Harness, MappedMemory, PhaseRecorder, PostOffice};
use crate::kvm;
use crate::lifecycle::Lifecycle;
use crate::statistics::{StatisticsError, VmStatistics};
use crate::vcpu::{Machine, Vcpu};

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
