//! What a virtio device is, as far as its transport cares.

use vm_memory::GuestMemoryMmap;

use super::chain::Chain;

/// Which device it is (Virtual I/O Device Version 1.2, chapter 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Device ID of virtio.
    pub id: u16,
    /// Base class and subclass of its PCI function.
    pub class: (u8, u8),
    /// Name on the bus and in logs.
    pub name: &'static str,
}

/// Why a request cannot be answered in the way that the device has for it. The device then wants a reset.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The driver broke a rule of the device.
    #[error("{rule}")]
    Malformed {
        /// Which.
        rule: &'static str,
    },
    /// The host failed.
    #[error("the host has no random numbers")]
    Entropy(#[source] getrandom::Error),
    /// Guest memory could not be reached.
    #[error("guest memory cannot be reached")]
    Memory(#[from] vm_memory::GuestMemoryError),
}

/// A device with one request queue. Its worker owns it while the driver uses it.
pub trait VirtioDevice: Send {
    /// Which device it is.
    fn kind(&self) -> Kind;

    /// Features of the device; those of the transport are not its affair.
    fn features(&self) -> u64;

    /// Its configuration, which does not change and which the driver only reads.
    fn configuration(&self) -> &[u8];

    /// The driver chose these `features`. Nothing of an earlier driver is left.
    fn begin(&mut self, features: u64);

    /// Executes a request, and gives the number of bytes written, from the first of its writable part on.
    ///
    /// # Errors
    /// [`ServeError`]; the request is not given back.
    fn serve(&mut self, request: &Chain, memory: &GuestMemoryMmap) -> Result<u32, ServeError>;
}
