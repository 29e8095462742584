//! The trait of virtio devices, and what their transport needs from them.

use vm_memory::GuestMemoryMmap;

use super::chain::Chain;

/// The kind of a device (Virtual I/O Device Version 1.2, chapter 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Device ID of virtio.
    pub id: u16,
    /// Base class and subclass of its PCI function.
    pub class: (u8, u8),
    /// Name on the bus and in logs.
    pub name: &'static str,
}

/// Why a request cannot be answered in the way that the device has for it. The device then wants a
/// reset.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The driver broke a rule of the device.
    #[error("{rule}")]
    Malformed {
        /// Which.
        rule: &'static str,
    },
    /// The host failed.
    #[error("the host gives no random numbers")]
    Entropy(#[source] getrandom::Error),
    /// Guest memory could not be reached.
    #[error("cannot access guest memory")]
    Memory(#[from] vm_memory::GuestMemoryError),
}

/// Most queues of a device: each has a vector, and all vectors fit on the page of the MSI-X table.
pub const QUEUES_MAX: u16 = 255;

/// A device with one or more request queues. Its worker owns it while the driver uses it.
pub trait VirtioDevice: Send {
    /// Returns the kind of the device.
    fn kind(&self) -> Kind;

    /// Returns the features of the device, without those of the transport.
    fn features(&self) -> u64;

    /// Returns the configuration of the device. It does not change, and the driver only reads it.
    fn configuration(&self) -> &[u8];

    /// Returns the number of queues, 1 to [`QUEUES_MAX`].
    fn queues(&self) -> u16 {
        1
    }

    /// Begins to serve a driver that chose these `features`. Nothing of an earlier driver is left.
    fn begin(&mut self, features: u64);

    /// Executes a request from queue number `queue`, and returns the number of bytes written, from
    /// the first of its writable part on.
    ///
    /// # Errors
    /// [`ServeError`]; the request is not given back.
    fn serve(
        &mut self,
        queue: u16,
        request: &Chain,
        memory: &GuestMemoryMmap,
    ) -> Result<u32, ServeError>;
}
