//! Devices that other processes serve, as the guest sees them.

use virtio_bindings::virtio_blk as disk;
use virtio_bindings::virtio_ids::{VIRTIO_ID_FS, VIRTIO_ID_NET};
use virtio_bindings::virtio_net::{VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF, VIRTIO_NET_F_MTU};

use crate::virtio::device::Kind;
use crate::virtio::outside::{Description, PATIENCE};

/// Bytes for the tag in a file system's configuration (Virtual I/O Device Version 1.2, 5.11.4).
const TAG_BYTES: usize = 36;
/// Queues of a file system: one for what cannot wait, and this many for all else.
const REQUEST_QUEUES: u16 = 1;
/// Bytes between the hardware address and the MTU in a network's configuration (the same, 5.1.4):
/// its status and its number of pairs of queues, without a meaning here.
const UNUSED_BYTES: usize = 4;
/// Bytes of a disk's configuration (the same, 5.2.4), as far as the features below give it a
/// meaning.
const DISK_BYTES: usize = 60;
/// Features that a disk may have: none of several queues, and none by which a driver turns the
/// cache off.
const OF_DISKS: u64 = 1 << disk::VIRTIO_BLK_F_SIZE_MAX
    | 1 << disk::VIRTIO_BLK_F_SEG_MAX
    | 1 << disk::VIRTIO_BLK_F_RO
    | 1 << disk::VIRTIO_BLK_F_BLK_SIZE
    | 1 << disk::VIRTIO_BLK_F_FLUSH
    | 1 << disk::VIRTIO_BLK_F_TOPOLOGY
    | 1 << disk::VIRTIO_BLK_F_DISCARD
    | 1 << disk::VIRTIO_BLK_F_WRITE_ZEROES;

impl Description {
    /// Returns a file system that the guest mounts by `tag`. `process` is what the process is
    /// called in messages.
    ///
    /// # Panics
    /// If the tag is empty or has more than 36 bytes.
    pub fn of_file_system(process: String, tag: &str) -> Self {
        assert!((1..=TAG_BYTES).contains(&tag.len()), "tag {tag}");
        let mut configuration = tag.as_bytes().to_vec();
        configuration.resize(TAG_BYTES, 0);
        configuration.extend_from_slice(&u32::from(REQUEST_QUEUES).to_le_bytes());
        Self {
            process,
            kind: Kind {
                id: VIRTIO_ID_FS as u16,
                class: (0x01, 0x80),
                name: "virtio-fs",
            },
            features: 0,
            own_features: 0,
            configuration,
            asks_configuration: false,
            queues: 1 + REQUEST_QUEUES,
            patience: PATIENCE,
        }
    }

    /// Returns a network interface with the hardware address `mac`, whose packets have up to `mtu`
    /// bytes without their Ethernet header. `process` is what the process is called in messages.
    pub fn of_network(process: String, mac: [u8; 6], mtu: u16) -> Self {
        let mut configuration = mac.to_vec();
        configuration.extend_from_slice(&[0; UNUSED_BYTES]);
        configuration.extend_from_slice(&mtu.to_le_bytes());
        Self {
            process,
            kind: Kind {
                id: VIRTIO_ID_NET as u16,
                class: (0x02, 0x00),
                name: "virtio-net",
            },
            features: 1 << VIRTIO_NET_F_MRG_RXBUF,
            own_features: 1 << VIRTIO_NET_F_MAC | 1 << VIRTIO_NET_F_MTU,
            configuration,
            asks_configuration: false,
            queues: 2,
            patience: PATIENCE,
        }
    }

    /// Returns a disk, whose size and limits the process says. `process` is what the process is
    /// called in messages.
    pub fn of_disk(process: String) -> Self {
        Self {
            process,
            kind: Kind::DISK,
            features: OF_DISKS,
            own_features: 0,
            configuration: vec![0; DISK_BYTES],
            asks_configuration: true,
            queues: 1,
            patience: PATIENCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_its_tag_and_the_number_of_its_queues() {
        let it = Description::of_file_system(String::from("test"), "data");
        assert_eq!(&it.configuration[..5], b"data\0");
        assert_eq!(it.configuration[TAG_BYTES..], [1, 0, 0, 0]);
        assert_eq!((it.configuration.len(), it.queues), (40, 2));
    }

    #[test]
    fn a_network_has_its_address_and_mtu_where_drivers_read_them() {
        let mac = [2, 3, 4, 5, 6, 7];
        let it = Description::of_network(String::from("test"), mac, 0x1234);
        assert_eq!(&it.configuration[..6], &mac);
        assert_eq!(it.configuration[10..], [0x34, 0x12]);
        // Bits 5 and 3: drivers read an address and an MTU.
        assert_eq!((it.own_features, it.queues), (1 << 5 | 1 << 3, 2));
    }
}
