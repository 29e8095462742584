//! One generation of a session: from its opening or a reset to loss, the next reset or its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use causeway_protocol::message::Status;
use causeway_protocol::registers::status;
use parking_lot::Mutex;

use crate::backend::Fault;
use crate::bell::Bell;
use crate::fence::FenceSignal;

/// Calls an observer at every change of register `Status`.
#[derive(Default)]
pub(crate) struct StatusObserver {
    tell: OnceLock<Box<dyn Fn(u32) + Send + Sync>>,
    lost: AtomicBool,
}

impl StatusObserver {
    /// Sets the function that [`Self::tell`] calls. Only the first call of this method has an
    /// effect.
    pub fn observe(&self, tell: Box<dyn Fn(u32) + Send + Sync>) {
        let _ = self.tell.set(tell);
    }

    /// Calls the observer with `bits`, the new content of register `Status`. Callers must hold a
    /// lock of the session, so that the calls come in the order of the changes.
    pub fn tell(&self, bits: u32) {
        self.lost.store(bits & status::LOST != 0, Ordering::Relaxed);
        if let Some(tell) = self.tell.get() {
            tell(bits);
        }
    }

    /// Returns whether the session is lost, according to the `bits` last passed to [`Self::tell`].
    pub fn lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Whether the generation has ended, and how to stop everything that works for it. A leaf lock.
pub(crate) struct Generation {
    ended: AtomicBool,
    inner: Mutex<Inner>,
    signal: Arc<FenceSignal>,
    status: Arc<StatusObserver>,
}

#[derive(Debug, Default)]
struct Inner {
    fault: Option<Fault>,
    bells: Vec<Weak<Bell>>,
    stops: Vec<Weak<AtomicBool>>,
}

impl Generation {
    pub fn new(signal: Arc<FenceSignal>, status: Arc<StatusObserver>) -> Arc<Self> {
        Arc::new(Self {
            ended: AtomicBool::new(false),
            inner: Mutex::default(),
            signal,
            status,
        })
    }

    /// Returns whether the generation has ended, by a fault or because the session was reset or
    /// closed.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the fault that ended the generation; `None` if the generation has not ended, or
    /// ended by a reset or a close.
    pub fn fault(&self) -> Option<Fault> {
        self.inner.lock().fault.clone()
    }

    /// Ends the generation because of `fault`, which makes the session lost. Returns false, and
    /// does not record `fault`, if the generation has already ended.
    pub fn lose(&self, fault: Fault) -> bool {
        let first = {
            let mut inner = self.inner.lock();
            let first = !self.ended();
            if first {
                inner.fault = Some(fault);
                self.status.tell(status::LOST);
            }
            self.stop_all(&inner);
            first
        };
        self.signal.notify();
        first
    }

    /// Ends the generation without a fault, because the session is reset or closed.
    pub fn end(&self) {
        self.stop_all(&self.inner.lock());
        self.signal.notify();
    }

    /// Registers `bell`: its consumer is asked to stop when the generation ends, or immediately if
    /// the generation has already ended.
    pub fn watch_bell(&self, bell: &Arc<Bell>) {
        let mut inner = self.inner.lock();
        inner.bells.retain(|bell| bell.strong_count() != 0);
        inner.bells.push(Arc::downgrade(bell));
        if self.ended() {
            bell.stop();
        }
    }

    /// Registers `stop`: it is set to true when the generation ends, or immediately if the
    /// generation has already ended.
    pub fn watch_stop(&self, stop: &Arc<AtomicBool>) {
        let mut inner = self.inner.lock();
        inner.stops.retain(|stop| stop.strong_count() != 0);
        inner.stops.push(Arc::downgrade(stop));
        if self.ended() {
            stop.store(true, Ordering::SeqCst);
        }
    }

    fn stop_all(&self, inner: &Inner) {
        self.ended.store(true, Ordering::SeqCst);
        // Bells first, so that no consumer begins another packet once its work has returned.
        for bell in inner.bells.iter().filter_map(Weak::upgrade) {
            bell.stop();
        }
        for stop in inner.stops.iter().filter_map(Weak::upgrade) {
            stop.store(true, Ordering::SeqCst);
        }
    }
}

/// How far a fault reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultScope {
    /// Only the command buffer ends.
    CommandBuffer,
    /// The session is lost.
    Session,
}

/// Returns how far a fault with this status reaches. A mistake in a packet is found before its work
/// begins, so that it ends only the command buffer. A fault in running work, or a failure of the
/// back end, leaves the address space undefined (on a real GPU the context is gone), so that the
/// session is lost.
pub(crate) fn scope(status: Status) -> FaultScope {
    match status {
        Status::Ok
        | Status::NotRun
        | Status::BadLength
        | Status::BadOpcode
        | Status::ReservedNotZero
        | Status::BadVersion
        | Status::NoHello
        | Status::BadHandle
        | Status::BadRange
        | Status::BadAlignment
        | Status::BadAccess
        | Status::AccessDenied
        | Status::QuotaBytes
        | Status::QuotaAllocations
        | Status::QuotaCommandBuffers
        | Status::QuotaObjects
        | Status::AddressInUse
        | Status::BadToken
        | Status::BadGpu
        | Status::Revoked
        | Status::BadModule
        | Status::NoKernel
        | Status::NotInModule
        | Status::BadMemory
        | Status::Busy
        | Status::Unsupported
        | Status::TimedOut
        | Status::BadPacket
        | Status::BadPosition
        | Status::BadParameters
        | Status::BadLaunch => FaultScope::CommandBuffer,
        Status::NoMemory
        | Status::DeviceLost
        | Status::MemoryFault
        | Status::KernelFault
        | Status::Overdue
        | Status::BackEnd => FaultScope::Session,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Fault {
        Fault::new(Status::MemoryFault, text)
    }

    #[test]
    fn the_first_fault_is_kept_and_everything_watched_stops_early_or_late() {
        let generation = Generation::new(Arc::default(), Arc::default());
        let (early, late) = (
            Arc::new(Bell::new().unwrap()),
            Arc::new(Bell::new().unwrap()),
        );
        let stops = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        generation.watch_bell(&early);
        generation.watch_stop(&stops[0]);
        generation.watch_stop(&stops[1]);
        assert!(!generation.ended() && !early.stopped());
        assert!(generation.lose(fault("first")));
        assert!(!generation.lose(fault("second")));
        generation.watch_bell(&late);
        generation.watch_stop(&stops[2]);
        assert!(early.stopped() && late.stopped());
        assert!(stops.iter().all(|stop| stop.load(Ordering::SeqCst)));
        early.sleep();
        assert_eq!(generation.fault(), Some(fault("first")));
    }

    #[test]
    fn an_end_by_wish_is_no_fault() {
        let generation = Generation::new(Arc::default(), Arc::default());
        generation.end();
        assert!(generation.ended());
        assert!(!generation.lose(fault("late")));
        assert_eq!(generation.fault(), None);
    }
}
