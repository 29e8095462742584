//! The trait of virtio devices, and what their transport needs from them.

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::GuestMemoryMmap;

use super::chain::Chain;
use super::configuration::Notice;

/// The feature of all devices that keep to version 1 of the specification or later.
pub const VERSION_1: u64 = 1 << VIRTIO_F_VERSION_1;
/// Rings have event indices: `VIRTIO_F_EVENT_IDX`.
pub const EVENT_INDEX: u64 = 1 << VIRTIO_RING_F_EVENT_IDX;
/// Features of the transport and its queues.
pub const TRANSPORT_FEATURES: u64 = VERSION_1 | EVENT_INDEX | 1 << VIRTIO_RING_F_INDIRECT_DESC;

/// The type of a virtio device: its IDs and its name (Virtual I/O Device Version 1.2, chapter 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Virtio device ID, such as 2 for a disk.
    pub id: u16,
    /// Base class and subclass code of the PCI function.
    pub class: (u8, u8),
    /// Name under which the device's exits are counted, also used in logs.
    pub name: &'static str,
}

impl Kind {
    /// A disk. A thread of this process or another process executes its requests.
    pub const DISK: Self = Self {
        id: VIRTIO_ID_BLOCK as u16,
        class: (0x01, 0x80),
        name: "virtio-blk",
    };
}

/// Why a virtio device can neither execute a request nor refuse it with a status. The device then
/// stops until the guest's driver resets it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The driver's request breaks a rule of the device.
    #[error("{rule}")]
    Malformed {
        /// The rule that was broken, as a sentence for the log.
        rule: &'static str,
    },
    /// The host's kernel did not return random numbers.
    #[error("cannot get random numbers from the host's kernel")]
    Entropy(#[source] getrandom::Error),
    /// Guest memory could not be read or written.
    #[error("cannot access the guest memory that a request to a virtio device names")]
    Memory(#[from] vm_memory::GuestMemoryError),
}

/// Maximum number of queues of a virtio device. Each queue has an interrupt vector, and the MSI-X
/// table must fit into one page.
pub const QUEUES_MAX: u16 = 255;

/// A virtio device, which executes the requests that a guest's driver puts into its queues. Each
/// device belongs to a thread of its own, which executes the requests.
pub trait VirtioDevice: Send {
    /// Returns the device's type.
    fn kind(&self) -> Kind;

    /// Returns the feature bits that the device offers, without those of the transport.
    fn features(&self) -> u64;

    /// Returns the device's configuration structure as the function has it first. It is read-only
    /// for the driver.
    fn configuration(&self) -> &[u8];

    /// Returns by what the device changes its configuration structure, if it does.
    fn notice(&self) -> Option<&Notice> {
        None
    }

    /// Returns the device's number of queues, 1 to [`QUEUES_MAX`].
    fn queues(&self) -> u16 {
        1
    }

    /// Prepares the device for a driver that has accepted the feature bits `features`, after a
    /// reset.
    fn begin(&mut self, features: u64);

    /// Executes `request`, which the driver has put into queue number `queue`. Returns the number
    /// of bytes written to the request's writable buffers, from their beginning on without a gap.
    ///
    /// # Errors
    /// [`ServeError`] if the request can be neither executed nor refused with a status. The driver
    /// then gets no answer, and the device stops.
    fn serve(
        &mut self,
        queue: u16,
        request: &Chain,
        memory: &GuestMemoryMmap,
    ) -> Result<u32, ServeError>;
}
