//! A network interface on a tap device of the host (`/dev/vhost-net`).

use vhost::net::VhostNet;
use vhost::vhost_kern::net::Net;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6,
};

use super::tap::Tap;
use super::{Handle, KernelDevice, Memory, Served, no_memory, refused};
use crate::virtio::outside::{Description, OutsideError};

/// What the host's kernel does with packets of the guest: sums, and segments of long ones.
const HOST_OFFLOADS: u64 =
    1 << VIRTIO_NET_F_CSUM | 1 << VIRTIO_NET_F_HOST_TSO4 | 1 << VIRTIO_NET_F_HOST_TSO6;
/// What the guest can take, and the bit that tells the tap device so (`TUN_F_CSUM`, `TUN_F_TSO4`,
/// `TUN_F_TSO6`, include/uapi/linux/if_tun.h).
const GUEST_OFFLOADS: [(u32, usize); 3] = [
    (VIRTIO_NET_F_GUEST_CSUM, 1),
    (VIRTIO_NET_F_GUEST_TSO4, 2),
    (VIRTIO_NET_F_GUEST_TSO6, 4),
];

impl KernelDevice {
    /// Opens `/dev/vhost-net`, and lets the guest's interface with the hardware address `mac` have
    /// the packets of `tap`.
    ///
    /// # Errors
    /// [`OutsideError::Kernel`] if the device is not there or not permitted; `OldVersion` if the
    /// kernel is too old.
    pub fn net(tap: Tap, mac: [u8; 6]) -> Result<Self, OutsideError> {
        let process = String::from("vhost-net of the host's kernel");
        let mut description = Description::of_network(process, mac, tap.mtu());
        let of_guest = GUEST_OFFLOADS.iter().map(|(feature, _)| 1 << feature);
        description.own_features |= of_guest.fold(HOST_OFFLOADS, |all, feature| all | feature);
        let memory = no_memory();
        let kernel = Net::new(memory.clone());
        let kernel = kernel.map_err(refused(&description, "to open /dev/vhost-net"))?;
        let handle = OnTap { kernel, tap };
        Ok(Self(Box::new(Served::new(description, handle, memory)?)))
    }
}

struct OnTap {
    kernel: Net<Memory>,
    tap: Tap,
}

impl Handle for OnTap {
    type Vhost = Net<Memory>;
    const QUEUES: usize = 2;

    fn vhost(&self) -> &Net<Memory> {
        &self.kernel
    }

    fn start(&self, features: u64) -> Result<(), vhost::Error> {
        let set = self.tap.set_offloads(offloads(features));
        set.map_err(vhost::Error::IOError)?;
        let mut queues = 0..Self::QUEUES;
        queues.try_for_each(|queue| self.kernel.set_backend(queue, Some(self.tap.file())))
    }

    fn stop(&self) -> Result<(), vhost::Error> {
        // Each, also if one cannot be stopped.
        let stopped = [0, 1].map(|queue| self.kernel.set_backend(queue, None));
        stopped.into_iter().collect()
    }
}

/// Returns what the tap device is told of a guest that has accepted `features`. Segments of long
/// packets have no sums: a guest that takes the ones must take the others (5.1.3.1).
fn offloads(features: u64) -> usize {
    if features & 1 << VIRTIO_NET_F_GUEST_CSUM == 0 {
        return 0;
    }
    let accepted = GUEST_OFFLOADS
        .iter()
        .filter(|(it, _)| features & 1 << it != 0);
    accepted.fold(0, |bits, (_, bit)| bits | bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_device_leaves_undone_only_what_the_guest_takes() {
        assert_eq!(offloads(0), 0);
        assert_eq!(offloads(HOST_OFFLOADS), 0);
        assert_eq!(offloads(1 << VIRTIO_NET_F_GUEST_CSUM), 1);
        assert_eq!(offloads(1 << VIRTIO_NET_F_GUEST_TSO4), 0);
        assert_eq!(offloads(u64::MAX), 7);
    }
}
