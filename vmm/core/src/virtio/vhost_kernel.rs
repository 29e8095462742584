//! Virtio devices whose requests the host's kernel executes (vhost, `include/uapi/linux/vhost.h`):
//! sockets between guest and host (`/dev/vhost-vsock`).
//!
//! As with another process, neither a notification nor an interrupt comes to this process. The
//! kernel reads and writes guest RAM by this process's mapping of it.

use std::os::unix::net::UnixStream;

use vhost::vhost_kern::vsock::Vsock;
use vhost::vsock::VhostVsock;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_ids::VIRTIO_ID_VSOCK;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use super::device::{Kind, TRANSPORT_FEATURES, VERSION_1};
use super::outside::{BackEnd, Queue};
use super::ring::QUEUE_SIZE;
use super::vhost_user::{Description, PATIENCE, ProcessError};
use crate::memory::{GuestRam, RamView};

/// Sockets can keep the borders of messages: `VIRTIO_VSOCK_F_SEQPACKET` (Virtual I/O Device Version
/// 1.2, 5.10.3).
const MESSAGES: u64 = 1 << 1;
/// The first queues are the kernel's. In the last one, a VMM would tell the driver that its
/// connections are lost because the VM has moved.
const KERNEL_QUEUES: usize = 2;
/// Smallest address that a guest can have; those below have a meaning of their own.
pub const CID_MIN: u32 = 3;

/// Sockets between a guest and its host, which the host's kernel serves.
pub struct VsockDevice {
    description: Description,
    kernel: Vsock<GuestMemoryAtomic<GuestMemoryMmap>>,
    /// What the crate checks addresses of queues against: the guest's RAM while a driver runs.
    memory: GuestMemoryAtomic<GuestMemoryMmap>,
    features: u64,
}

debug_by_name!(VsockDevice);

impl VsockDevice {
    /// Opens `/dev/vhost-vsock`, and takes the address `cid` for a guest: [`CID_MIN`] or more.
    ///
    /// # Errors
    /// [`ProcessError::Kernel`] if the device is not there or not permitted, or the address is
    /// taken; `OldVersion` if the kernel is too old.
    pub fn open(cid: u32) -> Result<Self, ProcessError> {
        let description = Description::of_vsock(cid);
        let at = |step| refused(&description, step);
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::default());
        let kernel = Vsock::new(memory.clone()).map_err(at("open /dev/vhost-vsock"))?;
        kernel.set_owner().map_err(at("VHOST_SET_OWNER"))?;
        let has = kernel.get_features().map_err(at("VHOST_GET_FEATURES"))?;
        if has & VERSION_1 == 0 {
            return Err(ProcessError::OldVersion {
                process: description.process,
                offered: has,
            });
        }
        let set = kernel.set_guest_cid(cid.into());
        set.map_err(at("VHOST_VSOCK_SET_GUEST_CID"))?;
        Ok(Self {
            features: has & (description.features | TRANSPORT_FEATURES),
            description,
            kernel,
            memory,
        })
    }

    fn hand_over(&self, queue: &Queue) -> Result<(), ProcessError> {
        let at = |step| refused(&self.description, step);
        let (number, size, kernel) = (queue.number, queue.place.size, &self.kernel);
        let [desc_table_addr, avail_ring_addr, used_ring_addr] = queue.place.parts;
        let places = VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: size,
            flags: 0,
            desc_table_addr,
            used_ring_addr,
            avail_ring_addr,
            log_addr: None,
        };
        let set = kernel.set_vring_num(number, size);
        set.map_err(at("VHOST_SET_VRING_NUM"))?;
        let set = kernel.set_vring_addr(number, &places);
        set.map_err(at("VHOST_SET_VRING_ADDR"))?;
        let set = kernel.set_vring_base(number, 0);
        set.map_err(at("VHOST_SET_VRING_BASE"))?;
        let set = kernel.set_vring_call(number, &queue.call);
        set.map_err(at("VHOST_SET_VRING_CALL"))?;
        let set = kernel.set_vring_kick(number, &queue.kick);
        set.map_err(at("VHOST_SET_VRING_KICK"))
    }
}

impl BackEnd for VsockDevice {
    fn description(&self) -> &Description {
        &self.description
    }

    fn features(&self) -> u64 {
        self.features
    }

    fn serve(
        &mut self,
        queues: &[Queue],
        features: u64,
        ram: &RamView,
    ) -> Result<(), ProcessError> {
        if let Ok(lock) = self.memory.lock() {
            lock.replace(ram.memory().clone());
        }
        let at = |step| refused(&self.description, step);
        let set = self.kernel.set_features(features);
        set.map_err(at("VHOST_SET_FEATURES"))?;
        let set = self.kernel.set_mem_table(&regions(ram.ram()));
        set.map_err(at("VHOST_SET_MEM_TABLE"))?;
        let mut own = queues.iter().filter(|queue| queue.number < KERNEL_QUEUES);
        own.try_for_each(|queue| self.hand_over(queue))?;
        self.kernel.start().map_err(at("VHOST_VSOCK_SET_RUNNING"))
    }

    fn stop(&mut self, _: &[usize]) -> Result<(), ProcessError> {
        let stopped = self.kernel.stop();
        stopped.map_err(refused(&self.description, "VHOST_VSOCK_SET_RUNNING"))?;
        if let Ok(lock) = self.memory.lock() {
            lock.replace(GuestMemoryMmap::default());
        }
        Ok(())
    }

    fn connection(&self) -> Option<&UnixStream> {
        None
    }

    fn give_up(&mut self) {
        // What cannot be stopped now ends with the descriptor, and that with the VM.
        if let Err(e) = self.kernel.stop() {
            log::debug!("vhost-vsock does not stop: {e}");
        }
    }
}

fn refused<'a>(
    description: &'a Description,
    step: &'static str,
) -> impl FnOnce(vhost::Error) -> ProcessError + 'a {
    move |source| ProcessError::Kernel {
        device: description.process.clone(),
        step,
        source,
    }
}

/// Returns guest RAM as the kernel finds it: by this process's addresses.
fn regions(ram: &GuestRam) -> Vec<VhostUserMemoryRegionInfo> {
    let regions = ram.regions().map(|region| VhostUserMemoryRegionInfo {
        guest_phys_addr: region.base(),
        memory_size: region.bytes(),
        userspace_addr: region.host().as_ptr() as u64,
        ..VhostUserMemoryRegionInfo::default()
    });
    regions.collect()
}

impl Description {
    /// Returns sockets between the host and a guest that has the address `cid`.
    fn of_vsock(cid: u32) -> Self {
        Self {
            process: String::from("vhost-vsock of the host's kernel"),
            kind: Kind {
                id: VIRTIO_ID_VSOCK as u16,
                class: (0x02, 0x80),
                name: "virtio-vsock",
            },
            features: MESSAGES,
            own_features: 0,
            configuration: u64::from(cid).to_le_bytes().to_vec(),
            queues: KERNEL_QUEUES as u16 + 1,
            patience: PATIENCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_reads_its_address_and_has_a_queue_that_the_kernel_has_not() {
        let it = Description::of_vsock(0x1234_5678);
        assert_eq!(it.configuration, [0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0]);
        assert_eq!((it.kind.id, it.queues), (19, 3));
    }

    #[test]
    fn a_host_without_the_device_is_told_with_the_file() {
        if std::path::Path::new("/dev/vhost-vsock").exists() {
            return;
        }
        let error = VsockDevice::open(CID_MIN).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("/dev/vhost-vsock"), "{error}");
    }
}
