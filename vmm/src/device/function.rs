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
use crate::bus::{MmioBus, StrayCounters};
use crate::pci::{
    COMMAND_MEMORY, ConfigAccess, ConfigSpace, DecodeError, Decoders, Identity, Layout, MemoryBar,
    MsixCapability,
};

struct State {
    space: ConfigSpace,
    decoders: Decoders,
}

/// The Causeway function.
///
/// It compares where its BARs should be with where they are after every store to configuration space, and moves them:
/// on the MMIO bus, and with them memory slots and doorbells.
pub struct Function {
    state: Mutex<State>,
}

impl Function {
    /// A function at the addresses of `layout`, decoded, as firmware leaves it.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn new(
        layout: &Layout,
        host: Arc<GuestHost>,
        session: Arc<dyn Control>,
        features: u64,
        bus: Arc<MmioBus>,
        strays: Arc<StrayCounters>,
    ) -> Result<Self, DecodeError> {
        let aperture = aperture_bar(layout.aperture_bytes);
        let mut space = ConfigSpace::new(IDENTITY);
        space.add_bar(REGISTERS, layout.registers);
        space.add_bar(aperture, layout.aperture);
        space.add_bar(DOORBELLS, layout.doorbells);
        space.add_msix(MSIX);
        space.set_command(COMMAND_MEMORY);
        let registers = Registers::new(Arc::clone(&host), session, features, strays);
        let mut decoders = Decoders::new(bus, layout.address_end);
        decoders.add(REGISTERS, Arc::new(registers), Box::new(|_| Ok(())));
        let slots = Arc::clone(host.aperture());
        decoders.add(
            aperture,
            Arc::clone(&slots) as _,
            Box::new(move |base| slots.relocate(base)),
        );
        let doorbells = Arc::clone(host.doorbells());
        decoders.add(
            DOORBELLS,
            Arc::new(DoorbellBar::new(Arc::clone(&doorbells))),
            Box::new(move |base| doorbells.relocate(base)),
        );
        decoders.settle_first(&space)?;
        Ok(Self {
            state: Mutex::new(State { space, decoders }),
        })
    }
}

impl ConfigAccess for Function {
    fn read_config(&self, offset: u8, into: &mut [u8]) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.space.read(offset, into);
    }

    fn write_config(&self, offset: u8, from: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { space, decoders } = &mut *state;
        space.write(offset, from);
        decoders.settle(space);
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
