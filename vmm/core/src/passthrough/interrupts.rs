//! Interrupts of a passed-through device: its pin, MSI or MSI-X, as the guest has chosen.
//!
//! The host's kernel signals an event for each interrupt, and KVM raises an interrupt of the guest
//! for each signal. The VMM takes part only when the guest changes a setting.
//!
//! A message that is masked is not connected to KVM; its event keeps that it was raised, and is the
//! pending bit. So all vectors of MSI-X are set up with the device when the guest enables them,
//! masked or not. If the host has not that many, as many are as the guest has programmed, and those
//! that it programs later are added.

use std::io;
use std::sync::Arc;

use causeway_host_vfio::{Address, Device, InterruptError, InterruptKind};
use parking_lot::Mutex;

use super::capabilities::{Capabilities, MsixPlace};
use super::failure_counter::FailureCounter;
use super::msi::MsiVectors;
use crate::bus::{AccessResult, Refusal};
use crate::interrupts::{InterruptController, ResampledLine};
use crate::pci::{ConfigSpace, MsixTable};

/// Why a kind of interrupts could not be enabled.
#[derive(Debug, thiserror::Error)]
enum ModeError {
    #[error("--vfio device {address} cannot enable its interrupts; the VM continues without them")]
    Device {
        address: Address,
        source: InterruptError,
    },
    #[error(
        "KVM cannot connect an interrupt of --vfio device {address} to the guest; the VM continues \
         without this interrupt"
    )]
    Hypervisor { address: Address, source: io::Error },
}

/// The kind of interrupt that the guest has enabled in a passed-through device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The guest has enabled no interrupts.
    #[default]
    None,
    /// The guest has enabled the interrupt pin (INTx).
    Pin,
    /// The guest has enabled MSI, with this number of vectors.
    Messages(usize),
    /// The guest has enabled MSI-X.
    Table,
}

/// The kind and number of interrupts that the guest has used in a device, for the device's report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The best kind of interrupt that the guest has enabled so far: MSI-X before MSI, and MSI
    /// before the pin.
    pub mode: Mode,
    /// Maximum number of interrupt vectors that were enabled at a time.
    pub vectors: usize,
    /// Number of times that the guest has changed the kind of interrupt.
    pub changes: u64,
}

#[derive(Default)]
struct State {
    mode: Mode,
    /// Vectors of MSI-X that are set up with the device.
    vectors: usize,
    /// The pin, while it is enabled.
    line: Option<ResampledLine>,
    used: Used,
}

/// The interrupts of a passed-through device. The host's kernel signals an event for each interrupt
/// of the device, and KVM turns it into an interrupt of the guest.
pub struct Interrupts {
    device: Arc<Device>,
    controller: Arc<InterruptController>,
    /// GSI of the pin's line, if the device has a pin.
    line: Option<u32>,
    msi: Option<MsiVectors>,
    msix: Option<(MsixPlace, MsixTable)>,
    failures: Arc<FailureCounter>,
    state: Mutex<State>,
}

impl Interrupts {
    /// Returns the interrupts of `device`, all disabled. `capabilities` says which kinds the device
    /// has, and `controller` provides interrupts of the guest. `line` is the interrupt number (GSI)
    /// to which the device's pin is wired; `None` if the device has no pin. `failures` counts
    /// errors that occur later.
    ///
    /// # Errors
    /// `ENOSPC` if the VM has too many message interrupts, `EMFILE` or `ENFILE` if no descriptor is
    /// left for an eventfd.
    pub fn new(
        device: Arc<Device>,
        controller: &Arc<InterruptController>,
        line: Option<u32>,
        capabilities: &Capabilities,
        failures: Arc<FailureCounter>,
    ) -> io::Result<Self> {
        let msi = capabilities.msi.map(|msi| MsiVectors::new(msi, controller));
        let table = |place: MsixPlace| {
            MsixTable::new(place.vectors, controller).map(|table| (place, table))
        };
        Ok(Self {
            device,
            controller: Arc::clone(controller),
            line,
            msi: msi.transpose()?,
            msix: capabilities.msix.map(table).transpose()?,
            failures,
            state: Mutex::default(),
        })
    }

    /// Enables the kind of interrupt that the guest has chosen in its configuration space `space`,
    /// and disables the other kinds.
    pub fn configure(&self, space: &ConfigSpace) {
        let mut state = self.state.lock();
        if let Some((place, table)) = &self.msix {
            table.set_control(space.msix_control(place.offset));
        }
        if let Some(Err(e)) = self.msi.as_ref().map(|msi| msi.route(space)) {
            self.failures.add(&self.unconnected(e));
        }
        let wanted = self.wanted(space);
        if state.mode != wanted {
            self.switch(&mut state, wanted);
        }
    }

    /// Returns the kind that the guest has chosen. A function that raises messages does not use its
    /// pin. With both MSI and MSI-X enabled, which is undefined, MSI-X counts.
    fn wanted(&self, space: &ConfigSpace) -> Mode {
        let (msi, msix) = (self.msi.as_ref(), self.msix.as_ref());
        let msix = msix.is_some_and(|(_, table)| table.is_enabled());
        let messages = msi.map_or(0, |msi| msi.capability.enabled(space));
        match () {
            () if msix => Mode::Table,
            () if messages != 0 => Mode::Messages(messages),
            () if self.line.is_some() && space.is_interrupt_pin_enabled() => Mode::Pin,
            () => Mode::None,
        }
    }

    fn switch(&self, state: &mut State, wanted: Mode) {
        self.disable(state);
        state.mode = wanted;
        state.used.mode = state.used.mode.max(wanted);
        state.used.changes += 1;
        if let Err(e) = self.enable(state, wanted) {
            self.failures.add(&e);
        }
    }

    /// Disables the device's interrupts, and makes none pending.
    fn disable(&self, state: &mut State) {
        if let Err(e) = self.device.disable_interrupts() {
            self.failures.add(&e);
        }
        state.line = None;
        state.vectors = 0;
        match state.mode {
            Mode::None | Mode::Pin => {}
            Mode::Messages(_) => self.msi.iter().for_each(MsiVectors::clear_pending),
            Mode::Table => {
                let msix = self.msix.iter();
                msix.for_each(|(_, table)| table.clear_pending());
            }
        }
        state.mode = Mode::None;
    }

    fn unconnected(&self, source: io::Error) -> ModeError {
        let address = self.device.address();
        ModeError::Hypervisor { address, source }
    }

    fn enable(&self, state: &mut State, mode: Mode) -> Result<(), ModeError> {
        let address = self.device.address();
        let disabled = |source| ModeError::Device { address, source };
        let vectors = match (mode, self.line, &self.msi, &self.msix) {
            (Mode::Pin, Some(gsi), ..) => {
                let line = self.controller.resampled_line(gsi);
                let line = line.map_err(|e| self.unconnected(e))?;
                let set = self.device.set_intx(line.event(), Some(line.handled()));
                set.map_err(disabled)?;
                state.line = Some(line);
                1
            }
            (Mode::Messages(count), _, Some(msi), _) => {
                let interrupts = msi.interrupts.iter().take(count);
                let events: Vec<_> = interrupts.map(|i| Some(i.event())).collect();
                let set = self.device.set_vectors(InterruptKind::Msi, &events);
                set.map_err(disabled)?;
                events.len()
            }
            (Mode::Table, _, _, Some((place, table))) => {
                let all = place.vectors.into();
                let set = self.set_up(table, all).or_else(|e| {
                    log::info!(
                        "cannot enable all {all} MSI-X vectors of device {address}, so only those \
                         that the guest has programmed are enabled: {e}"
                    );
                    self.set_up(table, usize::from(table.programmed()).max(1))
                });
                state.vectors = set.map_err(disabled)?;
                state.vectors
            }
            _ => 0,
        };
        state.used.vectors = state.used.vectors.max(vectors);
        Ok(())
    }

    /// Makes the first `count` vectors of MSI-X signal their events.
    fn set_up(&self, table: &MsixTable, count: usize) -> Result<usize, InterruptError> {
        table.with_events(|events| {
            let events: Vec<_> = events.iter().take(count).copied().map(Some).collect();
            self.device.set_vectors(InterruptKind::Msix, &events)?;
            Ok(events.len())
        })
    }

    /// Carries out the guest's load into `into` at byte `offset` of the MSI-X table.
    pub fn read_table(&self, offset: u64, into: &mut [u8]) -> AccessResult {
        let (_, table) = self.msix.as_ref().ok_or(Refusal::NoRegister)?;
        table.read(offset, into)
    }

    /// Carries out the guest's load into `into` at byte `offset` of the pending bits of MSI-X.
    pub fn read_pending(&self, offset: u64, into: &mut [u8]) -> AccessResult {
        let (_, table) = self.msix.as_ref().ok_or(Refusal::NoRegister)?;
        table.read_pending(offset, into)
    }

    /// Carries out the guest's store of `from` at byte `offset` of the MSI-X table.
    pub fn write_table(&self, offset: u64, from: &[u8]) -> AccessResult {
        let (place, table) = self.msix.as_ref().ok_or(Refusal::NoRegister)?;
        let access = table.write(offset, from);
        let mut state = self.state.lock();
        let all = usize::from(place.vectors);
        if state.mode == Mode::Table && state.vectors < all {
            self.grow(&mut state, table);
        }
        access
    }

    /// Adds vectors that were programmed meanwhile, where the host could not set up all at once.
    /// The kernel may take down those there are for a moment.
    fn grow(&self, state: &mut State, table: &MsixTable) {
        let wanted = usize::from(table.programmed());
        if wanted <= state.vectors {
            return;
        }
        match self.set_up(table, wanted).or_else(|e| {
            self.failures.add(&e);
            self.set_up(table, state.vectors.max(1))
        }) {
            Ok(vectors) => state.vectors = vectors,
            Err(e) => self.failures.add(&e),
        }
        state.used.vectors = state.used.vectors.max(state.vectors);
    }

    /// Returns the offset of MSI's pending bits in configuration space, and their value; `None` if
    /// the device has no such bits.
    pub fn msi_pending(&self) -> Option<(u8, u32)> {
        let msi = self.msi.as_ref()?;
        Some((msi.capability.pending()?, msi.pending()))
    }

    /// Returns the kind and number of interrupts that the guest has used so far.
    pub fn used(&self) -> Used {
        self.state.lock().used
    }

    /// Disables all interrupts of the device, before the device is returned to the host.
    pub fn shut_down(&self) {
        self.disable(&mut self.state.lock());
    }
}
