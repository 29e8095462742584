//! Registration of host memory with the GPU: the driver pins it and gives it a GPU address.

use std::sync::Arc;

use causeway_mediator::backend::BackendError;
use causeway_memory::{Mapping, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{HOST_ADDRESSES, Status};

use crate::driver::{Context, Registration};
use crate::error::lacks;
use crate::repeats::{Repeat, Repeats};
use crate::support::{Attribute, Support};

/// Host memory that is registered with the GPU, as part of a registration that others may share.
#[derive(Clone)]
pub(crate) struct HostView {
    pub(crate) registration: Arc<Registration>,
    /// Offset in the registration at which the memory begins, in bytes.
    pub(crate) offset: u64,
    /// Counts the registration, if the memory has another one. Dropped after the registration.
    _repeat: Option<Arc<Repeat>>,
}

/// What registers memory of a GPU's guests once more.
#[derive(Clone, Copy)]
pub(crate) struct Registrar<'a> {
    pub(crate) context: &'a Arc<Context>,
    pub(crate) support: &'a Support,
    pub(crate) repeats: &'a Repeats,
}

impl HostView {
    /// Returns all the memory of `registration`.
    fn whole(registration: Registration) -> Self {
        Self {
            registration: Arc::new(registration),
            offset: 0,
            _repeat: None,
        }
    }

    /// Returns this memory, whose registration `repeat` counts.
    fn counted(self, repeat: Repeat) -> Self {
        Self {
            _repeat: Some(Arc::new(repeat)),
            ..self
        }
    }

    /// Returns the memory from `offset` of this memory.
    pub(crate) fn offset_by(self, offset: u64) -> Self {
        Self {
            offset: self.offset + offset,
            ..self
        }
    }

    /// Returns the GPU address at which the memory begins.
    pub(crate) fn address(&self) -> u64 {
        self.registration.address() + self.offset
    }
}

/// Maps a range (offset and bytes) of the object `shared` in this process, and registers it with
/// the GPU for the first time.
///
/// # Errors
/// `NoMemory` if the Linux kernel cannot map the range, or the driver cannot lock its pages.
pub(crate) fn register(
    context: &Arc<Context>,
    shared: &SharedMemory,
    (offset, bytes): (u64, u64),
    access: Access,
) -> Result<HostView, BackendError> {
    let what = || format!("register {bytes} bytes of host memory from {offset:#x}");
    let mapping = shared
        .map(offset, bytes, access)
        .map_err(|e| BackendError::new(Status::NoMemory, what()).because(e))?;
    register_mapping(context, mapping, access, what)
}

/// Does what [`register`] does for a range that may be part of a registration already.
///
/// # Errors
/// As for [`register`]; `NoMemory` also if the guest has too many such registrations.
pub(crate) fn register_again(
    registrar: Registrar<'_>,
    shared: &SharedMemory,
    range: (u64, u64),
    access: Access,
) -> Result<HostView, BackendError> {
    let repeat = registrar.repeats.count(range.1)?;
    Ok(register(registrar.context, shared, range, access)?.counted(repeat))
}

/// Does what [`register_again`] does, at `address` for CPU and GPU.
///
/// # Errors
/// `AddressInUse` if the address is outside of [`HOST_ADDRESSES`], is taken in this process, or
/// would not be the GPU's; otherwise as for [`register_again`].
pub(crate) fn register_at(
    registrar: Registrar<'_>,
    address: u64,
    shared: &SharedMemory,
    (offset, bytes): (u64, u64),
    access: Access,
) -> Result<HostView, BackendError> {
    let what = || format!("register {bytes} bytes of host memory at {address:#x}");
    let in_use = || BackendError::new(Status::AddressInUse, what());
    let end = address.checked_add(bytes);
    let is_inside = address >= HOST_ADDRESSES.start && end.is_some_and(|e| e <= HOST_ADDRESSES.end);
    if !is_inside || !has_same_addresses(registrar.support) {
        return Err(in_use());
    }
    let repeat = registrar.repeats.count(bytes)?;
    let mapping = shared.map_at(address, offset, bytes, access);
    let mapping = mapping.map_err(|e| in_use().because(e))?;
    let view = register_mapping(registrar.context, mapping, access, what)?;
    match view.address() == address {
        true => Ok(view.counted(repeat)),
        false => Err(in_use()),
    }
}

/// Returns whether registered memory has one address for CPU and GPU.
pub(crate) fn has_same_addresses(support: &Support) -> bool {
    support.has(Attribute::HostRegister) && support.has(Attribute::SameAddresses)
}

/// Registers `mapping` with the GPU. `what` returns the request for which this is done, for the
/// error's text.
///
/// # Errors
/// `NoMemory` if the driver cannot lock the pages of the mapping.
pub(crate) fn register_mapping(
    context: &Arc<Context>,
    mapping: Mapping,
    access: Access,
    what: impl Fn() -> String,
) -> Result<HostView, BackendError> {
    let read_only = access != Access::ReadWrite;
    let registered = Registration::new(context, mapping, read_only);
    registered.map(HostView::whole).map_err(|source| {
        let what = format!(
            "{}: the CUDA driver must lock this memory; raise the limit of locked memory, which is \
             {} (ulimit -l), or free memory of the host",
            what(),
            locked_limit()
        );
        BackendError::new(Status::NoMemory, what).because(source)
    })
}

/// Checks that the GPU can access host memory.
///
/// # Errors
/// `Unsupported` if the GPU lacks the attribute `HOST_REGISTER_SUPPORTED`.
pub(crate) fn check_support(support: &Support) -> Result<(), BackendError> {
    if support.has(Attribute::HostRegister) {
        Ok(())
    } else {
        Err(lacks(Attribute::HostRegister))
    }
}

/// Returns the process's limit of locked memory, `RLIMIT_MEMLOCK`, for messages.
fn locked_limit() -> String {
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => String::from("unlimited"),
    }
}
