//! One mapping of an address space: memory at a GPU address.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use causeway_mediator::backend::{BackendError, Memory, Place};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use parking_lot::Mutex;

use crate::addresses::Placement;
use crate::device_memory::GpuMemory;
use crate::driver::{DeviceView, LoadedModule};
use crate::error::{failed, lacks, refused};
use crate::gpu::Gpu;
use crate::host_memory::HostMemory;
use crate::host_registration::HostView;
use crate::support::Attribute;

/// Memory that is mapped at a GPU address, until dropped.
pub(crate) struct Mapping {
    // Dropped before the memory, and so before the memory can be reused.
    kind: Kind,
    /// The memory as the mediator passed it. The session is charged for it until this is dropped.
    memory: Option<Arc<dyn Memory>>,
}

enum Kind {
    /// Device memory. The driver maps the whole allocation even for a mapping of a part: what a
    /// guest can access beyond the part is the same allocation, with the same rights.
    Device {
        placed: Mutex<Option<Placement>>,
        /// Offset in the allocation at which the guest's mapping begins.
        offset: u64,
        bytes: u64,
        /// The memory as this process sees it, mapped at the first load.
        view: OnceLock<Option<DeviceView>>,
    },
    Host {
        view: HostView,
        /// The rights that kernels have.
        granted: Access,
    },
    /// A variable of a module, which the driver has mapped together with the module.
    Variable {
        /// Keeps the module loaded.
        _module: Arc<LoadedModule>,
    },
    #[cfg(test)]
    Nothing,
}

impl Mapping {
    /// Maps `range` (offset and bytes) of `memory` with the rights `access`, at the address
    /// `wanted` or at a free one. Returns the address with the mapping. `is_free` tells whether the
    /// address space has no mapping yet at an address that the driver chose.
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        is_free: impl Fn(u64) -> bool,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        range: (u64, u64),
        access: Access,
    ) -> Result<(u64, Arc<Self>), BackendError> {
        let any = memory.as_any();
        let (va, kind) = if let Some(device) = any.downcast_ref::<GpuMemory>() {
            device_kind(gpu, wanted, device, range, access)?
        } else if let Some(host) = any.downcast_ref::<HostMemory>() {
            host_kind(gpu, is_free, wanted, host, range, access)?
        } else {
            return Err(foreign());
        };
        let mapping = Self {
            kind,
            memory: Some(Arc::clone(memory)),
        };
        Ok((va, Arc::new(mapping)))
    }

    /// Returns the mapping of a variable of `module`, which stays loaded until this is dropped.
    pub(crate) fn variable(module: &Arc<LoadedModule>) -> Self {
        let _module = Arc::clone(module);
        Self {
            kind: Kind::Variable { _module },
            memory: None,
        }
    }

    /// Returns where the memory is.
    pub(super) fn place(&self) -> Place {
        let memory = self.memory.as_ref();
        memory.map_or(Place::Own, |memory| memory.place())
    }

    /// Returns whether this is device memory that can be unmapped while work still uses it: where
    /// kernels could use it for ever. What only copies reach is kept until those are done.
    pub(super) fn goes_at_once(&self) -> bool {
        let is_apart = matches!(self.place(), Place::Apart { .. });
        matches!(self.kind, Kind::Device { .. }) && !is_apart
    }

    /// Removes device memory from the GPU's page tables now. Host memory stays mapped until this is
    /// dropped.
    pub(super) fn unmap_device(&self) {
        if let Kind::Device { placed, .. } = &self.kind {
            let placed = placed.lock().take();
            drop(placed);
        }
    }

    /// Changes the rights of kernels to `access`.
    ///
    /// # Errors
    /// `Unsupported` if host memory was mapped with fewer rights; the status of the driver's error
    /// if the driver fails.
    pub(super) fn set_access(&self, access: Access) -> Result<(), BackendError> {
        match &self.kind {
            Kind::Device { placed, .. } => {
                let placed = placed.lock();
                let what = || format!("give the GPU the right {access:?}");
                match &*placed {
                    Some(placed) => {
                        let set = placed.mapped.set_access(access);
                        set.map_err(|e| failed(what(), e))
                    }
                    None => Err(refused(Status::BackEnd, what())),
                }
            }
            // Registered memory has the rights that it was registered with. Fewer are enforced for
            // all but kernels, which can do nothing that the session may not: it could map the
            // memory again.
            Kind::Host { granted, .. } if granted.allows(access) => Ok(()),
            Kind::Host { .. } => Err(refused(
                Status::Unsupported,
                "host memory that is mapped read-only stays read-only: map it again",
            )),
            Kind::Variable { .. } => Err(refused(
                Status::Unsupported,
                "the rights of a module's variable cannot be changed",
            )),
            #[cfg(test)]
            Kind::Nothing => Ok(()),
        }
    }

    /// Loads the 64-bit word at `offset` of the mapping; `None` if the offset is not a multiple of
    /// 8, or if this process cannot map the memory.
    pub(super) fn load_u64(&self, offset: u64) -> Option<u64> {
        match &self.kind {
            Kind::Host { view, .. } => {
                let mapping = view.registration.mapping();
                mapping
                    .load_u64(view.offset + offset, Ordering::Acquire)
                    .ok()
            }
            Kind::Device {
                offset: begin,
                bytes,
                view,
                ..
            } => {
                let view = view.get_or_init(|| self.device_view(*begin, *bytes));
                view.as_ref()?.load_u64(offset)
            }
            Kind::Variable { .. } => None,
            #[cfg(test)]
            Kind::Nothing => None,
        }
    }

    fn device_view(&self, offset: u64, bytes: u64) -> Option<DeviceView> {
        let memory = self.memory.as_ref()?.as_any();
        let visible = memory.downcast_ref::<GpuMemory>()?.visible()?;
        DeviceView::new(&**visible, offset, bytes)
            .inspect_err(|e| log::debug!("cannot map device memory to look at a fence in it: {e}"))
            .ok()
    }

    /// Returns a mapping for tests of the table.
    #[cfg(test)]
    pub(super) fn nothing() -> Self {
        Self {
            kind: Kind::Nothing,
            memory: None,
        }
    }
}

fn foreign() -> BackendError {
    refused(
        Status::BadMemory,
        "map memory that belongs to another back end",
    )
}

fn device_kind(
    gpu: &Arc<Gpu>,
    wanted: Option<u64>,
    memory: &GpuMemory,
    (offset, bytes): (u64, u64),
    access: Access,
) -> Result<(u64, Kind), BackendError> {
    let physical = memory.physical().filter(|_| memory.is_of(gpu));
    let physical = physical.ok_or_else(foreign)?;
    let base = match wanted {
        None => None,
        Some(address) => Some(address.checked_sub(offset).ok_or_else(|| {
            let text = format!(
                "map from offset {offset:#x} at {address:#x}: the address is less than the offset"
            );
            refused(Status::AddressInUse, text)
        })?),
    };
    let placed = gpu.addresses.place(base, physical, access)?;
    let va = placed.mapped.address() + offset;
    let kind = Kind::Device {
        placed: Mutex::new(Some(placed)),
        offset,
        bytes,
        view: OnceLock::new(),
    };
    Ok((va, kind))
}

/// Maps host memory. A registration has one address, which the driver chooses outside of
/// [`causeway_protocol::message::HOST_ADDRESSES`], and fixed rights. So a mapping with all rights
/// is a part of the registration that the memory has anyway; a mapping at a chosen address, with
/// fewer rights, or a second one of the same part gets a registration of its own.
fn host_kind(
    gpu: &Arc<Gpu>,
    is_free: impl Fn(u64) -> bool,
    wanted: Option<u64>,
    memory: &HostMemory,
    (offset, bytes): (u64, u64),
    access: Access,
) -> Result<(u64, Kind), BackendError> {
    if !memory.is_of(gpu) {
        return Err(foreign());
    }
    if access == Access::ReadWrite {
        let view = memory.main(gpu)?.offset_by(offset);
        let va = view.address();
        if is_free(va) && wanted.is_none_or(|wanted| wanted == va) {
            let granted = Access::ReadWrite;
            return Ok((va, Kind::Host { view, granted }));
        }
    }
    let granted = match access {
        Access::ReadWrite => Access::ReadWrite,
        Access::Read | Access::None => Access::Read,
    };
    if granted == Access::Read && !gpu.support.has(Attribute::HostRegisterReadOnly) {
        return Err(lacks(Attribute::HostRegisterReadOnly));
    }
    let view = match wanted {
        Some(address) => memory.register_at(gpu, address, (offset, bytes), granted)?,
        None => memory.register(gpu, offset, bytes, granted)?,
    };
    Ok((view.address(), Kind::Host { view, granted }))
}
