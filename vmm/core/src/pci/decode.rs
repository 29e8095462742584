//! Where a function's BARs are decoded: on the MMIO bus, and wherever the hypervisor takes part.

use std::io;
use std::sync::Arc;

use super::{COMMAND_MEMORY, ConfigSpace, MemoryBar};
use crate::bus::{BusDevice, BusError, GuestAddress, MmioBus};

/// Why a BAR cannot be where firmware would put it.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The addresses are taken.
    #[error("another device has these addresses")]
    Bus(#[from] BusError),
    /// The hypervisor refused memory slots or doorbells there.
    #[error("the hypervisor refuses the device at {address:#x}")]
    Hypervisor {
        /// Guest-physical address of the BAR.
        address: u64,
        /// The error.
        source: io::Error,
    },
}

/// A callback for a BAR that moves: called with the new guest-physical address, or with none when
/// the BAR is not decoded any more.
pub type Follow = Box<dyn Fn(Option<u64>) -> io::Result<()> + Send + Sync>;

/// A BAR, the device behind it, and where it is on the bus now.
struct Decoder {
    bar: MemoryBar,
    device: Arc<dyn BusDevice>,
    follow: Follow,
    at: Option<u64>,
}

/// The BARs of one function.
///
/// A guest may move a BAR at any time, and Linux does. A BAR that is put where something else is,
/// RAM included, or beyond the guest's physical addresses, is not decoded until it is moved away:
/// then its accesses go to what is there.
pub struct Decoders {
    bus: Arc<MmioBus>,
    address_end: u64,
    all: Vec<Decoder>,
}

debug_by_name!(Decoders);

impl Decoders {
    /// Returns decoders without a BAR, on `bus`, for a guest whose physical addresses end at
    /// `address_end`.
    pub fn new(bus: Arc<MmioBus>, address_end: u64) -> Self {
        Self {
            bus,
            address_end,
            all: Vec::new(),
        }
    }

    /// Adds a BAR. It is decoded from the next settling on.
    pub fn add(&mut self, bar: MemoryBar, device: Arc<dyn BusDevice>, follow: Follow) {
        self.all.push(Decoder {
            bar,
            device,
            follow,
            at: None,
        });
    }

    /// Decodes all BARs where `space` has them, whatever its command register says.
    ///
    /// # Errors
    /// [`DecodeError`], for the first that cannot be decoded.
    pub fn settle_first(&mut self, space: &ConfigSpace) -> Result<(), DecodeError> {
        let bus = &self.bus;
        let mut all = self.all.iter_mut();
        all.try_for_each(|decoder| decoder.attach(bus, space.bar_address(decoder.bar)))
    }

    /// Moves each BAR to where the guest wants it.
    pub fn settle(&mut self, space: &ConfigSpace) {
        let enabled = space.command() & COMMAND_MEMORY != 0;
        let address_end = self.address_end;
        let wanted = |bar: MemoryBar| {
            let address = space.bar_address(bar);
            let end = address.checked_add(bar.bytes)?;
            (enabled && address != 0 && end <= address_end).then_some(address)
        };
        // All that move leave before any arrives: they may exchange places.
        for decoder in &mut self.all {
            if decoder.at != wanted(decoder.bar) {
                decoder.detach(&self.bus);
            }
        }
        for decoder in self.all.iter_mut().filter(|d| d.at.is_none()) {
            if let Some(address) = wanted(decoder.bar)
                && let Err(e) = decoder.attach(&self.bus, address)
            {
                let name = decoder.device.name();
                log::debug!("{name} at {address:#x} is not decoded: {e}");
            }
        }
    }
}

impl Decoder {
    fn attach(&mut self, bus: &MmioBus, address: u64) -> Result<(), DecodeError> {
        let (bytes, device) = (self.bar.bytes, Arc::clone(&self.device));
        bus.insert(GuestAddress(address), bytes, device)?;
        self.at = Some(address);
        (self.follow)(self.at).map_err(|source| {
            self.detach(bus);
            DecodeError::Hypervisor { address, source }
        })
    }

    fn detach(&mut self, bus: &MmioBus) {
        let Some(old) = self.at.take() else { return };
        // Slots and doorbells go first: an access in between is an exit, and still finds its
        // device.
        if let Err(e) = (self.follow)(None) {
            log::error!(
                "cannot remove {} at {old:#x} from KVM: {e}",
                self.device.name()
            );
        }
        if let Err(e) = bus.remove(GuestAddress(old)) {
            log::error!("{}: {e}", self.device.name());
        }
    }
}

impl Drop for Decoders {
    /// Leaves the bus and the hypervisor.
    fn drop(&mut self) {
        for decoder in &mut self.all {
            decoder.detach(&self.bus);
        }
    }
}
