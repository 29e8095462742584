//! Sessions in worker processes, one process each.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mediator::host::Host;
use causeway_mediator::{GuestSession, OpenError, Quota, SessionSource};
use causeway_memory::{DeviceMemory, MemoryError};

use super::broker::Broker;
use super::process::{Program, Spawner};
use super::session::WorkerSession;
use super::worker::Order;
use crate::{DeviceUuid, bus_error};

/// Makes memory of a device, whose descriptor another process sent and which is said to have so many bytes, something
/// that can be placed in an aperture. Descriptor and size are not to be trusted.
pub type ImportDevice =
    dyn Fn(DeviceUuid, OwnedFd, u64) -> Result<Arc<dyn DeviceMemory>, MemoryError> + Send + Sync;

/// What all workers of a VMM share.
pub(super) struct Shared {
    pub program: Program,
    pub spawner: Arc<Spawner>,
    pub broker: Arc<Broker>,
    pub import_device: Option<Arc<ImportDevice>>,
}

/// Opens sessions, each in a process of its own. Sessions of one such source can share memory, and nothing else.
pub struct Workers {
    shared: Arc<Shared>,
    sessions: AtomicU64,
}

impl Workers {
    /// Sessions in processes of `program`. Without `import_device`, memory of devices cannot be shown to guests' CPUs.
    ///
    /// # Errors
    /// If there is no thread to be had, or no signal handler.
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

    /// As [`SessionSource::open`], with its own type.
    ///
    /// # Errors
    /// [`OpenError`].
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
