//! The PCI function: configuration space, and what follows from what the guest writes there.

use std::io;
use std::sync::Arc;

use causeway_mediator::GuestSession;
use causeway_protocol::pci::{
    BAR_APERTURE, BAR_DOORBELLS, BAR_REGISTERS, CLASS, DEVICE_ID, SUBCLASS, VENDOR_ID,
};
use causeway_protocol::registers::{
    BAR0_BYTES,
    doorbells::{BAR4_BYTES, MSIX_PENDING, MSIX_TABLE},
};
use parking_lot::Mutex;

use super::{DoorbellBar, GuestHost, Registers, VECTORS};
use crate::bus::{MmioBus, StrayCounters};
use crate::interrupts::{InterruptController, pci_line};
use crate::pci::{
    COMMAND_MEMORY, ConfigAccess, ConfigSpace, DecodeError, Decoders, FunctionBars, Identity,
    MemoryBar, MsixCapability, MsixTable,
};

struct State {
    space: ConfigSpace,
    decoders: Decoders,
}

/// The interrupt controller of a guest, and how the Causeway function is connected to it.
#[derive(Clone, Copy)]
pub struct Wiring<'a> {
    /// The guest's interrupt controller.
    pub controller: &'a Arc<InterruptController>,
    /// Device number of the function on PCI bus 0. It determines the interrupt line of the
    /// function's pin.
    pub device: u8,
}

/// Why the Causeway function cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The function's BARs cannot get their addresses.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The interrupt controller has no vectors or no line left for the function.
    #[error("cannot create the interrupts of the Causeway device")]
    Interrupts(#[source] io::Error),
}

/// The Causeway PCI function: its configuration space and its BARs. When the guest has stored a new
/// address for a BAR to configuration space, the function moves the BAR there on the MMIO bus, and
/// its memory slots or doorbells in the hypervisor.
pub struct CausewayFunction {
    host: Arc<GuestHost>,
    table: Arc<MsixTable>,
    /// Offset of the MSI-X capability.
    msix: usize,
    state: Mutex<State>,
}

debug_by_name!(CausewayFunction, Wiring<'_>);

impl CausewayFunction {
    /// Returns the Causeway function through which the guest `host` uses `session`. Its BARs are on
    /// `bus`, enabled at the addresses `bars`, as firmware would leave them, and end with the
    /// guest-physical addresses, at `address_end`. `features` is the
    /// bit set of [`causeway_protocol::registers::features`] that the guest reads from the feature
    /// registers. `strays` counts the guest's stray accesses; the guest can read their number.
    /// Without `wiring` the guest has no interrupt controller: it must poll for pending interrupts.
    ///
    /// # Errors
    /// [`FunctionError::Decode`] if another device on `bus` has some of the addresses, or the
    /// hypervisor refuses memory slots or doorbells there; `Interrupts` if the interrupt controller
    /// cannot provide the function's interrupts.
    pub fn new(
        (bars, address_end): (FunctionBars, u64),
        host: Arc<GuestHost>,
        session: Arc<dyn GuestSession>,
        features: u64,
        bus: Arc<MmioBus>,
        strays: Arc<StrayCounters>,
        wiring: Option<Wiring<'_>>,
    ) -> Result<Self, FunctionError> {
        let aperture = MemoryBar {
            index: BAR_APERTURE,
            bytes: bars.aperture_bytes,
            wide: true,
            prefetchable: true,
        };
        let mut space = ConfigSpace::new(IDENTITY);
        space.add_bar(REGISTERS, bars.registers);
        space.add_bar(aperture, bars.aperture);
        space.add_bar(DOORBELLS, bars.doorbells);
        let msix = space.add_msix(MSIX);
        space.set_command(COMMAND_MEMORY);
        let table = connect(&host, &mut space, wiring).map_err(FunctionError::Interrupts)?;
        let registers = Registers::new(Arc::clone(&host), session, features, strays);
        let mut decoders = Decoders::new(bus, address_end);
        decoders.add(REGISTERS, Arc::new(registers), Box::new(|_| Ok(())));
        let slots = Arc::clone(&host.aperture);
        decoders.add(
            aperture,
            Arc::clone(&slots) as _,
            Box::new(move |base| slots.relocate(base)),
        );
        let doorbells = Arc::clone(&host.doorbells);
        decoders.add(
            DOORBELLS,
            Arc::new(DoorbellBar::new(Arc::clone(&table), Arc::clone(&doorbells))),
            Box::new(move |base| doorbells.relocate(base)),
        );
        decoders.settle_first(&space)?;
        Ok(Self {
            host,
            table,
            msix,
            state: Mutex::new(State { space, decoders }),
        })
    }
}

/// Creates the function's vectors and connects its pin, if the guest has an interrupt controller.
/// Configuration space then names the line by its GSI.
fn connect(
    host: &GuestHost,
    space: &mut ConfigSpace,
    wiring: Option<Wiring<'_>>,
) -> io::Result<Arc<MsixTable>> {
    let (table, line) = match wiring {
        Some(Wiring { controller, device }) => {
            let gsi = pci_line(device, PIN);
            space.set_interrupt_pin(PIN, u8::try_from(gsi).unwrap_or(u8::MAX));
            let table = MsixTable::new(VECTORS, controller)?;
            (table, Some(controller.line(gsi)?))
        }
        None => (MsixTable::silent(VECTORS), None),
    };
    let table = Arc::new(table);
    host.interrupts.connect(Arc::clone(&table), line);
    host.interrupts.allow_pin(space.is_interrupt_pin_enabled());
    Ok(table)
}

impl ConfigAccess for CausewayFunction {
    fn read_config(&self, offset: u8, into: &mut [u8]) {
        let mut state = self.state.lock();
        let pending = self.host.interrupts.any_pending();
        state.space.set_interrupt_pending(pending);
        state.space.read(offset, into);
    }

    fn write_config(&self, offset: u8, from: &[u8]) {
        let mut state = self.state.lock();
        let State { space, decoders } = &mut *state;
        space.write(offset, from);
        decoders.settle(space);
        self.table.set_control(space.msix_control(self.msix));
        // A function that raises messages leaves its pin alone (PCI Local Bus Specification 3.0,
        // 6.8.3.3).
        let pin = space.is_interrupt_pin_enabled() && !self.table.is_enabled();
        self.host.interrupts.allow_pin(pin);
    }
}

/// INTA#.
const PIN: u8 = 1;

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

const MSIX: MsixCapability = MsixCapability {
    vectors: VECTORS,
    bar: BAR_DOORBELLS as u8,
    table: MSIX_TABLE as u32,
    pending: MSIX_PENDING as u32,
};

#[cfg(test)]
mod tests;
