//! Moves a function's BARs to the addresses that the guest stores to them: on the MMIO bus, and in
//! the hypervisor, which has memory slots and doorbells there.

use std::io;
use std::sync::Arc;

use super::{COMMAND_MEMORY, ConfigSpace, MemoryBar};
use crate::bus::{BusDevice, BusError, GuestAddress, MmioBus};

/// Why a BAR cannot answer at its guest-physical address.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Another device has some of the addresses, or they are not on the bus.
    #[error("cannot give a PCI BAR its guest-physical addresses in the VM")]
    Bus(#[from] BusError),
    /// The hypervisor refuses memory slots or doorbells at the address.
    #[error(
        "KVM refuses the memory slots or doorbells of the PCI BAR at guest-physical address \
         {address:#x}"
    )]
    Hypervisor {
        /// Guest-physical address of the BAR.
        address: u64,
        /// The hypervisor's error.
        source: io::Error,
    },
}

/// A function that is called when the guest moves a BAR: with the BAR's new guest-physical address,
/// or with `None` when the BAR leaves its address. It adds the BAR's memory slots or doorbells to
/// the hypervisor, or removes them; if it returns the hypervisor's error for a new address, the BAR
/// does not answer there.
pub type Follow = Box<dyn Fn(Option<u64>) -> io::Result<()> + Send + Sync>;

/// A BAR, the device behind it, and where it is on the bus now.
struct Decoder {
    bar: MemoryBar,
    device: Arc<dyn BusDevice>,
    follow: Follow,
    at: Option<u64>,
}

/// The BARs of one PCI function. Keeps them on the bus at the addresses that the guest has stored
/// to them.
///
/// A guest may move a BAR at any time, and Linux does. While a BAR overlaps RAM or another device,
/// or ends beyond the guest's physical addresses, accesses do not reach it.
pub struct Decoders {
    bus: Arc<MmioBus>,
    address_end: u64,
    all: Vec<Decoder>,
}

debug_by_name!(Decoders);

impl Decoders {
    /// Returns the decoders of a function that has no BAR yet, for devices on `bus`. BARs must end
    /// at or below `address_end`, the end of the guest-physical addresses.
    pub fn new(bus: Arc<MmioBus>, address_end: u64) -> Self {
        Self {
            bus,
            address_end,
            all: Vec::new(),
        }
    }

    /// Adds `bar`. Accesses to it go to `device`, and `follow` is called whenever it moves. The BAR
    /// gets its address with the next call of [`Self::settle_first`] or [`Self::settle`].
    pub fn add(&mut self, bar: MemoryBar, device: Arc<dyn BusDevice>, follow: Follow) {
        self.all.push(Decoder {
            bar,
            device,
            follow,
            at: None,
        });
    }

    /// Puts all BARs on the bus at the addresses that `space`, the function's configuration space,
    /// contains, even if its command register disables memory BARs.
    ///
    /// # Errors
    /// [`DecodeError::Bus`] if the addresses of a BAR are not free, `Hypervisor` if the hypervisor
    /// refuses memory slots or doorbells there.
    pub fn settle_first(&mut self, space: &ConfigSpace) -> Result<(), DecodeError> {
        let bus = &self.bus;
        let mut all = self.all.iter_mut();
        all.try_for_each(|decoder| decoder.attach(bus, space.bar_address(decoder.bar)))
    }

    /// Puts each BAR on the bus at the address that `space`, the function's configuration space,
    /// contains now. Removes the BAR from the bus if the command register disables memory BARs or
    /// the address cannot be used.
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
                log::debug!("{name} does not answer at {address:#x}: {e}");
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
                "cannot remove memory slots or doorbells of `{name}` at address {old:#x} from KVM, \
                 so the guest may still reach them there: {e}",
                name = self.device.name()
            );
        }
        if let Err(e) = bus.remove(GuestAddress(old)) {
            log::error!(
                "cannot remove `{name}` from address {old:#x} of the VM, so the guest still \
                 reaches it there: {e}",
                name = self.device.name()
            );
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
