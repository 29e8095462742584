//! Sessions in worker processes, one process each.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::host::Host;
use causeway_mediator::{GuestSession, OpenError, Quota, SessionSource};

use super::process::{Program, Spawner};
use super::session::WorkerSession;
use super::shared::{ImportDevice, Order, Shared};
use crate::bus_error;

/// Opens sessions for a VMM, each in a worker process of its own. Sessions of one `Workers` can
/// share memory with each other.
pub struct Workers {
    shared: Arc<Shared>,
    sessions: AtomicU64,
}

causeway_memory::debug_fields!(Workers {});

impl Workers {
    /// Returns a source of sessions that starts `program` for each session. If `import_device` is
    /// `None`, guests cannot map device memory for their CPUs.
    ///
    /// # Errors
    /// The kernel's error, if this process cannot start a thread or install a signal handler.
    pub fn new(program: Program, import_device: Option<Arc<ImportDevice>>) -> io::Result<Self> {
        bus_error::survive()?;
        Ok(Self {
            shared: Arc::new(Shared {
                program,
                spawner: Spawner::new()?,
                broker: Arc::default(),
                import_device,
            }),
            sessions: AtomicU64::new(0),
        })
    }

    /// Opens a session as [`SessionSource::open`] does, and returns it as a [`WorkerSession`].
    ///
    /// # Errors
    /// [`OpenError::Unavailable`] if the worker cannot create its back end, [`OpenError::Start`] if
    /// the kernel fails to start the worker process, [`OpenError::Ended`] if the process ends
    /// before the session is open.
    pub fn open_worker(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
    ) -> Result<Arc<WorkerSession>, OpenError> {
        let order = Order {
            session: self.sessions.fetch_add(1, Ordering::Relaxed) + 1,
            name: name.to_owned(),
            host,
            quota,
        };
        WorkerSession::open(Arc::clone(&self.shared), order).map(Arc::new)
    }
}

impl SessionSource for Workers {
    fn open(
        &self,
        host: Arc<dyn Host>,
        quota: Quota,
        name: &str,
    ) -> Result<Arc<dyn GuestSession>, OpenError> {
        Ok(self.open_worker(host, quota, name)?)
    }
}
