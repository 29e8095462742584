//! The main thread of a run: waits for the ends of VMs, for signals, and for the time-out.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use event_manager::{EventManager, EventOps, Events, MutEventSubscriber, SubscriberOps};
use parking_lot::{RwLock, RwLockWriteGuard};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::timerfd::TimerFd;

use crate::outcome::{VmOutcome, VmResult};
use crate::signals::Signals;
use crate::vm::{StartError, Vm};
use crate::waits::Wait;

const SIGNAL: u32 = 0;
const TIMER: u32 = 1;
const HALT_TIMER: u32 = 2;
/// Event of the first VM's end.
const FIRST_VM: u32 = 3;
/// Numbers of events for each VM: its end, and its devices, at most 32 since they are on one bus.
const EVENTS_OF_VM: u32 = 64;
/// Time between two checks whether a guest has halted.
const HALT_PERIOD: Duration = Duration::from_secs(1);

/// Limits of a run of VMs. When the run reaches one, the host ends all VMs that still run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Maximum duration of the run; `None` for no limit.
    pub timeout: Option<Duration>,
}

/// Why a run of VMs failed. All its VMs have been stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A VM could not be started.
    #[error("cannot start the guests")]
    Start(#[from] StartError),
    /// The kernel refuses to set a timer for the run's time limit.
    #[error("cannot set the timer that ends the run after {seconds} s")]
    Timer {
        /// Time-out in seconds.
        seconds: f64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses to watch an event, or to wait for one.
    #[error("cannot wait for events of the VMs, so the run ends: {reason}")]
    Loop {
        /// Text of the error.
        reason: String,
    },
}

/// Starts all VMs and waits until every VM has ended. If the run reaches one of `limits` or one of
/// `signals` arrives, ends the VMs that still run. Returns the outcomes in the order of `vms`.
///
/// # Errors
/// [`RunError::Start`] if a thread cannot be started, `Timer` if a timer cannot be set, `Loop` if
/// the kernel refuses to wait for events. No VM runs any more after an error.
pub fn run_all(
    vms: Vec<Vm>,
    limits: &Limits,
    signals: &mut Signals,
) -> Result<Vec<VmOutcome>, RunError> {
    let timer = timer(limits.timeout, None)?;
    let halts = vms.iter().any(Vm::may_halt).then_some(HALT_PERIOD);
    let halt_timer = self::timer(halts, halts)?;
    let mut supervisor = Supervisor {
        vms,
        signals,
        timer,
        halt_timer,
        refused: None,
    };
    // Virtual CPUs that ran already would keep this thread from the host's CPUs: with a thousand of
    // them, it would take minutes until it watches the signals and the timer.
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write();
    let start = |vm: &mut Vm| vm.start(&gate);
    let started = supervisor.vms.iter_mut().try_for_each(start);
    if started.is_err() {
        // Before the gate opens, so that no guest begins to run.
        supervisor.vms.iter().for_each(Vm::stop);
    }
    let watched = started
        .map_err(RunError::from)
        .and_then(|()| watch(&mut supervisor, closed));
    let vms = supervisor.vms;
    // All are told before one is waited for: those to be joined last would run on meanwhile.
    vms.iter().for_each(Vm::stop);
    watched.map(|()| vms.into_iter().map(finish).collect())
}

/// Ends a VM and frees its memory, which takes a while if it is much.
fn finish(vm: Vm) -> VmOutcome {
    let _wait = Wait::begin(format!("{} to end", vm.name()));
    vm.finish()
}

/// Returns a timer, if there is a timeout; it comes again after each `period`, if there is one.
fn timer(timeout: Option<Duration>, period: Option<Duration>) -> Result<Option<TimerFd>, RunError> {
    let Some(timeout) = timeout else {
        return Ok(None);
    };
    let fail = |e: vmm_sys_util::errno::Error| RunError::Timer {
        seconds: timeout.as_secs_f64(),
        source: e.into(),
    };
    let mut timer = TimerFd::new().map_err(fail)?;
    // A timer of zero would never fire.
    let timeout = timeout.max(Duration::from_nanos(1));
    timer.reset(timeout, period).map_err(fail)?;
    Ok(Some(timer))
}

/// Lets the virtual CPUs run, which wait until `closed` is dropped, and waits until all VMs have
/// ended.
fn watch(
    supervisor: &mut Supervisor<'_>,
    closed: RwLockWriteGuard<'_, ()>,
) -> Result<(), RunError> {
    let fail = |e: event_manager::Error| RunError::Loop {
        reason: format!("{e:?}"),
    };
    let mut manager = EventManager::new_with_capacity(16).map_err(fail)?;
    let id = manager.add_subscriber(supervisor);
    drop(closed);
    loop {
        let supervisor = manager.subscriber_mut(id).map_err(fail)?;
        if let Some(reason) = supervisor.refused.take() {
            return Err(RunError::Loop { reason });
        }
        if supervisor
            .vms
            .iter()
            .all(|vm| vm.life().verdict().is_some())
        {
            return Ok(());
        }
        manager.run().map_err(fail)?;
    }
}

/// Watches over the VMs of a run.
struct Supervisor<'a> {
    vms: Vec<Vm>,
    signals: &'a mut Signals,
    timer: Option<TimerFd>,
    halt_timer: Option<TimerFd>,
    /// Why an event could not be watched.
    refused: Option<String>,
}

impl Supervisor<'_> {
    fn look_for_halts(&mut self) {
        if let Some(Err(e)) = self.halt_timer.as_mut().map(TimerFd::wait) {
            log::debug!("cannot read a timer: {e}");
        }
        self.vms.iter().for_each(Vm::look_for_halt);
    }

    /// Takes a VM down that has ended.
    fn ended(&mut self, index: usize, ops: &mut EventOps) {
        // The descriptors of its devices are closed with the VM.
        for events in self.events_of(index) {
            if let Err(e) = ops.remove(events) {
                log::error!(
                    "cannot stop watching the events of VM {index}, which has ended: {e:?}"
                );
            }
        }
        let Some(vm) = self.vms.get_mut(index) else {
            return;
        };
        if let Some(result) = vm.life().verdict() {
            log::info!("{}: ended: {result}", vm.name());
            vm.announce(&result);
        }
        // At once, whatever the others do: what it left running on the GPU would take its share
        // from them.
        vm.retire();
    }

    /// Returns the events of a VM: of its end, and of its devices.
    fn events_of(&self, index: usize) -> Vec<Events> {
        let Some(vm) = self.vms.get(index) else {
            return Vec::new();
        };
        let first = FIRST_VM + index as u32 * EVENTS_OF_VM;
        let end = Events::with_data(vm.life().ended(), first, EventSet::IN);
        let devices = vm.watched_devices().map(|(device, descriptor)| {
            Events::with_data(&descriptor, first + 1 + device as u32, EventSet::IN)
        });
        [end].into_iter().chain(devices).collect()
    }

    /// Ends all VMs. All are stopped before the event loop takes the first one down: the virtual
    /// CPUs of the others would keep those that end from the host's CPUs.
    fn end_all(&self, result: &VmResult) {
        for vm in &self.vms {
            vm.end(result.clone());
        }
        self.vms.iter().for_each(Vm::stop);
    }
}

impl MutEventSubscriber for &mut Supervisor<'_> {
    fn process(&mut self, events: Events, ops: &mut EventOps) {
        match events.data() {
            SIGNAL => {
                if let Some(signal) = self.signals.take() {
                    log::info!("signal {signal} ends the run");
                    self.end_all(&VmResult::Signal(signal));
                }
            }
            TIMER => self.end_all(&VmResult::Timeout),
            HALT_TIMER => self.look_for_halts(),
            number => {
                let number = number - FIRST_VM;
                let index = (number / EVENTS_OF_VM) as usize;
                match (number % EVENTS_OF_VM).checked_sub(1) {
                    None => self.ended(index, ops),
                    Some(device) => {
                        if let Some(vm) = self.vms.get_mut(index) {
                            vm.look_at_device(device as usize);
                        }
                    }
                }
            }
        }
    }

    fn init(&mut self, ops: &mut EventOps) {
        let mut watched = vec![Events::with_data(&*self.signals, SIGNAL, EventSet::IN)];
        if let Some(timer) = &self.timer {
            watched.push(Events::with_data(timer, TIMER, EventSet::IN));
        }
        if let Some(timer) = &self.halt_timer {
            watched.push(Events::with_data(timer, HALT_TIMER, EventSet::IN));
        }
        watched.extend((0..self.vms.len()).flat_map(|index| self.events_of(index)));
        for events in watched {
            if let Err(e) = ops.add(events) {
                self.refused = Some(format!("cannot watch an event: {e:?}"));
            }
        }
    }
}
