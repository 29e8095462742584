//! The end of a VM: one verdict, and who learns of it.
//!
//! The first verdict stands. It is reached by a virtual CPU (exit port, crash), by the last one
//! that parks, or from outside (signal, timeout). The thread that reaches it signals
//! [`Lifecycle::ended`]; the event loop then sets [`Lifecycle::stop`], which every virtual CPU
//! looks at before it runs.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::outcome::VmResult;
use crate::pause::{Pause, RunState};

/// Whether a VM runs, must stop or has ended, and how it ended: its verdict. All threads of the VM
/// share this state.
#[derive(Debug)]
pub struct Lifecycle {
    stop: Arc<AtomicBool>,
    pause: Pause,
    verdict: Mutex<Option<(VmResult, Instant)>>,
    running: AtomicUsize,
    halt_suspected: AtomicBool,
    /// One bit for each virtual CPU that was seen halted for good.
    halted: AtomicU64,
    vcpus: u32,
    ended: EventFd,
    first_entry: OnceLock<Instant>,
}

impl Lifecycle {
    /// Returns the state of a VM whose `vcpus` virtual CPUs have not run yet. `stop` is set when
    /// the VM must stop; the VM's devices have it too, and end accesses that wait.
    ///
    /// # Errors
    /// The error of eventfd(2) if the host has no descriptor left.
    pub fn new(vcpus: usize, stop: Arc<AtomicBool>) -> io::Result<Self> {
        Ok(Self {
            stop,
            pause: Pause::default(),
            verdict: Mutex::default(),
            running: AtomicUsize::new(vcpus),
            halt_suspected: AtomicBool::new(false),
            halted: AtomicU64::new(0),
            vcpus: vcpus as u32,
            ended: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            first_entry: OnceLock::new(),
        })
    }

    /// Returns an event that becomes readable when the VM has a verdict.
    pub fn ended(&self) -> &EventFd {
        &self.ended
    }

    /// Sets `result` as the VM's verdict, unless it has one already.
    pub fn decide(&self, result: VmResult) {
        let mut verdict = self.verdict.lock();
        if verdict.is_none() {
            *verdict = Some((result, Instant::now()));
            if let Err(e) = self.ended.write(1) {
                log::error!("cannot signal that a VM has ended, so the command may not end: {e}");
            }
        }
    }

    /// Returns the VM's verdict: how it ended. Returns `None` while the VM runs.
    pub fn verdict(&self) -> Option<VmResult> {
        let verdict = self.verdict.lock();
        verdict.as_ref().map(|(result, _)| result.clone())
    }

    /// Returns when the VM got its verdict, that is, when it ended; `None` while the VM runs.
    pub fn decided(&self) -> Option<Instant> {
        let verdict = self.verdict.lock();
        verdict.as_ref().map(|(_, when)| *when)
    }

    /// Records that the thread of one virtual CPU no longer runs it. When this is true of all
    /// virtual CPUs and the VM has no verdict, the verdict becomes [`VmResult::Abandoned`].
    pub fn left(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.decide(VmResult::Abandoned);
        }
    }

    /// Asks all virtual CPUs to find out whether they have halted for good. They notice only after
    /// the caller has kicked their threads.
    pub fn suspect_halt(&self) {
        self.halt_suspected.store(true, Ordering::Release);
    }

    /// Returns whether [`Self::suspect_halt`] has asked the virtual CPUs to find out whether they
    /// have halted for good.
    pub fn halt_suspected(&self) -> bool {
        self.halt_suspected.load(Ordering::Acquire)
    }

    /// Records whether virtual CPU `index`, below 64, has halted for good. Returns whether all
    /// virtual CPUs have now halted for good.
    pub fn halted(&self, index: u32, halted: bool) -> bool {
        let bit = 1 << index;
        if !halted {
            self.halted.fetch_and(!bit, Ordering::AcqRel);
            return false;
        }
        let before = self.halted.fetch_or(bit, Ordering::AcqRel);
        (before | bit).count_ones() == self.vcpus
    }

    /// Asks all virtual CPUs to stop. They notice only after the caller has kicked their threads. A
    /// pause ends, and no other one begins.
    pub fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.pause.close();
    }

    /// Returns the pauses of the VM.
    pub fn pause(&self) -> &Pause {
        &self.pause
    }

    /// Returns whether the VM runs.
    pub fn state(&self) -> RunState {
        if self.decided().is_some() {
            return RunState::Ended;
        }
        match self.pause.is_wanted() {
            true if self.pause.still() >= self.running.load(Ordering::Acquire) => RunState::Paused,
            true => RunState::Pausing,
            false if self.first_entry().is_some() => RunState::Running,
            false => RunState::Starting,
        }
    }

    /// Returns whether the virtual CPUs have been asked to stop.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Records the current time as that of the first entry into guest code. A virtual CPU calls
    /// this before it enters guest code; all calls but the first do nothing.
    pub fn entering(&self) {
        if self.first_entry.set(Instant::now()).is_ok() {
            log::info!("the guest begins to run");
        }
    }

    /// Returns when the first virtual CPU entered guest code; `None` if none has.
    pub fn first_entry(&self) -> Option<Instant> {
        self.first_entry.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_verdict_stands_and_is_announced_once() {
        let life = Lifecycle::new(2, Arc::default()).unwrap();
        assert!(life.ended().read().is_err(), "nothing has ended");
        life.decide(VmResult::Pass);
        life.decide(VmResult::Timeout);
        assert_eq!(life.verdict(), Some(VmResult::Pass));
        assert_eq!(life.ended().read().unwrap(), 1);
    }

    #[test]
    fn when_the_last_one_parks_the_vm_is_abandoned() {
        let life = Lifecycle::new(2, Arc::default()).unwrap();
        life.left();
        assert_eq!(life.verdict(), None);
        life.left();
        assert_eq!(life.verdict(), Some(VmResult::Abandoned));
    }

    #[test]
    fn a_machine_has_halted_when_its_last_processor_has() {
        let life = Lifecycle::new(2, Arc::default()).unwrap();
        assert!(!life.halt_suspected());
        life.suspect_halt();
        assert!(life.halt_suspected());
        assert!(!life.halted(0, true) && !life.halted(0, true));
        assert!(!life.halted(0, false) && !life.halted(1, true));
        assert!(life.halted(0, true));
    }

    #[test]
    fn a_vm_is_paused_when_all_virtual_cpus_that_run_stand_still() {
        let life = Arc::new(Lifecycle::new(2, Arc::default()).unwrap());
        assert_eq!(life.state(), RunState::Starting);
        life.entering();
        assert_eq!(life.state(), RunState::Running);
        life.pause().begin();
        assert_eq!(life.state(), RunState::Pausing);
        let own = Arc::clone(&life);
        let thread = std::thread::spawn(move || own.pause().stand_still());
        while life.pause().still() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(life.state(), RunState::Pausing);
        // The other one has halted for good.
        life.left();
        assert_eq!(life.state(), RunState::Paused);
        life.request_stop();
        thread.join().unwrap();
        life.left();
        assert_eq!(life.state(), RunState::Ended);
    }

    #[test]
    fn stopping_is_seen_by_devices_too() {
        let stop = Arc::new(AtomicBool::new(false));
        let life = Lifecycle::new(1, Arc::clone(&stop)).unwrap();
        life.request_stop();
        assert!(life.stopping() && stop.load(Ordering::Relaxed));
    }
}
