//! Guest accesses that KVM can neither map nor turn into an exit.
//!
//! The numbers are those of `docs/decisions/0002-aperture-slots.md`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use kvm_ioctls::{VcpuExit, VcpuFd};

use super::{Aperture, State};

/// How long a vCPU waits for another's suspension to end before it looks at its own affairs again.
const RESUME_WAIT: Duration = Duration::from_millis(10);

/// How a call of [`Aperture::resolve`] ended: that function carries out a guest's access on which
/// `KVM_RUN` failed with EFAULT. `T` is the type of the value with which the caller's exit handler
/// can stop the virtual CPU.
#[derive(Debug, PartialEq, Eq)]
pub enum FaultOutcome<T> {
    /// The instruction is complete: the virtual CPU can go on with the next one.
    Resolved,
    /// A signal interrupted the virtual CPU before the instruction was complete. When the virtual
    /// CPU runs again, it repeats the instruction, and `KVM_RUN` fails again.
    Interrupted,
    /// The caller's function that handles exits asked to stop, and returned this value.
    Stopped(T),
}

/// Why [`Aperture::resolve`] cannot carry out a guest's access on which `KVM_RUN` failed with
/// EFAULT. The VM must then end.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The access fails without the aperture's memory slots too, so it does not go to the aperture.
    #[error(
        "the guest's instruction at {rip:#x} accesses memory outside the aperture (BAR 2) that the \
         host cannot provide: KVM_RUN fails with EFAULT"
    )]
    Persists {
        /// The guest's instruction pointer (RIP).
        rip: u64,
    },
    /// KVM cannot emulate the instruction that makes the access.
    #[error(
        "the guest's instruction at {rip:#x} accesses the aperture (BAR 2) where nothing is mapped \
         or where the mapping forbids the access, and KVM cannot emulate the instruction: map \
         memory there before the guest accesses it"
    )]
    Emulation {
        /// The guest's instruction pointer (RIP).
        rip: u64,
    },
    /// The hypervisor does not delete or add the aperture's memory slots.
    #[error(
        "cannot carry out a guest's access to the aperture (BAR 2): KVM did not delete or restore \
         the memory slots of the aperture"
    )]
    Slots(#[source] std::io::Error),
    /// `KVM_RUN` failed with an unexpected error while the access was carried out.
    #[error(
        "KVM_RUN failed on the guest's instruction at {rip:#x}, which accesses the aperture (BAR 2)"
    )]
    Run {
        /// The guest's instruction pointer (RIP).
        rip: u64,
        /// The error of `KVM_RUN`.
        source: std::io::Error,
    },
}

/// The operations of a virtual CPU that [`Aperture::resolve`] uses. Tests implement them without
/// KVM.
pub trait Processor {
    /// Runs the virtual CPU until it exits (`KVM_RUN`).
    ///
    /// # Errors
    /// The error of `KVM_RUN`.
    fn run(&mut self) -> Result<VcpuExit<'_>, vmm_sys_util::errno::Error>;
    /// Sets whether the next `KVM_RUN` returns right after it has completed a pending access,
    /// without running guest code.
    fn set_immediate_exit(&mut self, immediate: bool);
    /// Returns the guest's instruction pointer for messages; zero if KVM does not give it.
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

/// What [`Apertures::retry_emulation`] remembers of one virtual CPU between its calls. From this it
/// decides whether the virtual CPU should try again an instruction that KVM could not emulate.
#[derive(Debug, Default)]
pub struct EmulationRetry {
    epoch: u64,
}

/// The apertures of one VM, one for each of its GPUs, the first GPU's first.
pub struct Apertures(pub Vec<Arc<Aperture>>);

debug_by_name!(Apertures);

impl Apertures {
    /// As [`Aperture::resolve`], for a guest's access that can go to any of the apertures: KVM does
    /// not say where it goes.
    ///
    /// # Errors
    /// As for [`Aperture::resolve`].
    pub fn resolve<T>(
        &self,
        vcpu: &mut impl Processor,
        handle: impl FnMut(VcpuExit<'_>) -> ControlFlow<T>,
    ) -> Result<FaultOutcome<T>, FaultError> {
        resolve_in(self.0.iter().map(|aperture| &**aperture), vcpu, handle)
    }

    /// Returns whether a virtual CPU must run an instruction again that KVM could not emulate.
    /// False means that KVM cannot emulate it at all.
    ///
    /// While [`Self::resolve`] has deleted the memory slots of the apertures for one virtual CPU,
    /// KVM has to emulate the accesses of all others too, even those that need no emulation
    /// otherwise. So the result is true if that has happened since the last call with this `last`,
    /// which belongs to the virtual CPU that asks. If the slots are deleted now, waits up to 10 ms
    /// for those of each aperture.
    pub fn retry_emulation(&self, last: &mut EmulationRetry) -> bool {
        let epochs = self.0.iter().map(|aperture| aperture.await_slots());
        let Some(epoch) = epochs.sum::<Option<u64>>() else {
            return true;
        };
        epoch > std::mem::replace(&mut last.epoch, epoch)
    }

    /// As [`Aperture::prefault`], for all apertures.
    pub fn prefault(&self, vcpu: &VcpuFd) {
        for aperture in &self.0 {
            aperture.prefault(vcpu);
        }
    }
}

impl Aperture {
    /// Carries out a guest's access to the aperture on which `KVM_RUN` failed with EFAULT (or
    /// exited with `KVM_EXIT_MEMORY_FAULT`). Deletes the aperture's memory slots for the time
    /// being, runs `vcpu` until the instruction is complete, and adds the slots again.
    ///
    /// `handle` is called for each exit of that instruction and must treat it like any other exit:
    /// the MMIO bus passes an access to the aperture on to this aperture, and counts it if it is
    /// stray. This function clears KVM's flag `immediate_exit`. So if another thread stops this one
    /// by setting a flag and sending a signal, the caller must check that flag before it runs the
    /// virtual CPU again.
    ///
    /// # Errors
    /// [`FaultError::Persists`] if the access does not go to the aperture, `Emulation` if KVM
    /// cannot emulate the instruction, `Slots` if the hypervisor refuses to change its memory
    /// slots, `Run` if `KVM_RUN` fails otherwise. The VM must then end.
    pub fn resolve<T>(
        &self,
        vcpu: &mut impl Processor,
        handle: impl FnMut(VcpuExit<'_>) -> ControlFlow<T>,
    ) -> Result<FaultOutcome<T>, FaultError> {
        resolve_in(std::iter::once(self), vcpu, handle)
    }

    /// Waits up to 10 ms until the memory slots exist, if they are deleted for the time being.
    /// Returns how often that has happened; `None` if they are still deleted.
    fn await_slots(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let suspended = |state: &mut State| state.slots.suspended();
        self.resumed
            .wait_while_for(&mut state, suspended, RESUME_WAIT);
        (!state.slots.suspended()).then_some(state.epoch)
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

/// Carries out an access that goes to one of `apertures`, whose memory slots are down meanwhile.
fn resolve_in<'a, T>(
    mut apertures: impl Iterator<Item = &'a Aperture> + Clone,
    vcpu: &mut impl Processor,
    handle: impl FnMut(VcpuExit<'_>) -> ControlFlow<T>,
) -> Result<FaultOutcome<T>, FaultError> {
    apertures.clone().try_for_each(Aperture::suspend)?; // F1
    let outcome = finish_instruction(vcpu, handle);
    vcpu.set_immediate_exit(false);
    apertures.try_for_each(Aperture::resume)?; // F4
    outcome
}

/// Runs a vCPU until the instruction that it is at is complete.
fn finish_instruction<T>(
    vcpu: &mut impl Processor,
    mut handle: impl FnMut(VcpuExit<'_>) -> ControlFlow<T>,
) -> Result<FaultOutcome<T>, FaultError> {
    // F2: the first run meets the fault again, as an exit. F3: those that follow only complete it,
    // which may take further exits: an access that crosses a page, the two sides of a string move.
    let mut interrupted = FaultOutcome::Interrupted;
    loop {
        match vcpu.run() {
            Ok(VcpuExit::InternalError) => {
                let rip = vcpu.instruction_pointer();
                return Err(FaultError::Emulation { rip });
            }
            Ok(VcpuExit::MemoryFault { .. }) => {
                let rip = vcpu.instruction_pointer();
                return Err(FaultError::Persists { rip });
            }
            Ok(exit) => {
                if let ControlFlow::Break(value) = handle(exit) {
                    return Ok(FaultOutcome::Stopped(value));
                }
            }
            Err(e) if matches!(e.errno(), libc::EINTR | libc::EAGAIN) => return Ok(interrupted),
            Err(e) => {
                let rip = vcpu.instruction_pointer();
                return Err(match e.errno() {
                    libc::EFAULT => FaultError::Persists { rip },
                    _ => FaultError::Run {
                        rip,
                        source: e.into(),
                    },
                });
            }
        }
        interrupted = FaultOutcome::Resolved;
        vcpu.set_immediate_exit(true);
    }
}
