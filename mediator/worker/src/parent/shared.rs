//! What all workers of a VMM share, and what one worker is started for.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_mediator::host::Host;
use causeway_mediator::rights::Grants;
use causeway_mediator::{LiveLimits, OpenError};
use causeway_memory::{DeviceMemory, MemoryError};

use super::broker::Broker;
use super::leases::{Leases, Membership};
use super::overdue::Overdue;
use super::partitions::Partitions;
use super::starter::Starter;
use crate::DeviceUuid;

/// A function that imports device memory into the VMM, so that the VMM can place it in an aperture.
/// Its arguments are the UUID of the GPU, the file descriptor that a worker process sent, and the
/// size in bytes that the worker claims. It must check the descriptor and the size, because the
/// worker may be hostile.
pub type ImportDevice =
    dyn Fn(DeviceUuid, OwnedFd, u64) -> Result<Arc<dyn DeviceMemory>, MemoryError> + Send + Sync;

/// What all workers of a VMM on one GPU share.
pub(super) struct Shared {
    pub starter: Arc<Starter>,
    /// Shared with the workers on other GPUs, too.
    pub broker: Arc<Broker>,
    /// Number of the GPU.
    pub gpu: u32,
    pub partitions: Arc<Partitions>,
    pub import_device: Option<Arc<ImportDevice>>,
    pub leases: Arc<Leases>,
    pub overdue: Arc<Overdue>,
}

/// The session that a worker is started for.
pub(super) struct Order {
    pub session: u64,
    /// Number of the GPU's partition that the session holds, from 0.
    pub partition: u32,
    pub name: String,
    pub host: Arc<dyn Host>,
    /// The limits that the VMM has set, which its own account of the worker keeps to.
    pub limits: Arc<LiveLimits>,
    /// What the session's workers have exported and imported.
    pub grants: Arc<Grants>,
    /// The session's part of the device's time.
    pub membership: Membership,
}

impl Order {
    /// Returns the error of a session whose worker process cannot be started.
    pub fn failed(&self, source: io::Error) -> OpenError {
        OpenError::Start {
            name: self.name.clone(),
            source,
        }
    }
}
