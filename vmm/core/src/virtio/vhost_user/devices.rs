//! Devices that other processes serve, as the guest sees them.

use virtio_bindings::virtio_ids::VIRTIO_ID_FS;

use super::{Description, PATIENCE};
use crate::virtio::device::Kind;

/// Bytes for the tag in a file system's configuration (Virtual I/O Device Version 1.2, 5.11.4).
const TAG_BYTES: usize = 36;
/// Queues of a file system: one for what cannot wait, and this many for all else.
const REQUEST_QUEUES: u16 = 1;

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
            configuration,
            queues: 1 + REQUEST_QUEUES,
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
}
