//! A virtual machine: made, started, stopped, and reported on.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_host_vfio::DeviceEvent;
use causeway_mediator::backend::Attributes;
use causeway_mediator::{GuestSession, SessionReport};
use parking_lot::RwLock;

use crate::bus::StrayCounters;
use crate::console::Console;
use crate::counters;
use crate::error_chain::chain;
use crate::exit_counts::VmExits;
use crate::kick;
use crate::lifecycle::Lifecycle;
use crate::memory::GuestRam;
use crate::numa::{Node, VisitError};
use crate::observer::VmObserver;
use crate::outcome::{AtTimeout, GpuWork, VmOutcome, VmResult};
use crate::passthrough::PassthroughDevices;
use crate::pause_switch::PauseSwitch;
use crate::vcpu::{Machine, Vcpu};
use crate::vcpu_state::VcpuState;
use crate::vcpu_threads::VcpuThreads;
use crate::waits::Wait;

mod attach;
mod board;
mod build;
mod config;
mod error;
mod processors;
mod virtio;

pub use attach::{Attach, AttachError, Bay};
pub use build::VmGpu;
pub use config::{Boot, ConfigError, GPUS_MAX, Image, Privilege, VCPUS_MAX, VMS_MAX, VmConfig};
pub use error::VmError;

/// Returns the name of a VM's session on the GPU with this index, as logs and monitors show it: that
/// of the VM itself for the first GPU.
fn gpu_name(vm: &str, gpu: usize) -> String {
    match gpu {
        0 => vm.to_owned(),
        _ => format!("{vm}.gpu{gpu}"),
    }
}

/// Pause between kicks of threads that have not ended yet.
const KICK_PAUSE: Duration = Duration::from_millis(1);
/// Events of devices that are logged as warnings: a guest may be able to bring them about at will.
const DEVICE_WARNINGS_MAX: u64 = 8;

/// Why a VM cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The thread of a virtual CPU cannot be created.
    #[error("cannot start the thread of virtual CPU {vcpu} of {name}")]
    Thread {
        /// Name of the VM.
        name: String,
        /// Index of the virtual CPU whose thread cannot be started.
        vcpu: u32,
        /// The Linux kernel's error.
        source: io::Error,
    },
    /// The kernel refuses to start the threads on the VM's NUMA node.
    #[error(transparent)]
    Node(#[from] VisitError),
}

/// A virtual machine. Dropping this value stops the VM and frees all its resources.
///
/// [`Vm::new`] creates a VM, [`crate::event_loop::run_all`] runs it, and [`Vm::finish`] ends it.
pub struct Vm {
    name: String,
    // Order of dropping: the sessions take their placements out of the apertures first.
    /// One for each of the VM's GPUs.
    sessions: Vec<Arc<dyn GuestSession>>,
    /// Numbers of these GPUs in their run.
    gpu_numbers: Vec<u32>,
    passed: PassthroughDevices,
    machine: Arc<Machine>,
    waiting: Vec<Vcpu>,
    threads: Arc<VcpuThreads>,
    /// What the virtual CPUs did at their ends.
    states: Vec<VcpuState>,
    exits: VmExits,
    strays: Arc<StrayCounters>,
    console: Arc<Console>,
    ram: Arc<GuestRam>,
    /// Where its virtual CPUs run, if that was asked for.
    node: Option<Node>,
    /// The sessions' counters when they were closed; empty before.
    reports: Vec<SessionReport>,
    /// How often a device was reset, or had an error.
    device_events: u64,
}

debug_by_name!(Vm);

impl Vm {
    /// Returns the VM's name, as logs and reports show it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the attributes (name, memory, …) of each of the VM's GPUs.
    pub fn gpus(&self) -> Vec<Attributes> {
        let sessions = self.sessions.iter();
        sessions.map(|session| session.attributes()).collect()
    }

    /// Returns the VM's serial console, which receives the guest's output and passes input to the
    /// guest.
    pub fn console(&self) -> &Arc<Console> {
        &self.console
    }

    /// Returns observers, through which any thread can read the VM's statistics as long as the VM
    /// exists: one for each GPU. The first has the VM's own statistics, too; the others are named
    /// after the VM and the index of their GPU: `vm0.gpu1`.
    pub fn observers(&self) -> impl Iterator<Item = VmObserver> {
        self.sessions.iter().enumerate().map(|(gpu, session)| {
            let is_first = gpu == 0;
            VmObserver {
                name: gpu_name(&self.name, gpu),
                gpu,
                number: self.gpu_numbers[gpu],
                memory_bytes: if is_first { self.ram.bytes() } else { 0 },
                session: Arc::downgrade(session),
                machine: Arc::downgrade(&self.machine),
                statistics: match is_first {
                    true => Arc::downgrade(self.exits.statistics()),
                    false => Weak::new(),
                },
                counters: match is_first {
                    true => self.exits.counters().to_vec(),
                    false => Vec::new(),
                },
            }
        })
    }

    /// Returns a switch, by which any thread can pause and resume the VM.
    pub fn pause_switch(&self) -> PauseSwitch {
        PauseSwitch {
            name: self.name.clone(),
            vcpus: self.exits.counters().len() as u32,
            memory_bytes: self.ram.bytes(),
            machine: Arc::downgrade(&self.machine),
            threads: Arc::downgrade(&self.threads),
        }
    }

    /// Returns whether and how the VM runs or has ended.
    pub(crate) fn life(&self) -> &Lifecycle {
        &self.machine.life
    }

    /// Ends the VM with `result`, unless it has ended. Its virtual CPUs run on until it is stopped.
    pub(crate) fn end(&self, result: VmResult) {
        self.machine.end(result, None);
    }

    /// Tells the attached devices that the VM ended with `result`.
    pub(crate) fn announce(&self, result: &VmResult) {
        for attached in &self.machine.attached {
            attached.vm_ended(result);
        }
    }

    /// Starts the VM: one thread for each virtual CPU, which runs it as soon as `gate` can be read.
    ///
    /// # Errors
    /// [`StartError`] if the Linux kernel refuses a thread, a handler for the signal that
    /// interrupts such threads, or the VM's NUMA node. Threads that were started before run until
    /// the VM is stopped.
    pub(crate) fn start(&mut self, gate: &Arc<RwLock<()>>) -> Result<(), StartError> {
        let name = &self.name;
        let failed = |vcpu, source| StartError::Thread {
            name: name.clone(),
            vcpu,
            source,
        };
        kick::install_handler().map_err(|e| failed(0, e))?;
        // The threads stay where they are started.
        let _visit = self.node.as_ref().map(Node::visit).transpose()?;
        for vcpu in self.waiting.drain(..) {
            let index = vcpu.index;
            // Linux shows 15 bytes of a thread's name.
            let thread = std::thread::Builder::new().name(format!("{name:.9}/vcpu{index}"));
            let gate = Arc::clone(gate);
            let spawned = thread.spawn(move || {
                drop(gate.read());
                vcpu.run()
            });
            let thread = spawned.map_err(|e| failed(index, e))?;
            self.threads.add(thread);
        }
        Ok(())
    }

    /// Returns whether the VM runs an operating system, which may halt without ending the VM.
    pub(crate) fn may_halt(&self) -> bool {
        self.machine.has_power
    }

    /// Asks all virtual CPUs whether they have halted for good, if the guest's kernel has printed
    /// that it halts: KVM does not report this. The printed words alone end nothing, since any
    /// program of the guest can print them.
    pub(crate) fn look_for_halt(&self) {
        if self.life().verdict().is_none() && self.console.last_words().halting {
            self.life().suspect_halt();
            self.threads.kick();
        }
    }

    /// Asks all virtual CPUs to stop, and returns without waiting for them.
    pub(crate) fn stop(&self) {
        self.life().request_stop();
        self.sessions.iter().for_each(|session| session.halt());
        for attached in &self.machine.attached {
            attached.wake();
        }
        self.threads.kick();
    }

    /// Stops the VM if it has not ended, waits for its threads, and closes its sessions, which frees
    /// its GPU memory and ends its work on the GPUs. Returns the sessions' statistics at that time.
    pub(crate) fn retire(&mut self) -> &[SessionReport] {
        self.end_threads();
        // Somebody may wait for them.
        self.passed.release();
        if self.reports.is_empty() {
            // All reports first: the end of one session takes memory from others.
            self.reports = self.sessions.iter().map(|it| it.report()).collect();
            for (gpu, session) in self.sessions.iter().enumerate() {
                let name = gpu_name(&self.name, gpu);
                let _wait = Wait::begin(format!("the GPU session of {name} to close"));
                session.close();
            }
        }
        &self.reports
    }

    /// Returns the descriptors of passed-through devices, each with the device's index. A
    /// descriptor is readable when an event of its device has arrived.
    pub(crate) fn watched_devices(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.passed.watched()
    }

    /// Handles the events of the passed-through device with this index. If the host wants the
    /// device back, the VM ends.
    pub(crate) fn look_at_device(&mut self, index: usize) {
        let Some((address, events)) = self.passed.take_events(index) else {
            return;
        };
        for event in events {
            match event {
                DeviceEvent::AskedBack => {
                    log::info!("{}: device {address}: {event}", self.name);
                    self.end(VmResult::DeviceWanted { address });
                }
                // What the guest makes of it is its own affair.
                DeviceEvent::Reset | DeviceEvent::Error => {
                    self.device_events += 1;
                    let level = if self.device_events <= DEVICE_WARNINGS_MAX {
                        log::Level::Warn
                    } else {
                        log::Level::Debug
                    };
                    log::log!(level, "{}: device {address}: {event}", self.name);
                }
            }
        }
    }

    /// Stops the VM if it still runs. Returns how it ended, and its counters at that time.
    pub fn finish(mut self) -> VmOutcome {
        self.retire();
        let sessions = std::mem::take(&mut self.reports);
        let never = VmResult::Error("the VM was stopped before its guest ended".to_owned());
        let result = self.life().verdict().unwrap_or(never);
        let statistics = self.exits.statistics();
        let kvm = statistics.sample().unwrap_or_else(|e| {
            log::error!("{}: {}", self.name, chain(&e));
            statistics.zero()
        });
        let vmm = counters::total(self.exits.counters().iter().map(|c| &**c));
        self.states.sort_by_key(|state| state.vcpu);
        let at_timeout = (result == VmResult::Timeout).then(|| AtTimeout {
            vcpus: std::mem::take(&mut self.states),
            gpu: sessions.iter().map(|it| GpuWork::of(&it.statistics)).sum(),
        });
        VmOutcome {
            name: self.name.clone(),
            result,
            at_timeout,
            kvm_exits: statistics.difference(&statistics.zero(), &kvm),
            vmm_exits: counters::named(&vmm),
            first_instruction: self.life().first_entry(),
            ended: self.life().decided().unwrap_or_else(Instant::now),
            sessions,
            strays: self.strays.counts(),
            console_tail: self.console.finish(),
            memory_bytes: self.ram.bytes(),
            pauses: self.life().pause().until_now(),
            devices: self.passed.reports().to_vec(),
        }
    }

    fn end_threads(&mut self) {
        self.stop();
        let _wait = Wait::begin(format!("the virtual CPUs of {} to stop", self.name));
        while let Some(thread) = self.threads.take() {
            // One kick does, in principle. A thread that a device call keeps is kicked until it
            // comes back.
            while !thread.is_finished() {
                kick::kick(&thread);
                std::thread::sleep(KICK_PAUSE);
            }
            match thread.join() {
                Ok(state) => self.states.extend(state),
                Err(_) => log::error!(
                    "{name}: the thread of a virtual CPU panicked; this is a bug in Causeway",
                    name = self.name
                ),
            }
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.end_threads();
        self.passed.release();
        self.sessions.iter().for_each(|session| session.close());
    }
}
