//! What identifies a device, and its CUDA device attributes.

use causeway_protocol::message::DEVICE_ATTRIBUTES;

use super::Attributes;

/// What a back end tells guests about its device beyond [`Attributes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Name of the device alone; at most 128 bytes of UTF-8.
    pub name: String,
    /// UUID of the device, the same in every process.
    pub uuid: [u8; 16],
    /// PCI address of the device: domain, bus and device number. Zero if the device is no PCI
    /// function.
    pub pci: [u32; 3],
    /// Major and minor number of the compute capability; zero without kernels.
    pub capability: [u32; 2],
    /// Newest version of CUDA that the back end supports, as 1000 times the major number plus 10
    /// times the minor number; zero without kernels.
    pub cuda_version: u32,
    /// Values of the CUDA device attributes: that with number `n` of `CUdevice_attribute` in
    /// `cuda.h` at index `n - 1`. `None` if the back end does not know the attribute.
    pub attributes: [Option<i32>; DEVICE_ATTRIBUTES],
}

impl DeviceFacts {
    /// Returns the facts about a device that is described by `attributes` alone.
    pub fn of(attributes: &Attributes) -> Self {
        let mut facts = Self {
            name: attributes.name.clone(),
            uuid: [0; 16],
            pci: [0; 3],
            capability: [0; 2],
            cuda_version: 0,
            attributes: [None; DEVICE_ATTRIBUTES],
        };
        for (number, value) in [
            (1, attributes.block_threads_max),
            (8, attributes.shared_bytes_max),
            (10, attributes.warp_threads),
            (16, attributes.compute_units),
            (97, attributes.shared_bytes_max),
        ] {
            facts.set(number, i32::try_from(value).unwrap_or(i32::MAX));
        }
        facts
    }

    /// Sets the attribute `number` of `CUdevice_attribute`.
    ///
    /// # Panics
    /// If `number` is not 1 to 160.
    pub fn set(&mut self, number: usize, value: i32) {
        self.attributes[number - 1] = Some(value);
    }
}
