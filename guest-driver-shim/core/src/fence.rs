//! Fences: 64-bit values that only grow, in memory that CPU and GPU both see.

use causeway_protocol::message::{self, Status, operation};

use crate::error::{FencePlaceError, WaitError};
use crate::memory::{CpuMapping, GpuMapping};
use crate::transport::Sleeping;
use crate::window::Window;

/// Longest sleep in one message, in nanoseconds: meanwhile the control area is taken.
const SLICE_NS: u64 = 20_000_000;

/// First and longest sleep between two looks of a wait that nothing ends, in nanoseconds.
const NAP_MIN_NS: u64 = 20_000;
const NAP_MAX_NS: u64 = 2_000_000;

/// Longest sleep of a wait that an interrupt ends, in nanoseconds: a command buffer may stop, which
/// raises none.
const INTERRUPT_SLICE_NS: u64 = 50_000_000;

/// How often a spinning wait looks whether the command buffer has stopped.
const SPINS_PER_FAULT_CHECK: u32 = 64;

/// How many times a wait polls its fence before it sleeps, and how long it may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Number of times to poll the fence before the wait sleeps. With `u64::MAX`, the wait never
    /// sleeps.
    pub spins: u64,
    /// Maximum total time that the wait sleeps, in nanoseconds. After that time the wait fails.
    pub timeout_ns: u64,
}

impl Default for Patience {
    /// Returns a patience of 2,000 polls (some tens of microseconds, less than an exit takes), then
    /// up to 10 s of sleep.
    fn default() -> Self {
        Self {
            spins: 2_000,
            timeout_ns: 10_000_000_000,
        }
    }
}

impl Patience {
    /// Polls the fence and never sleeps, so the wait takes no exits. The wait has no time-out: it
    /// ends when the fence reaches the value, or when a fault stops the command buffer waited for.
    pub const SPIN: Self = Self {
        spins: u64::MAX,
        timeout_ns: 0,
    };
}

/// A 64-bit value in memory that only grows. Both the device and the guest's CPU can store a value
/// to the fence and wait until it reaches a value.
#[derive(Clone, Copy, Debug)]
pub struct Fence<'d> {
    gpu: GpuMapping<'d>,
    address: u64,
    word: Window,
}

impl<'d> Fence<'d> {
    /// Returns the fence at byte `offset` of the memory that `gpu` maps for the GPU and `cpu` maps
    /// for the CPU. Both must be mappings of the same memory.
    ///
    /// # Errors
    /// [`FencePlaceError`] if `offset` is outside one of the mappings or not a multiple of 8.
    pub fn new(
        gpu: &GpuMapping<'d>,
        cpu: &CpuMapping<'d>,
        offset: u64,
    ) -> Result<Self, FencePlaceError> {
        let failed = |access| FencePlaceError { access };
        let word = cpu.window().part(offset as usize, 8).map_err(failed)?;
        word.load_acquire(0).map_err(failed)?;
        if offset.checked_add(8).is_none_or(|end| end > gpu.bytes()) {
            let window_bytes = gpu.bytes() as usize;
            return Err(failed(crate::AccessError {
                offset: offset as usize,
                bytes: 8,
                window_bytes,
            }));
        }
        Ok(Self {
            gpu: *gpu,
            address: gpu.address() + offset,
            word,
        })
    }

    /// Returns the GPU virtual address of the fence.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Loads the value with acquire ordering: all memory that was written before this value was
    /// stored to the fence is then visible to the caller.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        // `new` has checked it; all-ones is what a hole reads.
        self.word.load_acquire(0).unwrap_or(u64::MAX)
    }

    /// Returns whether the fence has reached `value`, with acquire ordering as [`Self::value`]. A
    /// fence whose memory is gone has reached nothing: memory of a lost device leaves a hole in the
    /// aperture, which reads all-ones.
    #[inline]
    #[must_use]
    pub fn has_reached(&self, value: u64) -> bool {
        let found = self.value();
        found >= value && found != u64::MAX
    }

    /// Stores `value` from the CPU, with release ordering.
    #[inline]
    pub fn store(&self, value: u64) {
        // `new` has checked it.
        let _ = self.word.store_release(0, value);
    }

    /// Waits until the fence has reached `value`.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if the time-out in `patience` ends first; [`WaitError::Refused`] if
    /// the device refuses to wait, for example because the session is lost.
    pub fn wait(&self, value: u64, patience: Patience) -> Result<(), WaitError> {
        self.wait_watching(value, patience, || None)
    }

    /// Waits as [`Self::wait`] does, and fails with [`WaitError::Stopped`] when `fault` returns a
    /// fault.
    pub(crate) fn wait_watching(
        &self,
        value: u64,
        patience: Patience,
        fault: impl Fn() -> Option<(Status, u64)>,
    ) -> Result<(), WaitError> {
        let mut spins = patience.spins;
        loop {
            for _ in 0..SPINS_PER_FAULT_CHECK {
                if self.has_reached(value) {
                    return Ok(());
                }
                core::hint::spin_loop();
            }
            if let Some((status, position)) = fault() {
                return if self.has_reached(value) {
                    Ok(())
                } else {
                    Err(WaitError::Stopped { status, position })
                };
            }
            if spins != u64::MAX {
                spins = spins.saturating_sub(u64::from(SPINS_PER_FAULT_CHECK));
            }
            if spins == 0 {
                return self.sleep(value, patience.timeout_ns, fault);
            }
        }
    }

    /// Sleeps in pieces, in the way that the transport wants, until the fence has reached `value`.
    #[cold]
    fn sleep(
        &self,
        value: u64,
        timeout_ns: u64,
        fault: impl Fn() -> Option<(Status, u64)>,
    ) -> Result<(), WaitError> {
        let transport = self.gpu.device().transport();
        let mut sleeping = transport.sleeping();
        let (mut left_ns, mut nap_ns) = (timeout_ns, NAP_MIN_NS);
        let mut refused = Ok(());
        loop {
            if sleeping == Sleeping::UntilInterrupt {
                // Each time again: the last interrupt may have been for another fence.
                match self.ask_for_interrupt(value) {
                    Ok(true) => {}
                    Ok(false) => sleeping = Sleeping::ByTime,
                    Err(error) => refused = Err(error),
                }
            }
            if self.has_reached(value) {
                return Ok(());
            }
            // Before the refusal: a fault that loses the session is the reason that there is one.
            if let Some((status, position)) = fault() {
                return Err(WaitError::Stopped { status, position });
            }
            refused?;
            if left_ns == 0 {
                return Err(WaitError::TimedOut {
                    wanted: value,
                    found: self.value(),
                });
            }
            let slept_ns = match sleeping {
                Sleeping::InDevice => {
                    // Between two slices other CPUs get at the control area.
                    let slice_ns = SLICE_NS.min(left_ns);
                    refused = self.sleep_in_device(value, slice_ns);
                    slice_ns
                }
                Sleeping::ByTime => transport.sleep(nap_ns.min(left_ns)),
                Sleeping::UntilInterrupt => transport.sleep(INTERRUPT_SLICE_NS.min(left_ns)),
            };
            // Before asking again, which is an exit.
            if self.has_reached(value) {
                return Ok(());
            }
            left_ns = left_ns.saturating_sub(slept_ns.max(1));
            nap_ns = (nap_ns * 2).min(NAP_MAX_NS);
        }
    }

    /// Sleeps in the device until the fence has reached `value`, at most `timeout_ns` nanoseconds.
    fn sleep_in_device(&self, value: u64, timeout_ns: u64) -> Result<(), WaitError> {
        let request = message::Wait {
            space: self.gpu.space(),
            reserved: 0,
            address: self.address,
            value,
            timeout_ns,
        };
        match self.gpu.device().call::<operation::Wait>(&request) {
            Err(refusal) if refusal.status != Status::TimedOut => Err(WaitError::Refused(refusal)),
            _ => Ok(()),
        }
    }

    /// Asks for an interrupt when the fence has reached `value`. Returns false if the device cannot
    /// raise one: it watches too many fences, or does not know of interrupts.
    fn ask_for_interrupt(&self, value: u64) -> Result<bool, WaitError> {
        let request = message::Notify {
            space: self.gpu.space(),
            reserved: 0,
            address: self.address,
            value,
        };
        match self.gpu.device().call::<operation::Notify>(&request) {
            Ok(_) => Ok(true),
            Err(refusal) => match refusal.status {
                Status::QuotaObjects | Status::NoMemory | Status::BadOpcode => Ok(false),
                _ => Err(WaitError::Refused(refusal)),
            },
        }
    }
}
