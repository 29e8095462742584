//! Sockets between a guest and its host (`/dev/vhost-vsock`).

use vhost::vhost_kern::vsock::Vsock;
use vhost::vsock::VhostVsock;
use virtio_bindings::virtio_ids::VIRTIO_ID_VSOCK;

use super::{Handle, KernelDevice, Memory, Served, no_memory, refused};
use crate::virtio::device::Kind;
use crate::virtio::outside::{Description, OutsideError, PATIENCE};

/// Sockets can keep the borders of messages: `VIRTIO_VSOCK_F_SEQPACKET` (Virtual I/O Device Version
/// 1.2, 5.10.3).
const SEQPACKET: u64 = 1 << 1;
/// Smallest address that a guest can have; those below have a meaning of their own.
pub const CID_MIN: u32 = 3;

impl KernelDevice {
    /// Opens `/dev/vhost-vsock`, and takes the address `cid` for a guest: [`CID_MIN`] or more.
    ///
    /// # Errors
    /// [`OutsideError::Kernel`] if the device is not there or not permitted, or the address is
    /// taken; `OldVersion` if the kernel is too old.
    pub fn vsock(cid: u32) -> Result<Self, OutsideError> {
        let description = Description::of_vsock(cid);
        let memory = no_memory();
        let handle = Vsock::new(memory.clone());
        let handle = handle.map_err(refused(&description, "to open /dev/vhost-vsock"))?;
        let set = handle.set_guest_cid(cid.into());
        set.map_err(refused(&description, "VHOST_VSOCK_SET_GUEST_CID"))?;
        Ok(Self(Box::new(Served::new(description, handle, memory)?)))
    }
}

impl Handle for Vsock<Memory> {
    type Vhost = Self;

    /// The third queue is for events. Its only event is a migration, which Causeway does not do.
    const QUEUES: usize = 2;

    fn vhost(&self) -> &Self {
        self
    }

    fn start(&self, _: u64) -> Result<(), vhost::Error> {
        VhostVsock::start(self)
    }

    fn stop(&self) -> Result<(), vhost::Error> {
        VhostVsock::stop(self)
    }
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
            features: SEQPACKET,
            own_features: 0,
            asks_configuration: false,
            configuration: u64::from(cid).to_le_bytes().to_vec(),
            queues: 3,
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
        let error = KernelDevice::vsock(CID_MIN).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("/dev/vhost-vsock"), "{error}");
    }
}
