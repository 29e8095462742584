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

/// Number of the first memory slot of guest RAM.
pub const RAM_SLOT_FIRST: u32 = 0;
/// Number of the first memory slot of the aperture; all above belong to it, up to those of devices
/// passed through.
pub const APERTURE_SLOT_FIRST: u32 = 16;
/// Most slots of one aperture's chunks. Kernels before 5.12 have 509 slots in all.
pub const APERTURE_CHUNKS_MAX: u32 = 256;
/// Number of the first memory slot of devices passed through.
pub const PASSTHROUGH_SLOT_FIRST: u32 = 400;
/// Slots of devices passed through: with all others, fewer than the 509 that kernels before 5.12
/// have.
pub const PASSTHROUGH_SLOTS: u32 = 100;

/// A memory slot: guest-physical addresses and what is behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the slot.
    pub number: u32,
    /// First guest-physical address; a multiple of 4 KiB.
    pub gpa: u64,
    /// First address in this process; a multiple of 4 KiB.
    pub host: u64,
    /// Size in bytes; a multiple of 4 KiB, not zero.
    pub bytes: u64,
    /// Whether a guest's store is an MMIO exit instead.
    pub read_only: bool,
}

/// Memory slots of one VM.
pub trait MemorySlots: Send + Sync {
    /// Adds a slot.
    ///
    /// # Safety
    /// The guest may read and (unless read-only) write `[host, host + bytes)` from now on at any
    /// time. Until the slot is deleted or the VM is gone, the caller keeps these addresses reserved
    /// for that purpose, and holds no Rust reference to what is behind them.
    ///
    /// # Errors
    /// The hypervisor's error: `EEXIST` for a range that overlaps another slot, `EINVAL`,
    /// `ENOMEM`.
    unsafe fn set(&self, slot: Slot) -> io::Result<()>;

    /// Deletes a slot. When it returns, the guest cannot reach the memory through it any more.
    ///
    /// # Errors
    /// The hypervisor's error: `EINVAL` if there is no such slot.
    fn delete(&self, number: u32) -> io::Result<()>;
}

/// A hypervisor without a guest: it takes every slot and does nothing. Tests of devices use it.
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

/// Guest stores that signal an eventfd inside the hypervisor.
pub trait IoEvents: Send + Sync {
    /// Makes every store at guest-physical `address`, of the width that these events are for,
    /// signal `event`.
    ///
    /// # Errors
    /// The hypervisor's error: `EEXIST` if the address is taken, `ENOSPC` if there are too many.
    fn register(&self, address: u64, event: &EventFd) -> io::Result<()>;

    /// Ends what [`Self::register`] began.
    ///
    /// # Errors
    /// The hypervisor's error: `ENOENT` if it was not registered.
    fn unregister(&self, address: u64, event: &EventFd) -> io::Result<()>;
}

/// A KVM virtual machine.
#[derive(Clone)]
pub struct KvmHypervisor {
    vm: Arc<VmFd>,
    /// Width of the stores that are events, in bytes.
    event_bytes: u32,
}

debug_by_name!(KvmHypervisor);

impl KvmHypervisor {
    /// Returns memory slots and doorbells of `vm`. Stores of 4 bytes are events.
    pub fn new(vm: Arc<VmFd>) -> Self {
        Self { vm, event_bytes: 4 }
    }

    /// Returns the same VM, of which stores of `bytes` bytes are events: 1, 2, 4 or 8.
    pub fn with_events_of(self, bytes: u32) -> Self {
        Self {
            event_bytes: bytes,
            ..self
        }
    }

    /// Returns a new VFIO device of KVM, which gets the list of the VM's devices.
    ///
    /// # Errors
    /// KVM's error: `ENODEV` if it was built without it.
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

    /// Returns the VM.
    pub(crate) fn vm(&self) -> &VmFd {
        &self.vm
    }

    /// Makes an instruction that KVM cannot emulate end `KVM_RUN` with an internal error, with the
    /// processor's state as it was, at every privilege level. Without it, code at CPL 3 gets an
    /// invalid-opcode exception instead (Linux, `handle_emulation_failure`).
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
            slot: slot.number,
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
            slot: number,
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
    /// Stores of exactly so many bytes with any value. The wrapper in kvm-ioctls ties the width to
    /// a value to match.
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
