//! Registration of host memory with the GPU: the driver pins it and gives it a GPU address.

use std::sync::Arc;

use causeway_mediator::backend::BackendError;
use causeway_memory::{Mapping, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::driver::{Context, Registration};
use crate::error::lacks;
use crate::support::{Attribute, Support};

/// A registration, and where in it some memory begins.
#[derive(Clone)]
pub(crate) struct HostView {
    pub(crate) registration: Arc<Registration>,
    /// Bytes from its beginning.
    pub(crate) offset: u64,
}

impl HostView {
    /// Returns the GPU address at which the memory begins.
    pub(crate) fn address(&self) -> u64 {
        self.registration.address() + self.offset
    }
}

/// Maps a range (offset and bytes) of an object, and registers it with the GPU.
///
/// # Errors
/// `NoMemory`: the kernel cannot map it, or the driver cannot lock it.
pub(crate) fn register(
    context: &Arc<Context>,
    shared: &SharedMemory,
    range: (u64, u64),
    access: Access,
) -> Result<Registration, BackendError> {
    let (offset, bytes) = range;
    let what = || format!("register {bytes} bytes of host memory from {offset:#x}");
    let mapping = shared
        .map(offset, bytes, access)
        .map_err(|e| BackendError::new(Status::NoMemory, what()).because(e))?;
    register_mapping(context, mapping, access, what)
}

/// Registers memory that is mapped already; `what` says for which request.
///
/// # Errors
/// `NoMemory`: the driver cannot lock as much memory.
pub(crate) fn register_mapping(
    context: &Arc<Context>,
    mapping: Mapping,
    access: Access,
    what: impl Fn() -> String,
) -> Result<Registration, BackendError> {
    let read_only = access != Access::ReadWrite;
    Registration::new(context, mapping, read_only).map_err(|source| {
        let what = format!(
            "{}: the driver locks such memory; raise the limit of locked memory, which is {} (ulimit -l), or free \
             memory of the host",
            what(),
            locked_limit()
        );
        BackendError::new(Status::NoMemory, what).because(source)
    })
}

/// Refuses host memory on a GPU that cannot reach it.
///
/// # Errors
/// `Unsupported`.
pub(crate) fn check_support(support: &Support) -> Result<(), BackendError> {
    if support.has(Attribute::HostRegister) {
        Ok(())
    } else {
        Err(lacks(Attribute::HostRegister))
    }
}

/// Returns `RLIMIT_MEMLOCK` in words.
fn locked_limit() -> String {
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => String::from("unlimited"),
    }
}
