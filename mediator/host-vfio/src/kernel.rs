//! A device behind the kernel's VFIO.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vfio_bindings::bindings::vfio::VFIO_DEVICE_FLAGS_RESET;
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError};

use crate::Address;
use crate::container::{Container, Vfio};
use crate::hardware::{Description, Hardware};
use crate::host::PciFunction;
use crate::interrupts::{Action, InterruptKind};
use crate::ioctl;
use crate::region::RegionIndex;
use crate::reset::{ResetError, ResetMethod, ResetReach};

mod bus_reset;
mod region;

/// A device that the kernel lets this process have. Dropping it ends the container's DMA if it was
/// the last, then closes the device, then gives its group back if nothing of it is open any more.
pub(crate) struct KernelDevice {
    address: Address,
    group: Option<u32>,
    device: ManuallyDrop<VfioDevice>,
    container: Arc<Container>,
}

impl KernelDevice {
    /// Opens a function, and its group if need be. The container has noted it as open.
    pub(crate) fn open(
        container: &Arc<Container>,
        vfio: &Vfio,
        function: &PciFunction,
    ) -> Result<Self, VfioError> {
        let folder = container.host().folder(function.address);
        let device = VfioDevice::new(&folder, vfio.operations(), true)?;
        Ok(Self {
            address: function.address,
            group: function.group,
            device: ManuallyDrop::new(device),
            container: Arc::clone(container),
        })
    }
}

impl Hardware for KernelDevice {
    #[allow(unsafe_code)] // Lends a descriptor that vfio-ioctls shows as a number.
    fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: the device is open until this is dropped.
        unsafe { BorrowedFd::borrow_raw(self.device.as_raw_fd()) }
    }

    fn describe(&self) -> io::Result<Description> {
        let device = self.file();
        let mut regions = Vec::new();
        for index in RegionIndex::all() {
            regions.extend(region::query(device, index)?);
        }
        let kinds = InterruptKind::ALL.iter();
        let interrupts = kinds.map(|kind| ioctl::interrupt_info(device, *kind));
        let reset_attribute = self.container.host().folder(self.address).join("reset");
        Ok(Description {
            regions,
            interrupts: interrupts.collect::<io::Result<_>>()?,
            reset_attribute: reset_attribute.exists().then_some(reset_attribute),
        })
    }

    fn set_interrupts(&self, kind: InterruptKind, action: Action<'_>) -> io::Result<()> {
        ioctl::set_interrupts(self.file(), kind, action)
    }

    fn reset(&self, reach: ResetReach) -> Result<ResetMethod, ResetError> {
        let address = self.address;
        let failed = |source| ResetError::Failed {
            address,
            method: ResetMethod::Function,
            source,
        };
        let flags = ioctl::device_flags(self.file()).map_err(failed)?;
        if flags & VFIO_DEVICE_FLAGS_RESET == 0 {
            return bus_reset::reset(self.file(), address, &self.container, reach);
        }
        ioctl::reset(self.file()).map_err(failed)?;
        Ok(ResetMethod::Function)
    }
}

impl Drop for KernelDevice {
    fn drop(&mut self) {
        // Held until the end: who opens another function of the group meanwhile waits.
        let container = Arc::clone(&self.container);
        let mut open = container.open.lock();
        open.remove(&self.address);
        if open.is_empty() {
            // With the last device, the kernel forgets the translation, and everything mapped in
            // it.
            if let Err(e) = container.unmap_all_dma() {
                log::error!("{e}");
            }
        }
        let others = open.values().any(|group| *group == self.group);
        match &container.vfio {
            Some(Vfio::Type1(vfio)) if others => self.close_alone(vfio),
            _ => self.close(),
        }
    }
}

impl KernelDevice {
    /// Closes the device, and gives its group back.
    #[allow(unsafe_code)] // Drops what is in ManuallyDrop.
    fn close(&mut self) {
        // vfio-ioctls looks for the device's group in sysfs once more, and panics if the host has
        // removed the device meanwhile, which may be what it waited for. The group is closed with
        // the container then.
        let close = AssertUnwindSafe(|| {
            // SAFETY: called once, when this is dropped.
            unsafe { ManuallyDrop::drop(&mut self.device) }
        });
        if catch_unwind(close).is_err() {
            log::warn!(
                "device {address} was removed from the host while this process closed it; this \
                 process goes on",
                address = self.address
            );
        }
    }

    /// Closes the device, but keeps its group, of which other functions are open.
    ///
    /// vfio-ioctls would take the group from KVM with the first of its functions that is dropped.
    #[allow(unsafe_code)] // Takes apart what is in ManuallyDrop.
    fn close_alone(&mut self, container: &Arc<VfioContainer>) {
        // SAFETY: nobody uses the descriptor any more: `device` is never dropped, and forgets it
        // with its number.
        unsafe { rustix::io::close(self.device.as_raw_fd()) };
        // SAFETY: `device` has a reference to the container, made by `Vfio::operations` from this
        // very Arc, which nobody gives back if it is not dropped.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(container)) };
    }
}

causeway_memory::debug_fields!(KernelDevice { address, group });
