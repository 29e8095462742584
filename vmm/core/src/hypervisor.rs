//! The part of KVM that memory placement and doorbells need, behind two small traits, so that
//! everything above them is tested without KVM.
#![allow(unsafe_code)] // Maps host addresses into guests, and calls an ioctl that has no wrapper.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use causeway_host_vfio::VfioDeviceFd;
use kvm_bindings::{
    KVM_CAP_EXIT_ON_EMULATION_FAILURE, KVM_MEM_READONLY, KVMIO, kvm_create_device,
    kvm_device_type_KVM_DEV_TYPE_VFIO, kvm_enable_cap, kvm_ioeventfd,
    kvm_ioeventfd_flag_nr_deassign, kvm_userspace_memory_region,
};
use kvm_ioctls::VmFd;
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::ioctl::ioctl_with_ref;
use vmm_sys_util::ioctl_iow_nr;

#[cfg(test)]
pub(crate) mod fake;
mod owned_slot;

pub(crate) use owned_slot::OwnedSlot;

/// Number of the first memory slot that is for guest RAM.
pub const RAM_SLOT_FIRST: u32 = 0;
/// Number of the first memory slot that is for the aperture. The numbers from here up to
/// [`PASSTHROUGH_SLOT_FIRST`] belong to the aperture.
pub const APERTURE_SLOT_FIRST: u32 = 16;
/// Maximum number of memory slots under one aperture, not counting those for memory of devices.
/// Linux before 5.12 has 509 slots for a whole VM.
pub const APERTURE_CHUNKS_MAX: u32 = 256;
/// Number of the first memory slot that is for passed-through devices.
pub const PASSTHROUGH_SLOT_FIRST: u32 = 400;
/// Number of memory slots that are for passed-through devices. All slots of a VM together are fewer
/// than the 509 that Linux before 5.12 has.
pub const PASSTHROUGH_SLOTS: u32 = 100;
/// Distance between the slot numbers of one GPU's aperture and those of the next. The slots of the
/// first GPU leave Linux before 5.12 enough; a VM with several GPUs needs a later one.
pub const SLOTS_PER_GPU: u32 = 512;

/// A memory slot of KVM: it makes a range of this process's memory appear at guest-physical
/// addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the slot, by which KVM identifies it.
    pub number: u32,
    /// First guest-physical address of the slot; a multiple of 4 KiB.
    pub gpa: u64,
    /// Address in this process of the memory behind the slot; a multiple of 4 KiB.
    pub host: u64,
    /// Size of the slot in bytes; a multiple of 4 KiB, not zero.
    pub bytes: u64,
    /// Whether the guest may only read the memory: its stores are then MMIO exits.
    pub read_only: bool,
}

/// The hypervisor's interface for adding and deleting the memory slots of one VM. KVM implements
/// it, and a fake does in tests.
pub trait MemorySlots: Send + Sync {
    /// Adds a memory slot: the guest can then access the memory behind it.
    ///
    /// # Safety
    /// The guest may read and (unless read-only) write `[host, host + bytes)` from now on at any
    /// time. Until the slot is deleted or the VM is gone, the caller keeps these addresses reserved
    /// for that purpose, and holds no Rust reference to what is behind them.
    ///
    /// # Errors
    /// The hypervisor's error: `EEXIST` if the range overlaps another slot, `EINVAL` if the slot is
    /// not aligned to pages, `ENOMEM` if the kernel has no memory for it.
    unsafe fn set(&self, slot: Slot) -> io::Result<()>;

    /// Deletes the memory slot with this number. When this returns, the guest cannot reach the
    /// memory through the slot any more.
    ///
    /// # Errors
    /// The hypervisor's error: `EINVAL` if there is no such slot.
    fn delete(&self, number: u32) -> io::Result<()>;
}

/// Memory slots and events without a VM, for tests of devices: every call succeeds and does
/// nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoGuest;

impl MemorySlots for NoGuest {
    unsafe fn set(&self, _: Slot) -> io::Result<()> {
        Ok(())
    }

    fn delete(&self, _: u32) -> io::Result<()> {
        Ok(())
    }
}

impl IoEvents for NoGuest {
    fn register(&self, _: u64, _: &EventFd) -> io::Result<()> {
        Ok(())
    }

    fn unregister(&self, _: u64, _: &EventFd) -> io::Result<()> {
        Ok(())
    }
}

/// The hypervisor's interface for registering eventfds (ioeventfds): a guest's store to a
/// registered address signals its eventfd without an exit to this process.
pub trait IoEvents: Send + Sync {
    /// Makes every guest store to guest-physical `address` signal `event`. Stores count only with
    /// the width that these events are for.
    ///
    /// # Errors
    /// The hypervisor's error: `EEXIST` if the address is registered already, `ENOSPC` if the VM
    /// has too many of them.
    fn register(&self, address: u64, event: &EventFd) -> io::Result<()>;

    /// Ends the registration of `event` at `address`.
    ///
    /// # Errors
    /// The hypervisor's error: `ENOENT` if `event` is not registered at `address`.
    fn unregister(&self, address: u64, event: &EventFd) -> io::Result<()>;
}

/// One virtual machine of KVM, through which memory slots and eventfds are added and removed.
#[derive(Clone)]
pub struct KvmHypervisor {
    vm: Arc<VmFd>,
    /// Width of the stores that are events, in bytes.
    event_bytes: u32,
    /// What is added to the numbers of memory slots.
    slots_from: u32,
}

debug_by_name!(KvmHypervisor);

impl KvmHypervisor {
    /// Returns the interface to the memory slots and eventfds of `vm`. A registered eventfd is
    /// signalled by stores of 4 bytes.
    pub fn new(vm: Arc<VmFd>) -> Self {
        Self {
            vm,
            event_bytes: 4,
            slots_from: 0,
        }
    }

    /// Returns the same VM, but eventfds registered through it are signalled by stores of `bytes`
    /// bytes: 1, 2, 4 or 8.
    pub fn with_events_of(self, bytes: u32) -> Self {
        Self {
            event_bytes: bytes,
            ..self
        }
    }

    /// Returns the same VM, but memory slots that are added through it have numbers that only the
    /// GPU with this index uses. The first GPU, whose index is 0, has the usual numbers.
    pub fn with_slots_of_gpu(self, index: u32) -> Self {
        Self {
            slots_from: index * SLOTS_PER_GPU,
            ..self
        }
    }

    /// Creates KVM's VFIO device, by which KVM learns which host devices are passed through to the
    /// VM.
    ///
    /// # Errors
    /// KVM's error: `ENODEV` if the Linux kernel was built without KVM's VFIO device.
    pub(crate) fn vfio_device(&self) -> io::Result<VfioDeviceFd> {
        let mut request = kvm_create_device {
            type_: kvm_device_type_KVM_DEV_TYPE_VFIO,
            ..Default::default()
        };
        let device = self
            .vm
            .create_device(&mut request)
            .map_err(io::Error::from)?;
        Ok(VfioDeviceFd::new_from_kvm(device))
    }

    /// Returns the VM's KVM descriptor.
    pub(crate) fn vm(&self) -> &VmFd {
        &self.vm
    }

    /// Makes `KVM_RUN` return an internal error, with the processor's state unchanged, when the
    /// guest executes an instruction that KVM cannot emulate. Without this call, code at CPL 3 gets
    /// an invalid-opcode exception instead (Linux, `handle_emulation_failure`).
    ///
    /// # Errors
    /// KVM's error: `EINVAL` before Linux 5.15.
    pub fn exit_on_emulation_failure(&self) -> io::Result<()> {
        let mut capability = kvm_enable_cap {
            cap: KVM_CAP_EXIT_ON_EMULATION_FAILURE,
            ..Default::default()
        };
        capability.args[0] = 1;
        self.vm.enable_cap(&capability).map_err(io::Error::from)
    }
}

impl MemorySlots for KvmHypervisor {
    unsafe fn set(&self, slot: Slot) -> io::Result<()> {
        let region = kvm_userspace_memory_region {
            slot: self.slots_from + slot.number,
            flags: if slot.read_only { KVM_MEM_READONLY } else { 0 },
            guest_phys_addr: slot.gpa,
            memory_size: slot.bytes,
            userspace_addr: slot.host,
        };
        // SAFETY: by the contract of the trait the addresses stay reserved, and nothing else relies
        // on their content.
        unsafe { self.vm.set_user_memory_region(region) }.map_err(io::Error::from)
    }

    fn delete(&self, number: u32) -> io::Result<()> {
        let region = kvm_userspace_memory_region {
            slot: self.slots_from + number,
            ..Default::default()
        };
        // SAFETY: a region of size zero gives the guest no memory; it takes some away.
        unsafe { self.vm.set_user_memory_region(region) }.map_err(io::Error::from)
    }
}

impl IoEvents for KvmHypervisor {
    fn register(&self, address: u64, event: &EventFd) -> io::Result<()> {
        self.io_event(address, event, 0)
    }

    fn unregister(&self, address: u64, event: &EventFd) -> io::Result<()> {
        self.io_event(address, event, 1 << kvm_ioeventfd_flag_nr_deassign)
    }
}

mod request {
    #![allow(missing_docs)] // The macro writes a public function.
    use super::{KVMIO, ioctl_iow_nr, kvm_ioeventfd};
    ioctl_iow_nr!(KVM_IOEVENTFD, KVMIO, 0x79, kvm_ioeventfd);
}

impl KvmHypervisor {
    /// Adds or removes an ioeventfd for stores of exactly `event_bytes` bytes with any value. The
    /// wrapper in kvm-ioctls ties the width to a value to match.
    fn io_event(&self, address: u64, event: &EventFd, flags: u32) -> io::Result<()> {
        let request = kvm_ioeventfd {
            addr: address,
            len: self.event_bytes,
            fd: event.as_raw_fd(),
            flags,
            ..Default::default()
        };
        // SAFETY: the request outlives the call, which reads it and nothing else; both descriptors
        // are open.
        match unsafe { ioctl_with_ref(&*self.vm, request::KVM_IOEVENTFD(), &request) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
