//! Guest accesses that KVM can neither map nor turn into an exit.
//!
//! The numbers are those of `docs/decisions/0002-aperture-slots.md`.

use std::ops::ControlFlow;
use std::time::Duration;

use kvm_ioctls::{VcpuExit, VcpuFd};

use super::{Aperture, State};

/// How long a vCPU waits for another's suspension to end before it looks at its own affairs again.
const RESUME_WAIT: Duration = Duration::from_millis(10);

/// Result of resolving an access that failed with EFAULT.
#[derive(Debug, PartialEq, Eq)]
pub enum FaultOutcome<T> {
    /// The instruction is complete: the vCPU can run on.
    Resolved,
    /// A signal came first. When the vCPU runs on, it meets the same fault again.
    Interrupted,
    /// The caller's handler asked to stop.
    Stopped(T),
}

/// Why an access that failed with EFAULT cannot be resolved. The VM cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The fault is not one of the aperture.
    #[error(
        "the guest's access at rip {rip:#x} reaches memory that the host cannot provide, outside the aperture (KVM_RUN: EFAULT)"
    )]
    Persists {
        /// Instruction pointer of the guest.
        rip: u64,
    },
    /// The instruction cannot be emulated.
    #[error(
        "the instruction at rip {rip:#x} touches an aperture address that is not mapped for it, and KVM cannot emulate it: use plain loads and stores (no AVX) where accesses may be stray"
    )]
    Emulation {
        /// Instruction pointer of the guest.
        rip: u64,
    },
    /// The slots cannot be taken down or put up.
    #[error("cannot change the memory slots of the aperture")]
    Slots(#[source] std::io::Error),
    /// `KVM_RUN` failed in another way.
    #[error("KVM_RUN failed at rip {rip:#x} while a stray access was being resolved")]
    Run {
        /// Instruction pointer of the guest.
        rip: u64,
        /// KVM's error.
        source: std::io::Error,
    },
}

/// The operations of a vCPU that resolving needs.
pub trait Processor {
    /// `KVM_RUN`.
    ///
    /// # Errors
    /// KVM's error.
    fn run(&mut self) -> Result<VcpuExit<'_>, vmm_sys_util::errno::Error>;
    /// Whether the next `KVM_RUN` only completes what is pending, and enters no guest code.
    fn set_immediate_exit(&mut self, immediate: bool);
    /// Instruction pointer, for messages; zero if it cannot be read.
    fn instruction_pointer(&self) -> u64;
}

impl Processor for VcpuFd {
    fn run(&mut self) -> Result<VcpuExit<'_>, vmm_sys_util::errno::Error> {
        Self::run(self)
    }

    fn set_immediate_exit(&mut self, immediate: bool) {
        self.set_kvm_immediate_exit(immediate.into());
    }

    fn instruction_pointer(&self) -> u64 {
        self.get_regs().map_or(0, |regs| regs.rip)
    }
}

/// A vCPU's memory of instructions that KVM could not emulate.
#[derive(Debug, Default)]
pub struct EmulationRetry {
    epoch: Option<u64>,
}

impl Aperture {
    /// Resolves an access on which `KVM_RUN` failed with EFAULT (or exited with
    /// `KVM_EXIT_MEMORY_FAULT`).
    ///
    /// `handle` gets the exits of that one instruction, and is to treat them as any others:
    /// accesses to the aperture go to the MMIO bus, which finds this aperture and counts strays.
    /// When this returns, `immediate_exit` is clear: a caller that is kicked by a signal and a flag
    /// looks at the flag before it runs the vCPU again.
    ///
    /// # Errors
    /// [`FaultError`]: `Persists` if the access is not one to the aperture, `Emulation` if KVM
    /// cannot emulate the instruction, `Slots` if the slots cannot be changed, `Run` if `KVM_RUN`
    /// fails otherwise. The VM has to end.
    pub fn resolve<T>(
        &self,
        vcpu: &mut impl Processor,
        handle: impl FnMut(VcpuExit<'_>) -> ControlFlow<T>,
    ) -> Result<FaultOutcome<T>, FaultError> {
        self.suspend()?; // F1
        let outcome = finish_instruction(vcpu, handle);
        vcpu.set_immediate_exit(false);
        self.resume()?; // F4
        outcome
    }

    /// Returns whether a vCPU on which `KVM_RUN` reported an instruction that it cannot emulate
    /// should simply run again: true if slots were down for another vCPU's sake since the last
    /// time, so that the access may be a legal one.
    pub fn retry_emulation(&self, last: &mut EmulationRetry) -> bool {
        let mut state = self.state.lock();
        let suspended = |state: &mut State| state.slots.suspended();
        self.resumed
            .wait_while_for(&mut state, suspended, RESUME_WAIT);
        if state.slots.suspended() {
            return true;
        }
        let seen = last.epoch.replace(state.epoch);
        state.epoch > seen.unwrap_or(0)
    }

    fn suspend(&self) -> Result<(), FaultError> {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.slots.suspend().map_err(FaultError::Slots)
    }

    fn resume(&self) -> Result<(), FaultError> {
        let mut state = self.state.lock();
        let resumed = state.slots.resume().map_err(FaultError::Slots);
        drop(state);
        self.resumed.notify_all();
        resumed
    }
}

/// Runs a vCPU until the instruction that it is at is complete.
fn finish_instruction<T>(
    vcpu: &mut impl Processor,
    mut handle: impl FnMut(VcpuExit<'_>) -> ControlFlow<T>,
) -> Result<FaultOutcome<T>, FaultError> {
    enum Step<T> {
        Go,
        Stop(T),
        Cannot,
        Fault,
        Failed(vmm_sys_util::errno::Error),
    }
    let mut began = false;
    loop {
        let step = match vcpu.run() {
            Ok(VcpuExit::InternalError) => Step::Cannot,
            Ok(VcpuExit::MemoryFault { .. }) => Step::Fault,
            Ok(exit) => match handle(exit) {
                ControlFlow::Continue(()) => Step::Go,
                ControlFlow::Break(value) => Step::Stop(value),
            },
            Err(e) if e.errno() == libc::EFAULT => Step::Fault,
            Err(e) => Step::Failed(e),
        };
        match step {
            // F2: the first run meets the fault again, as an exit. F3: those that follow only
            // complete it, which may take further exits: an access that crosses a page, the two
            // sides of a string move.
            Step::Go => {
                began = true;
                vcpu.set_immediate_exit(true);
            }
            Step::Stop(value) => return Ok(FaultOutcome::Stopped(value)),
            Step::Failed(e) if matches!(e.errno(), libc::EINTR | libc::EAGAIN) => {
                return Ok(if began {
                    FaultOutcome::Resolved
                } else {
                    FaultOutcome::Interrupted
                });
            }
            Step::Failed(e) => {
                return Err(FaultError::Run {
                    rip: vcpu.instruction_pointer(),
                    source: e.into(),
                });
            }
            Step::Cannot => {
                return Err(FaultError::Emulation {
                    rip: vcpu.instruction_pointer(),
                });
            }
            Step::Fault => {
                return Err(FaultError::Persists {
                    rip: vcpu.instruction_pointer(),
                });
            }
        }
    }
}
