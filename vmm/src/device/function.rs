//! The PCI function: configuration space, and what follows from what the guest writes there.

use std::sync::{Arc, Mutex, PoisonError};

use causeway_protocol::pci::{
    BAR_APERTURE, BAR_DOORBELLS, BAR_REGISTERS, CLASS, DEVICE_ID, SUBCLASS, VENDOR_ID,
};
use causeway_protocol::registers::{
    BAR0_BYTES,
    doorbells::{BAR4_BYTES, MSIX_PENDING, MSIX_TABLE},
};

use super::{Control, DoorbellBar, GuestHost, Registers, VECTORS};
use crate::bus::{BusDevice, BusError, GuestAddress, MmioBus, StrayCounters};
use crate::pci::{
    COMMAND_MEMORY, ConfigAccess, ConfigSpace, Identity, Layout, MemoryBar, MsixCapability,
};

/// Why the function cannot be put where firmware would put it.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The addresses are taken.
    #[error("the device has no place in the guest's address space")]
    Bus(#[from] BusError),
    /// The hypervisor refused memory slots or doorbells there.
    #[error("the hypervisor refuses the device at {address:#x}")]
    Hypervisor {
        /// Guest-physical address of the BAR.
        address: u64,
        /// What it said.
        source: std::io::Error,
    },
}

/// A BAR, the device behind it, and where it is on the bus now.
struct Decoder {
    bar: MemoryBar,
    device: Arc<dyn BusDevice>,
    at: Option<u64>,
}

struct State {
    space: ConfigSpace,
    decoders: [Decoder; 3],
}

/// The Causeway function.
///
/// A guest may move a BAR at any time, and Linux does. The function compares where its BARs should be with where they
/// are after every store to configuration space, and moves them: on the MMIO bus, and with them memory slots and
/// doorbells. A BAR that is put where something else is, RAM included, or beyond the guest's physical addresses, is
/// not decoded until it is moved away: then its accesses go to what is there.
pub struct Function {
    host: Arc<GuestHost>,
    bus: Arc<MmioBus>,
    address_end: u64,
    state: Mutex<State>,
}

impl Function {
    /// A function at the addresses of `layout`, decoded, as firmware leaves it.
    ///
    /// # Errors
    /// [`FunctionError`].
    pub fn new(
        layout: &Layout,
        host: Arc<GuestHost>,
        session: Arc<dyn Control>,
        features: u64,
        bus: Arc<MmioBus>,
        strays: Arc<StrayCounters>,
    ) -> Result<Self, FunctionError> {
        let registers = Registers::new(Arc::clone(&host), session, features, strays);
        let doorbells = DoorbellBar::new(Arc::clone(host.doorbells()));
        let decoder = |bar, device| Decoder {
            bar,
            device,
            at: None,
        };
        let decoders = [
            decoder(REGISTERS, Arc::new(registers) as Arc<dyn BusDevice>),
            decoder(
                aperture_bar(layout.aperture_bytes),
                Arc::clone(host.aperture()) as _,
            ),
            decoder(DOORBELLS, Arc::new(doorbells)),
        ];
        let mut space = ConfigSpace::new(IDENTITY);
        let addresses = [layout.registers, layout.aperture, layout.doorbells];
        for (decoder, address) in decoders.iter().zip(addresses) {
            space.add_bar(decoder.bar, address);
        }
        space.add_msix(MSIX);
        space.set_command(COMMAND_MEMORY);
        let function = Self {
            host,
            bus,
            address_end: layout.address_end,
            state: Mutex::new(State { space, decoders }),
        };
        function.settle_first()?;
        Ok(function)
    }

    /// Decodes all BARs, or says why one cannot be.
    fn settle_first(&self) -> Result<(), FunctionError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { space, decoders } = &mut *state;
        for decoder in decoders {
            self.attach(decoder, space.bar_address(decoder.bar))?;
        }
        Ok(())
    }

    /// Moves each BAR to where the guest wants it.
    fn settle(&self, state: &mut State) {
        let enabled = state.space.command() & COMMAND_MEMORY != 0;
        let State { space, decoders } = state;
        let wanted = |bar: MemoryBar| {
            let address = space.bar_address(bar);
            let end = address.checked_add(bar.bytes)?;
            (enabled && address != 0 && end <= self.address_end).then_some(address)
        };
        // All that move leave before any arrives: they may exchange places.
        for decoder in decoders.iter_mut() {
            if decoder.at != wanted(decoder.bar) {
                self.detach(decoder);
            }
        }
        for decoder in decoders.iter_mut().filter(|d| d.at.is_none()) {
            if let Some(address) = wanted(decoder.bar)
                && let Err(e) = self.attach(decoder, address)
            {
                let name = decoder.device.name();
                log::debug!("{name} at {address:#x} is not decoded: {e}");
            }
        }
    }

    fn attach(&self, decoder: &mut Decoder, address: u64) -> Result<(), FunctionError> {
        let (bytes, device) = (decoder.bar.bytes, Arc::clone(&decoder.device));
        self.bus.insert(GuestAddress(address), bytes, device)?;
        decoder.at = Some(address);
        self.follow(decoder).map_err(|source| {
            self.detach(decoder);
            FunctionError::Hypervisor { address, source }
        })
    }

    fn detach(&self, decoder: &mut Decoder) {
        let Some(old) = decoder.at.take() else { return };
        // Slots and doorbells go first: an access in between is an exit, and still finds its device.
        if let Err(e) = self.follow(decoder) {
            log::error!(
                "{} stays in the hypervisor at {old:#x}: {e}",
                decoder.device.name()
            );
        }
        if let Err(e) = self.bus.remove(GuestAddress(old)) {
            log::error!("{}: {e}", decoder.device.name());
        }
    }

    /// Has memory slots and doorbells follow their BAR.
    fn follow(&self, decoder: &Decoder) -> std::io::Result<()> {
        match decoder.bar.index {
            BAR_APERTURE => self.host.aperture().relocate(decoder.at),
            BAR_DOORBELLS => self.host.doorbells().relocate(decoder.at),
            _ => Ok(()),
        }
    }
}

impl ConfigAccess for Function {
    fn read_config(&self, offset: u8, into: &mut [u8]) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.space.read(offset, into);
    }

    fn write_config(&self, offset: u8, from: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.space.write(offset, from);
        self.settle(&mut state);
    }
}

impl Drop for Function {
    /// Leaves the bus and the hypervisor.
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.space.set_command(0);
        self.settle(&mut state);
    }
}

const IDENTITY: Identity = Identity {
    vendor: VENDOR_ID,
    device: DEVICE_ID,
    revision: 1,
    class: CLASS,
    subclass: SUBCLASS,
};

const REGISTERS: MemoryBar = MemoryBar {
    index: BAR_REGISTERS,
    bytes: BAR0_BYTES,
    wide: false,
    prefetchable: false,
};

const DOORBELLS: MemoryBar = MemoryBar {
    index: BAR_DOORBELLS,
    bytes: BAR4_BYTES,
    wide: false,
    prefetchable: false,
};

const fn aperture_bar(bytes: u64) -> MemoryBar {
    MemoryBar {
        index: BAR_APERTURE,
        bytes,
        wide: true,
        prefetchable: true,
    }
}

const MSIX: MsixCapability = MsixCapability {
    vectors: VECTORS,
    bar: BAR_DOORBELLS as u8,
    table: MSIX_TABLE as u32,
    pending: MSIX_PENDING as u32,
};

#[cfg(test)]
mod tests;
