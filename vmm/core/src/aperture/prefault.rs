//! Mapping placements into the hypervisor's page tables ahead of the guest's first touch.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use kvm_bindings::{KVMIO, kvm_pre_fault_memory};
use kvm_ioctls::VcpuFd;
use vmm_sys_util::ioctl::ioctl_with_mut_ref;

use super::Aperture;

/// Most ranges that wait. A guest that maps more in one batch touches the rest itself.
const PENDING_MAX: usize = 64;

/// Flags of one aperture about mapping its memory in KVM before the guest first uses it: whether
/// new memory waits to be mapped so, and whether KVM was found unable to do it.
#[derive(Debug, Default)]
pub struct Prefault {
    pending: AtomicBool,
    unsupported: AtomicBool,
}

impl Prefault {
    /// Notes that the placement at `range` of the aperture is new.
    pub(super) fn want(&self, fresh: &mut Vec<Range<u64>>, range: Range<u64>) {
        if !self.unsupported.load(Ordering::Relaxed) && fresh.len() < PENDING_MAX {
            fresh.push(range);
            self.pending.store(true, Ordering::Release);
        }
    }
}

impl Aperture {
    /// Makes KVM map the memory that was placed in the aperture since the last call, so that the
    /// guest's first access to it causes no page fault in KVM. The thread of the virtual CPU `vcpu`
    /// calls this after an exit that may have placed memory.
    ///
    /// Does nothing if KVM cannot do this (`KVM_PRE_FAULT_MEMORY` needs Linux 6.11 and
    /// two-dimensional paging): then KVM maps each page when the guest first accesses it.
    pub fn prefault(&self, vcpu: &VcpuFd) {
        let pending = &self.prefault.pending;
        if !pending.load(Ordering::Relaxed) || !pending.swap(false, Ordering::AcqRel) {
            return;
        }
        let (base, fresh) = {
            let mut state = self.state.lock();
            (state.slots.base(), std::mem::take(&mut state.fresh))
        };
        let Some(base) = base else { return };
        for range in fresh {
            if let Err(e) = pre_fault_memory(vcpu, base + range.start, range.end - range.start) {
                if !is_temporary(&e) {
                    log::debug!("KVM cannot map memory ahead of the guest: {e}");
                    self.prefault.unsupported.store(true, Ordering::Relaxed);
                }
                return;
            }
        }
    }
}

/// Returns whether the request may work next time: a signal came, slots are down, a placement has
/// gone again, or the kernel lacked memory (`Documentation/virt/kvm/api.rst`,
/// `KVM_PRE_FAULT_MEMORY`). A KVM that does not know the request says EINVAL, and KVMs that are not
/// Linux's may say anything.
fn is_temporary(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::ENOENT | libc::EFAULT | libc::ENOMEM)
    )
}

mod request {
    #![allow(missing_docs)] // The macro writes a public function.
    use super::{KVMIO, kvm_pre_fault_memory};
    vmm_sys_util::ioctl_iowr_nr!(KVM_PRE_FAULT_MEMORY, KVMIO, 0xd5, kvm_pre_fault_memory);
}

#[allow(unsafe_code)] // An ioctl that kvm-ioctls has no wrapper for.
fn pre_fault_memory(vcpu: &VcpuFd, gpa: u64, bytes: u64) -> std::io::Result<()> {
    let mut range = kvm_pre_fault_memory {
        gpa,
        size: bytes,
        ..Default::default()
    };
    while range.size > 0 {
        // SAFETY: the structure outlives the call, which advances gpa and size in it and touches
        // nothing else.
        let code = unsafe { ioctl_with_mut_ref(vcpu, request::KVM_PRE_FAULT_MEMORY(), &mut range) };
        if code != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use causeway_memory::{Backing, PageSize, SharedMemory};
    use causeway_protocol::Access;

    use super::super::Apertures;
    use super::*;
    use crate::hypervisor::fake::Fake;

    #[test]
    fn a_guest_that_maps_much_at_once_has_a_part_of_it_mapped_ahead() {
        let (prefault, mut fresh) = (Prefault::default(), Vec::new());
        for number in 0..100 {
            prefault.want(&mut fresh, number..number + 1);
        }
        assert_eq!(fresh.len(), PENDING_MAX);
        assert!(prefault.pending.load(Ordering::Relaxed));

        let (prefault, mut fresh) = (Prefault::default(), Vec::new());
        prefault.unsupported.store(true, Ordering::Relaxed);
        prefault.want(&mut fresh, 0..1);
        assert!(fresh.is_empty() && !prefault.pending.load(Ordering::Relaxed));
    }

    #[test]
    fn a_signal_or_a_missing_slot_is_temporary_and_an_unknown_request_is_not() {
        let is_temporary = |code| is_temporary(&std::io::Error::from_raw_os_error(code));
        assert!(is_temporary(libc::EINTR) && is_temporary(libc::ENOENT));
        assert!(!is_temporary(libc::EINVAL) && !is_temporary(libc::EOPNOTSUPP));
    }

    #[test]
    fn a_kvm_that_cannot_map_ahead_is_found_out_by_the_first_placement() {
        /// `KVM_CAP_PRE_FAULT_MEMORY` of linux/kvm.h.
        const CAPABILITY: std::ffi::c_ulong = 236;
        const BYTES: u64 = 2 << 20;
        let kvm = match crate::kvm::open() {
            Ok(kvm) => kvm,
            Err(e) => return eprintln!("skipped: no KVM: {e}"),
        };
        let vm = kvm.create_vm().unwrap();
        let vcpu = vm.create_vcpu(0).unwrap();
        let aperture = Aperture::new(64 << 20, Arc::new(Fake::default())).unwrap();
        aperture.relocate(Some(1 << 38)).unwrap();
        // Large memory goes to the start of the aperture, where a range begins at 0.
        let memory = SharedMemory::new("test", BYTES, PageSize::Small).unwrap();
        let memory = Backing::from(Arc::new(memory));
        assert_eq!(aperture.place(&memory, 0, BYTES, Access::Read).unwrap(), 0);
        let apertures = Apertures(vec![Arc::new(aperture)]);
        apertures.prefault(&vcpu);
        let aperture = &apertures.0[0];
        assert!(aperture.state.lock().fresh.is_empty());
        assert!(!aperture.prefault.pending.load(Ordering::Relaxed));
        // Where it can, it finds no slot here, which says nothing of the next time.
        let can = vm.check_extension_raw(CAPABILITY) > 0;
        assert_eq!(aperture.prefault.unsupported.load(Ordering::Relaxed), !can);
    }
}
