//! A back end and the sessions on it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::backend::{Backend, Fault};
use crate::gpus::Gpus;
use crate::guest_session::{GivesUp, GuestSession, OpenError, SessionSource};
use crate::host::Host;
use crate::peers::Peers;
use crate::quota::Quota;
use crate::session::Session;
use crate::session_inner::{Device, SessionInner};
use crate::share::{Exchange, Exports};
use crate::shared::Shared;

/// Opens sessions on one back end. The sessions can share memory with each other; all other objects
/// belong to one session only.
pub struct Mediator {
    backend: Arc<dyn Backend>,
    exchange: Arc<dyn Exchange>,
    gpus: Gpus,
    /// Sessions opened so far, on this mediator and those beside it.
    count: Arc<AtomicU64>,
    /// Sessions that may still be open. A leaf lock.
    sessions: Mutex<Vec<Weak<SessionInner>>>,
    shared: Shared,
}

impl Mediator {
    /// Creates a mediator that opens sessions on `backend`.
    pub fn new(backend: Arc<dyn Backend>) -> Arc<Self> {
        Self::on(backend, Gpus::default())
    }

    /// Creates a mediator that opens sessions on `backend`, which is the first of several GPUs:
    /// [`Self::beside`] adds the others. `gpus` are all of them, as `backend` sees them.
    pub fn on(backend: Arc<dyn Backend>, gpus: Gpus) -> Arc<Self> {
        Self::with_exchange(backend, Arc::<Exports>::default(), gpus)
    }

    /// Creates a mediator that opens sessions on `backend`, one of the GPUs `gpus`. They export and
    /// import memory through `exchange`. Sessions of several mediators can share memory if the
    /// mediators use the same exchange.
    pub fn with_exchange(
        backend: Arc<dyn Backend>,
        exchange: Arc<dyn Exchange>,
        gpus: Gpus,
    ) -> Arc<Self> {
        Self::with(backend, exchange, gpus, Arc::default())
    }

    /// Creates a mediator for another of the GPUs of this one: `backend`, which sees `gpus`. Sessions
    /// of both can share memory.
    pub fn beside(&self, backend: Arc<dyn Backend>, gpus: Gpus) -> Arc<Self> {
        let (exchange, count) = (Arc::clone(&self.exchange), Arc::clone(&self.count));
        Self::with(backend, exchange, gpus, count)
    }

    fn with(
        backend: Arc<dyn Backend>,
        exchange: Arc<dyn Exchange>,
        gpus: Gpus,
        count: Arc<AtomicU64>,
    ) -> Arc<Self> {
        let shared = Shared::new(backend.attributes().compute_units);
        let mediator = Arc::new(Self {
            backend,
            exchange,
            gpus,
            count,
            sessions: Mutex::default(),
            shared,
        });
        let weak = Arc::downgrade(&mediator);
        mediator.backend.observe_loss(Box::new(move |fault| {
            if let Some(mediator) = weak.upgrade() {
                mediator.lose_device(fault);
            }
        }));
        mediator
    }

    /// Returns the back end that all sessions use.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Opens a session for the guest of VMM `host`, with the limits `quota`. Logs and reports show
    /// `name`. When the session is closed or dropped, all its objects are destroyed.
    pub fn open(&self, host: Arc<dyn Host>, quota: Quota, name: &str) -> Arc<Session> {
        let id = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        self.open_as(id, host, quota, name)
    }

    /// Opens a session as [`Self::open`] does, but with `id` as its number, instead of the next
    /// free one. A worker process gives its session the number that the VMM has chosen, so that the
    /// logs of both show the same number.
    pub fn open_as(&self, id: u64, host: Arc<dyn Host>, quota: Quota, name: &str) -> Arc<Session> {
        let (backend, exchange) = (Arc::clone(&self.backend), Arc::clone(&self.exchange));
        let device = Device {
            backend,
            gpus: self.gpus,
            shared: self.shared.clone(),
        };
        let inner = SessionInner::new(id, name, device, Peers { host, exchange }, quota);
        let mut sessions = self.sessions.lock();
        sessions.retain(|session| session.strong_count() != 0);
        sessions.push(Arc::downgrade(&inner));
        drop(sessions);
        Arc::new(Session { inner })
    }

    /// Takes the device from all sessions. A session that opens meanwhile has no memory of it yet.
    fn lose_device(&self, fault: &Fault) {
        let sessions = self.sessions.lock().clone();
        for session in sessions.iter().filter_map(Weak::upgrade) {
            session.lose_device(fault);
        }
    }
}

impl fmt::Debug for Mediator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mediator")
            .field("back_end", &self.backend.attributes().name)
            .field("sessions_opened", &self.count)
            .finish_non_exhaustive()
    }
}

impl SessionSource for Mediator {
    fn open(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
        _gives_up: GivesUp<'_>,
    ) -> Result<Arc<dyn GuestSession>, OpenError> {
        Ok(Mediator::open(self, host, quota, name))
    }
}
