//! A back end and the sessions on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::Backend;
use crate::host::Host;
use crate::quota::Quota;
use crate::session::Session;
use crate::share::{Exchange, Exports};

/// Opens sessions on one back end. Sessions of one mediator can share memory, and nothing else.
pub struct Mediator {
    backend: Arc<dyn Backend>,
    exchange: Arc<dyn Exchange>,
    sessions: AtomicU64,
}

impl Mediator {
    /// A mediator that owns `backend`.
    pub fn new(backend: Arc<dyn Backend>) -> Arc<Self> {
        Self::with_exchange(backend, Arc::<Exports>::default())
    }

    /// A mediator whose sessions export and import through `exchange`, which others may use too.
    pub fn with_exchange(backend: Arc<dyn Backend>, exchange: Arc<dyn Exchange>) -> Arc<Self> {
        Arc::new(Self {
            backend,
            exchange,
            sessions: AtomicU64::new(0),
        })
    }

    /// The back end.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// A session for one guest. `name` is for logs and reports. The session ends, with all it owns, when
    /// it is closed or dropped.
    pub fn open(&self, host: Arc<dyn Host>, quota: Quota, name: &str) -> Arc<Session> {
        let id = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        self.open_as(id, host, quota, name)
    }

    /// As [`Self::open`], with a number that the caller gives.
    pub fn open_as(&self, id: u64, host: Arc<dyn Host>, quota: Quota, name: &str) -> Arc<Session> {
        Session::open(
            id,
            name,
            Arc::clone(&self.backend),
            host,
            Arc::clone(&self.exchange),
            quota,
        )
    }
}
