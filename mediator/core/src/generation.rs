//! One life of a session: from opening or reset to loss, reset or close.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use causeway_protocol::message::Status;
use causeway_protocol::registers::status;

use crate::backend::Fault;
use crate::bell::Bell;
use crate::fence::FenceSignal;

/// Who wants to know what register `Status` holds, without asking.
#[derive(Default)]
pub(crate) struct StatusObserver {
    tell: OnceLock<Box<dyn Fn(u32) + Send + Sync>>,
    lost: AtomicBool,
}

impl StatusObserver {
    /// Takes the observer, unless there is one.
    pub fn observe(&self, tell: Box<dyn Fn(u32) + Send + Sync>) {
        let _ = self.tell.set(tell);
    }

    /// Tells the observer, if there is one. Called with a lock held that keeps what is told in order.
    pub fn tell(&self, bits: u32) {
        self.lost.store(bits & status::LOST != 0, Ordering::Relaxed);
        if let Some(tell) = self.tell.get() {
            tell(bits);
        }
    }

    /// Whether the device was lost when it was told last.
    pub fn lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Whether the session lives, and how to stop everything that works for it. A leaf lock.
pub(crate) struct Life {
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

impl Life {
    pub fn new(signal: Arc<FenceSignal>, status: Arc<StatusObserver>) -> Arc<Self> {
        Arc::new(Self {
            ended: AtomicBool::new(false),
            inner: Mutex::default(),
            signal,
            status,
        })
    }

    /// Whether it is over, by loss or by the owner's wish.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// What it was lost to.
    pub fn fault(&self) -> Option<Fault> {
        self.lock().fault.clone()
    }

    /// Ends it because of `fault`. True if this was the first reason.
    pub fn lose(&self, fault: Fault) -> bool {
        let first = {
            let mut inner = self.lock();
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

    /// Ends it at the owner's wish.
    pub fn end(&self) {
        self.stop_all(&self.lock());
        self.signal.notify();
    }

    /// Has `bell` stopped when this life ends; at once if it has.
    pub fn watch_bell(&self, bell: &Arc<Bell>) {
        let mut inner = self.lock();
        inner.bells.retain(|bell| bell.strong_count() != 0);
        inner.bells.push(Arc::downgrade(bell));
        if self.ended() {
            bell.stop();
        }
    }

    /// Has `stop` set when this life ends; at once if it has.
    pub fn watch_stop(&self, stop: &Arc<AtomicBool>) {
        let mut inner = self.lock();
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a fault reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultScope {
    /// The command buffer it came from is dead; the session lives.
    CommandBuffer,
    /// The session is lost.
    Session,
}

/// Which faults end a session, and which only a command buffer. What the guest wrote wrongly into a
/// packet is found before anything ran: only the command buffer is out of step. A fault in work under
/// way leaves the address space undefined (on a real GPU the context is gone), as does a back end that fails.
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
        | Status::Revoked
        | Status::BadModule
        | Status::NoFunction
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
        | Status::BackEnd => FaultScope::Session,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Fault {
        Fault {
            status: Status::MemoryFault,
            text: text.into(),
        }
    }

    #[test]
    fn the_first_fault_is_kept_and_everything_watched_stops_early_or_late() {
        let life = Life::new(Arc::default(), Arc::default());
        let (early, late) = (
            Arc::new(Bell::new().unwrap()),
            Arc::new(Bell::new().unwrap()),
        );
        let stop = Arc::new(AtomicBool::new(false));
        life.watch_bell(&early);
        life.watch_stop(&stop);
        assert!(!life.ended() && !early.stopped());
        assert!(life.lose(fault("first")));
        assert!(!life.lose(fault("second")));
        life.watch_bell(&late);
        assert!(early.stopped() && late.stopped() && stop.load(Ordering::SeqCst));
        early.sleep();
        assert_eq!(life.fault(), Some(fault("first")));
    }

    #[test]
    fn an_end_by_wish_is_no_fault() {
        let life = Life::new(Arc::default(), Arc::default());
        life.end();
        assert!(life.ended());
        assert!(!life.lose(fault("late")));
        assert_eq!(life.fault(), None);
    }
}
