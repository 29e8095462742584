//! A virtual CPU and the thread that runs it.

use std::ops::ControlFlow;
use std::sync::Arc;

use kvm_bindings::{KVM_MP_STATE_HALTED, KVM_MP_STATE_INIT_RECEIVED, KVM_MP_STATE_UNINITIALIZED};
use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::aperture::{Apertures, EmulationRetry, FaultOutcome};
use crate::bus::PowerEvent;
use crate::console::Console;
use crate::counters::{ExitCounters, ExitKey, KICKED, PAUSED};
use crate::error_chain::chain;
use crate::exit::{self, Outcome, Platform};
use crate::kick::Kickable;
use crate::lifecycle::Lifecycle;
use crate::outcome::VmResult;
use crate::registers::Registers;
use crate::vcpu_state::VcpuState;
use crate::vm::Attach;

/// State that all virtual CPUs of a VM share.
pub(crate) struct Machine {
    pub platform: Platform,
    pub apertures: Apertures,
    pub console: Arc<Console>,
    pub life: Lifecycle,
    /// Whether the machine has registers by which the guest can turn the machine off or reset it.
    pub has_power: bool,
    pub attached: Vec<Arc<dyn Attach>>,
}

impl Machine {
    /// Sets `result` as the VM's verdict, unless it has one. `exit` is the exit by which the guest
    /// ended the VM; `None` if the host ends it.
    pub fn end(&self, result: VmResult, exit: Option<ExitKey>) {
        if self.life.verdict().is_none() {
            self.attached.iter().for_each(|device| device.ending(exit));
        }
        self.life.decide(result);
    }
}

/// A virtual CPU that is ready to run, before its thread exists.
pub(crate) struct Vcpu {
    pub index: u32,
    pub fd: VcpuFd,
    pub counters: Arc<ExitCounters>,
    pub machine: Arc<Machine>,
}

/// Why a virtual CPU left its loop.
enum End {
    /// It was asked to end.
    Stopped,
    /// It has halted or stopped for good, and others may run on.
    Parked,
    /// The VM has ended with it, by the exit that was counted last.
    ByExit(VmResult),
    /// The VM has ended with it, because the VMM cannot run it on.
    ByHost(VmResult),
}

impl Vcpu {
    /// Runs the virtual CPU until it stops for good or its VM ends. The thread of the virtual CPU
    /// does nothing else. Returns what the virtual CPU did at the end, unless it has ended the VM.
    pub fn run(self) -> Option<VcpuState> {
        let Self {
            index,
            fd,
            counters,
            machine,
        } = self;
        let _leaving = Leaving(&machine.life);
        let mut runner = Runner {
            index,
            vcpu: Kickable::new(fd),
            counters,
            machine: &machine,
            retry: EmulationRetry::default(),
        };
        let (result, exit) = match runner.run() {
            End::Stopped => return Some(runner.state(false)),
            End::Parked => return Some(runner.state(true)),
            End::ByExit(result) => (result, runner.counters.last()),
            End::ByHost(result) => (result, None),
        };
        log::debug!("virtual CPU {index}: {result}");
        machine.end(result, exit);
        None
    }
}

/// Reports that a virtual CPU has left its loop, even if its thread panics: otherwise the VM would
/// never end.
struct Leaving<'a>(&'a Lifecycle);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "a virtual CPU's thread panicked; this is a bug".to_owned();
            self.0.decide(VmResult::Error(reason));
        }
        self.0.left();
    }
}

struct Runner<'a> {
    index: u32,
    vcpu: Kickable,
    counters: Arc<ExitCounters>,
    machine: &'a Machine,
    retry: EmulationRetry,
}

impl Runner<'_> {
    fn state(&mut self, parked: bool) -> VcpuState {
        VcpuState::of(self.index, self.vcpu.vcpu(), &self.counters, parked)
    }

    fn run(&mut self) -> End {
        let life = &self.machine.life;
        if life.pause().is_wanted() {
            life.pause().stand_still();
        }
        life.entering();
        loop {
            self.vcpu.rearm();
            if life.stopping() {
                return End::Stopped;
            }
            if life.pause().is_wanted() {
                self.stand_still();
                continue;
            }
            if let Some(end) = self.turn() {
                return end;
            }
        }
    }

    /// Waits until the VM is resumed or stopped.
    fn stand_still(&mut self) {
        self.machine.life.pause().stand_still();
        // Tells a guest with KVM's clock, whose watchdogs then do not take the pause for a lock-up
        // (Documentation/virt/kvm/api.rst, 4.70). Others have no use for it, and KVM refuses.
        if let Err(e) = self.vcpu.vcpu().kvmclock_ctrl() {
            log::trace!("the guest is not told that it was paused: {e}");
        }
    }

    /// Runs the guest to its next exit. Returns how this virtual CPU ends; `None` if it runs on.
    fn turn(&mut self) -> Option<End> {
        let outcome = match self.vcpu.vcpu().run() {
            Ok(exit) => exit::handle(exit, &self.machine.platform, &self.counters),
            Err(e) => match e.errno() {
                libc::EINTR => {
                    self.counters
                        .count(match self.machine.life.pause().is_wanted() {
                            true => PAUSED,
                            false => KICKED,
                        });
                    return self.interrupted();
                }
                libc::EAGAIN => return self.interrupted(),
                libc::EFAULT => {
                    self.counters.count(ExitKey::plain("memory_fault"));
                    Outcome::MemoryFault
                }
                _ => Outcome::Crash(format!("KVM_RUN failed: {e}")),
            },
        };
        self.act(outcome)
    }

    /// Returns how this virtual CPU ends after `outcome`; `None` if it runs on.
    fn act(&mut self, outcome: Outcome) -> Option<End> {
        match outcome {
            Outcome::Continue => {
                // The exit may have been a control batch that placed memory.
                self.machine.apertures.prefault(self.vcpu.vcpu());
                None
            }
            Outcome::End(0) => Some(End::ByExit(VmResult::Pass)),
            Outcome::End(code) => {
                let reason = self.machine.attached.iter().find_map(|d| d.failure());
                Some(End::ByExit(VmResult::Fail { code, reason }))
            }
            Outcome::Power(event) => Some(End::ByExit(self.powered(event))),
            Outcome::Park => Some(End::Parked),
            Outcome::MemoryFault => self.resolve(),
            Outcome::EmulationFailure => {
                if self.machine.apertures.retry_emulation(&mut self.retry) {
                    return None;
                }
                Some(self.crash(
                    "KVM cannot emulate the instruction (KVM_EXIT_INTERNAL_ERROR)".to_owned(),
                ))
            }
            Outcome::TripleFault => Some(End::ByExit(self.triple_fault())),
            Outcome::Crash(reason) => Some(self.crash(reason)),
        }
    }

    /// Handles a kick that does not ask to stop: it asks whether this virtual CPU has halted for
    /// good.
    fn interrupted(&mut self) -> Option<End> {
        let life = &self.machine.life;
        if !life.halt_suspected() {
            return None;
        }
        let halted = has_halted(self.vcpu.vcpu());
        life.halted(self.index, halted)
            .then_some(End::ByHost(VmResult::Halted))
    }

    /// Returns the result of a machine that turned itself off or reset itself. What the kernel said
    /// before tells why: it resets itself when it panics.
    fn powered(&self, event: PowerEvent) -> VmResult {
        match (event, self.machine.console.last_words().panic) {
            (_, Some(message)) => VmResult::GuestPanic { message },
            (PowerEvent::Off, None) => VmResult::PoweredOff,
            (PowerEvent::Reset, None) => VmResult::Reset,
        }
    }

    /// Returns the result of a triple fault, which is also a way for a kernel to reset its machine
    /// (`reboot=t`).
    fn triple_fault(&mut self) -> VmResult {
        let words = self.machine.console.last_words();
        if self.machine.has_power && (words.restarting || words.panic.is_some()) {
            return self.powered(PowerEvent::Reset);
        }
        VmResult::TripleFault {
            vcpu: self.index,
            registers: Registers::of(self.vcpu.vcpu()),
        }
    }

    /// Resolves an access that KVM could not carry out, through the apertures.
    fn resolve(&mut self) -> Option<End> {
        let (platform, counters) = (&self.machine.platform, &self.counters);
        let handle = |exit: VcpuExit<'_>| match exit::handle(exit, platform, counters) {
            Outcome::Continue => ControlFlow::Continue(()),
            other => ControlFlow::Break(other),
        };
        match self.machine.apertures.resolve(self.vcpu.vcpu(), handle) {
            Ok(FaultOutcome::Resolved | FaultOutcome::Interrupted) => None,
            // Not a memory fault again: `resolve` reports those as errors. So this ends.
            Ok(FaultOutcome::Stopped(outcome)) => self.act(outcome),
            Err(e) => Some(self.crash(chain(&e))),
        }
    }

    fn crash(&mut self, reason: String) -> End {
        End::ByHost(VmResult::Crash {
            vcpu: self.index,
            reason,
            registers: Registers::of(self.vcpu.vcpu()),
        })
    }
}

/// Returns whether a virtual CPU sleeps and takes no interrupt, or was never started. Only an
/// interrupt that cannot be masked could wake it, and nobody sends one.
fn has_halted(vcpu: &VcpuFd) -> bool {
    /// RFLAGS bit 9: interrupts are taken.
    const INTERRUPTS: u64 = 1 << 9;
    match vcpu.get_mp_state().map(|state| state.mp_state) {
        Ok(KVM_MP_STATE_HALTED) => vcpu
            .get_regs()
            .is_ok_and(|registers| registers.rflags & INTERRUPTS == 0),
        Ok(KVM_MP_STATE_UNINITIALIZED | KVM_MP_STATE_INIT_RECEIVED) => true,
        Ok(_) | Err(_) => false,
    }
}
