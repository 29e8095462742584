//! Requests to a VFIO device that have no wrapper, or one that swallows what the kernel said.
#![allow(unsafe_code)] // Calls ioctl.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    vfio_device_info, vfio_iommu_type1_dma_map, vfio_irq_info,
};
use vmm_sys_util::ioctl::{
    ioctl, ioctl_with_mut_ptr, ioctl_with_mut_ref, ioctl_with_ptr, ioctl_with_ref,
};

use crate::interrupts::{Action, InterruptInfo, InterruptKind};

mod request {
    #![allow(missing_docs)] // The macro writes public functions.
    use vfio_bindings::bindings::vfio::{VFIO_BASE, VFIO_TYPE};
    use vmm_sys_util::ioctl_io_nr;

    ioctl_io_nr!(DEVICE_GET_INFO, VFIO_TYPE.into(), VFIO_BASE + 7);
    ioctl_io_nr!(DEVICE_GET_REGION_INFO, VFIO_TYPE.into(), VFIO_BASE + 8);
    ioctl_io_nr!(DEVICE_GET_IRQ_INFO, VFIO_TYPE.into(), VFIO_BASE + 9);
    ioctl_io_nr!(DEVICE_SET_IRQS, VFIO_TYPE.into(), VFIO_BASE + 10);
    ioctl_io_nr!(DEVICE_RESET, VFIO_TYPE.into(), VFIO_BASE + 11);
    ioctl_io_nr!(
        DEVICE_GET_PCI_HOT_RESET_INFO,
        VFIO_TYPE.into(),
        VFIO_BASE + 12
    );
    ioctl_io_nr!(DEVICE_PCI_HOT_RESET, VFIO_TYPE.into(), VFIO_BASE + 13);
    ioctl_io_nr!(IOMMU_MAP_DMA, VFIO_TYPE.into(), VFIO_BASE + 13);
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Flags of the device; an error if it is not a PCI function.
pub(crate) fn device_flags(device: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = vfio_device_info {
        argsz: size_of::<vfio_device_info>() as u32,
        ..Default::default()
    };
    // SAFETY: the structure is as large as it says, and the kernel writes no more.
    check(unsafe { ioctl_with_mut_ref(&device, request::DEVICE_GET_INFO(), &mut info) })?;
    if info.flags & VFIO_DEVICE_FLAGS_PCI == 0 {
        return Err(io::Error::other("VFIO says that it is not a PCI function"));
    }
    Ok(info.flags)
}

/// Asks about a region. `bytes` begins with `vfio_region_info` (argsz, flags, index); capabilities
/// are written behind it as far as there is room.
pub(crate) fn region_info(device: BorrowedFd<'_>, bytes: &mut [u64]) -> io::Result<()> {
    // The first word is argsz and flags.
    bytes[0] = size_of_val(bytes) as u64;
    // SAFETY: `argsz` is the size of the buffer, beyond which the kernel does not write.
    check(unsafe {
        ioctl_with_mut_ptr(
            &device,
            request::DEVICE_GET_REGION_INFO(),
            bytes.as_mut_ptr(),
        )
    })
}

/// Returns number and properties of the device's interrupts of a kind; the number is 0 if the
/// device does not know the kind.
pub(crate) fn interrupt_info(
    device: BorrowedFd<'_>,
    kind: InterruptKind,
) -> io::Result<InterruptInfo> {
    let mut info = vfio_irq_info {
        argsz: size_of::<vfio_irq_info>() as u32,
        index: kind.number(),
        ..Default::default()
    };
    // SAFETY: the structure is as large as it says, and the kernel writes no more.
    let result = unsafe { ioctl_with_mut_ref(&device, request::DEVICE_GET_IRQ_INFO(), &mut info) };
    match check(result) {
        Ok(()) => Ok(InterruptInfo {
            kind,
            count: info.count,
            eventfd: info.flags & VFIO_IRQ_INFO_EVENTFD != 0,
        }),
        // vfio-pci says so of error notifications where the device is not PCI Express.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(InterruptInfo::none(kind)),
        Err(e) => Err(e),
    }
}

/// Changes what interrupts do (VFIO_DEVICE_SET_IRQS).
pub(crate) fn set_interrupts(
    device: BorrowedFd<'_>,
    kind: InterruptKind,
    action: Action<'_>,
) -> io::Result<()> {
    let words = interrupt_request(kind, action);
    // SAFETY: the request is as large as its first word says; the kernel reads it, and takes
    // references of its own to the events' files.
    check(unsafe { ioctl_with_ptr(&device, request::DEVICE_SET_IRQS(), words.as_ptr()) })
}

/// `vfio_irq_set` and its data, in words.
fn interrupt_request(kind: InterruptKind, action: Action<'_>) -> Vec<u32> {
    // -1 is no event.
    let number = |event: Option<BorrowedFd<'_>>| event.map_or(-1, |e| e.as_raw_fd());
    let (flags, files) = match action {
        Action::Signal(events) => (
            VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
            events.iter().map(|event| number(*event)).collect(),
        ),
        Action::UnmaskOn(event) => (
            VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_UNMASK,
            vec![number(Some(event))],
        ),
        Action::Disable => (
            VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER,
            Vec::new(),
        ),
    };
    let mut words = vec![0, flags, kind.number(), 0, files.len() as u32];
    words.extend(files.iter().map(|file| file.cast_unsigned()));
    words[0] = size_of_val(words.as_slice()) as u32;
    words
}

/// Resets the function.
pub(crate) fn reset(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request has no argument.
    check(unsafe { ioctl(&device, request::DEVICE_RESET()) })
}

/// Asks which functions a reset of the bus hits. `words` is argsz, flags, count, and two words for
/// each of them.
pub(crate) fn hot_reset_info(device: BorrowedFd<'_>, words: &mut [u32]) -> io::Result<()> {
    words[0] = size_of_val(words) as u32;
    // SAFETY: `argsz` is the size of the buffer, beyond which the kernel does not write.
    check(unsafe {
        ioctl_with_mut_ptr(
            &device,
            request::DEVICE_GET_PCI_HOT_RESET_INFO(),
            words.as_mut_ptr(),
        )
    })
}

/// Resets the bus. `groups` are the files of all groups on it; none if the devices are opened by
/// themselves.
pub(crate) fn hot_reset(device: BorrowedFd<'_>, groups: &[i32]) -> io::Result<()> {
    let mut words = vec![0, 0, groups.len() as u32];
    words.extend(groups.iter().map(|file| file.cast_unsigned()));
    words[0] = size_of_val(words.as_slice()) as u32;
    // SAFETY: the request is as large as its first word says, and the kernel only reads it.
    check(unsafe { ioctl_with_ptr(&device, request::DEVICE_PCI_HOT_RESET(), words.as_ptr()) })
}

/// Maps memory for DMA in a type-1 container.
///
/// # Safety
/// As [`crate::dma::Translation::map`].
pub(crate) unsafe fn map_dma(
    container: &impl AsRawFd,
    request: &vfio_iommu_type1_dma_map,
) -> io::Result<()> {
    // SAFETY: the structure is as large as it says; what it does to memory is the caller's
    // responsibility.
    check(unsafe { ioctl_with_ref(container, request::IOMMU_MAP_DMA(), request) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use vmm_sys_util::eventfd::EventFd;

    #[test]
    fn requests_are_laid_out_as_the_kernel_reads_them() {
        let event = EventFd::new(0).unwrap();
        // SAFETY: the event is open until the end of the test.
        let file = unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) };
        let number = event.as_raw_fd().cast_unsigned();
        let action = Action::Signal(&[Some(file.as_fd()), None]);
        let words = interrupt_request(InterruptKind::Msix, action);
        assert_eq!(words, [28, 4 | 32, 2, 0, 2, number, u32::MAX]);
        let words = interrupt_request(InterruptKind::Intx, Action::UnmaskOn(file));
        assert_eq!(words, [24, 4 | 16, 0, 0, 1, number]);
        let words = interrupt_request(InterruptKind::Msi, Action::Disable);
        assert_eq!(words, [20, 1 | 32, 1, 0, 0]);
    }
}
