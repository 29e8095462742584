//! Creation of a VM.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_mediator::{OpenError, Quota, SessionSource};
use kvm_ioctls::Kvm;

use super::board::Board;
use super::error::VmError;
use super::processors::Processors;
use super::{Boot, Vm, VmConfig, gpu_name};
use crate::console::ConsoleOutput;
use crate::exit::Platform;
use crate::exit_counts::VmExits;
use crate::kvm;
use crate::lifecycle::Lifecycle;
use crate::numa::Node;
use crate::statistics::{StatisticsError, VmStatistics};
use crate::vcpu::{Machine, Vcpu};

/// A GPU of a VM.
#[derive(Clone, Copy)]
pub struct VmGpu<'a> {
    /// Number of the GPU in its run, from 0.
    pub number: u32,
    /// What opens the VM's session on the GPU.
    pub sessions: &'a dyn SessionSource,
    /// Limits of that session.
    pub quota: Quota,
}

debug_by_name!(VmGpu<'_>);

impl Vm {
    /// Creates the VM that `config` describes, with one GPU, ready to run. Opens a session for it in
    /// `sessions`, with the limits `quota`. The guest's console output goes to `console`.
    ///
    /// # Errors
    /// The variant of [`VmError`] that says what failed: an invalid configuration, too little
    /// memory, a guest that cannot be loaded, a missing feature of KVM, no addresses for the
    /// devices, no session, or no descriptors. Nothing of the VM is left then.
    pub fn new(
        kvm: &Kvm,
        config: &VmConfig,
        sessions: &dyn SessionSource,
        quota: Quota,
        console: impl Into<ConsoleOutput>,
    ) -> Result<Self, VmError> {
        let gpu = VmGpu {
            number: 0,
            sessions,
            quota,
        };
        Self::new_unless(kvm, config, &[gpu], console, &mut || false)
    }

    /// As [`Self::new`], with a Causeway function for each of `gpus`, 1 to [`GPUS_MAX`], in their
    /// order; and gives up when `interrupted` returns true. This function calls it
    /// before it starts, before it creates each virtual CPU, and while the sessions open, which can
    /// take long.
    ///
    /// # Errors
    /// As for [`Self::new`]; [`VmError::Interrupted`] if `interrupted` returned true.
    pub fn new_unless(
        kvm: &Kvm,
        config: &VmConfig,
        gpus: &[VmGpu<'_>],
        console: impl Into<ConsoleOutput>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Self, VmError> {
        config.check(
            gpus.len(),
            u32::try_from(kvm.get_max_vcpus()).unwrap_or(u32::MAX),
        )?;
        // Threads that devices and sessions start now stay there.
        let _visit = config.node.as_ref().map(Node::visit).transpose()?;
        let processors = Processors::new(kvm, config, gpus.len() as u32, interrupted)?;
        processors.boot(config)?;
        let statistics = Arc::new(statistics(kvm, &processors)?);
        let counters = processors.vcpus.iter().map(|_| Arc::default()).collect();
        let exits = VmExits::new(statistics, counters);
        let stop = Arc::new(AtomicBool::new(false));
        let console = console.into();
        let mut open = |index: usize, host| {
            let (gpu, name) = (gpus[index], gpu_name(&config.name, index));
            let opened = gpu.sessions.open(host, gpu.quota, &name, interrupted);
            opened.map_err(|e| match e {
                OpenError::GivenUp { .. } => VmError::Interrupted,
                source => VmError::Session { gpu: index, source },
            })
        };
        let board = Board::new(&processors, config, &mut open, console, &exits, &stop)?;
        let numbers: Vec<u32> = gpus.iter().map(|gpu| gpu.number).collect();
        let vm = assemble(config, processors, (board, numbers), exits, stop)?;
        log::info!(
            "{}: created, with {} virtual CPU{} and {} MiB, on {}{}",
            config.name,
            config.vcpus,
            if config.vcpus == 1 { "" } else { "s" },
            config.memory_bytes >> 20,
            names_of(&vm),
            config
                .node
                .as_ref()
                .map_or_else(String::new, |node| format!(
                    ", on NUMA node {}",
                    node.number()
                ))
        );
        Ok(vm)
    }
}

/// Returns the numbers and names of the GPUs of a VM, separated by commas.
fn names_of(vm: &Vm) -> String {
    let gpus = vm.gpu_numbers.iter().zip(vm.gpus());
    let names: Vec<String> = gpus
        .map(|(number, gpu)| format!("GPU {number} ({})", gpu.name))
        .collect();
    names.join(", ")
}

/// Opens KVM's own count of exits. A KVM without statistics can run guests too; then reports have
/// only the VMM's count.
fn statistics(kvm: &Kvm, processors: &Processors) -> Result<VmStatistics, StatisticsError> {
    if kvm::has_statistics(kvm) {
        return VmStatistics::open(&processors.vm, &processors.vcpus);
    }
    log::warn!(
        "KVM of this host does not count exits (Linux 5.14 or later does): reports have only the \
         VMM's own counts"
    );
    Ok(VmStatistics::default())
}

fn assemble(
    config: &VmConfig,
    processors: Processors,
    (board, gpu_numbers): (Board, Vec<u32>),
    exits: VmExits,
    stop: Arc<AtomicBool>,
) -> Result<Vm, VmError> {
    let machine = Arc::new(Machine {
        platform: Platform {
            ports: board.ports,
            mmio: board.mmio,
        },
        has_power: matches!(config.boot, Boot::Linux(_)),
        attached: config.attached.clone(),
        console: Arc::clone(&board.console),
        apertures: board.apertures,
        life: Lifecycle::new(processors.vcpus.len(), stop).map_err(VmError::Event)?,
    });
    let vcpus = (0..).zip(processors.vcpus).zip(exits.counters());
    let waiting = vcpus.map(|((index, fd), counters)| Vcpu {
        index,
        fd,
        counters: Arc::clone(counters),
        machine: Arc::clone(&machine),
    });
    Ok(Vm {
        name: config.name.clone(),
        sessions: board.sessions,
        gpu_numbers,
        passed: board.passed,
        waiting: waiting.collect(),
        machine,
        threads: Arc::default(),
        states: Vec::new(),
        node: config.node.clone(),
        exits,
        strays: board.strays,
        console: board.console,
        ram: processors.ram,
        reports: Vec::new(),
        device_events: 0,
    })
}
