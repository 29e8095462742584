//! Interrupts of a VM that boots an operating system: message-signalled ones, level lines of PCI,
//! and edges of the serial port. Bare guests have no interrupt controller, and none of this, unless
//! a device is passed through to them.
//!
//! | global system interrupts (GSI) | what |
//! |---|---|
//! | 0 … 15 | ISA: both interrupt controllers of old, and the I/O APIC |
//! | 16 … 23 | PCI's lines, on the I/O APIC: [`pci_line`] |
//! | 24 … | messages, in the order in which they were asked for |
//!
//! The table that says what a GSI means is replaced as a whole (`KVM_SET_GSI_ROUTING`), so it has
//! one owner, the [`InterruptController`]. Devices hold a [`MessageInterrupt`], a [`LineInterrupt`]
//! or an [`EdgeInterrupt`] and know nothing of the rest.
//!
//! Lines are driven by `KVM_IRQ_LINE` rather than by irqfd and a resampling eventfd: a device of
//! ours always knows when its line falls, because that is a store of the guest to a register of it,
//! so nobody has to be told when the guest has handled the interrupt. Host devices that
//! are passed through are not ours: a [`ResampledLine`] is for them.
//!
//! Lock order: a message's or line's own, then the controller's, which is a leaf.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

#[cfg(test)]
pub(crate) mod fake;
mod kvm;

/// Number (GSI) of the first interrupt line to which pins of PCI functions are wired.
pub const LINE_FIRST: u32 = 16;
/// Number of interrupt lines to which pins of PCI functions are wired.
pub const LINES: u32 = 8;
/// First GSI of messages: behind the I/O APIC's pins.
const MESSAGE_FIRST: u32 = 24;
/// Most messages of a VM. KVM's table has 4096 entries (`KVM_MAX_IRQ_ROUTES`), of which the chips'
/// pins take 40.
const MESSAGES_MAX: u32 = 4000;

/// A message-signalled interrupt's message. A PCI function raises the interrupt by storing a value
/// to an address (PCI Local Bus Specification 3.0, 6.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MsiMessage {
    /// Address to which the function stores; the guest has programmed it.
    pub address: u64,
    /// Value that the function stores; the guest has programmed it.
    pub data: u32,
}

/// Returns the number (GSI) of the interrupt line to which pin `pin` (1 for INTA# … 4 for INTD#) of
/// device number `device` on PCI bus 0 is wired. The guest's ACPI tables describe the same wiring.
pub const fn pci_line(device: u8, pin: u8) -> u32 {
    LINE_FIRST + (device as u32 + pin as u32 - 1) % LINES
}

/// The hypervisor's interface to the interrupt chips of a VM. KVM implements it, and a fake does in
/// tests.
pub trait InterruptChips: Send + Sync {
    /// Makes each GSI of `messages` raise its message, in place of all earlier messages. The GSIs
    /// of the chips' pins keep their meaning.
    ///
    /// # Errors
    /// The hypervisor's error: `EINVAL` for an invalid message, `E2BIG` for too many, `ENOMEM`.
    fn set_messages(&self, messages: &BTreeMap<u32, MsiMessage>) -> io::Result<()>;

    /// Makes every signal of `event` raise `gsi`. If `event` is signalled already, that raises
    /// `gsi`, too.
    ///
    /// # Errors
    /// The hypervisor's error: `EBUSY` if the event is connected already.
    fn connect(&self, event: &EventFd, gsi: u32) -> io::Result<()>;

    /// Makes every signal of `event` assert the line `gsi`. When the guest has handled the
    /// interrupt, the line falls and `handled` is signalled (`KVM_IRQFD_FLAG_RESAMPLE`).
    ///
    /// # Errors
    /// The hypervisor's error: `EBUSY` if the event is connected already.
    fn connect_resampled(&self, event: &EventFd, handled: &EventFd, gsi: u32) -> io::Result<()>;

    /// Disconnects `event` from `gsi`. Later signals stay in the event.
    ///
    /// # Errors
    /// The hypervisor's error, if the event cannot be disconnected.
    fn disconnect(&self, event: &EventFd, gsi: u32) -> io::Result<()>;

    /// Asserts the line `gsi`, or stops asserting it.
    ///
    /// # Errors
    /// The hypervisor's error, if there is no such line.
    fn set_level(&self, gsi: u32, asserted: bool) -> io::Result<()>;
}

/// The interrupts of one VM: all message-signalled interrupts with their messages, and all
/// interrupt lines with their states.
pub struct InterruptController {
    chips: Box<dyn InterruptChips>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The content of the hypervisor's table.
    messages: BTreeMap<u32, MsiMessage>,
    /// GSIs of messages that exist, in the table or not.
    taken: BTreeSet<u32>,
    /// How many devices assert each line.
    asserted: [u32; LINES as usize],
}

debug_by_name!(
    InterruptController,
    MessageInterrupt,
    LineInterrupt,
    ResampledLine,
    EdgeInterrupt
);

impl InterruptController {
    /// Returns a controller without interrupts, which uses `chips` to raise them in the guest.
    pub fn new(chips: Box<dyn InterruptChips>) -> Arc<Self> {
        Arc::new(Self {
            chips,
            state: Mutex::default(),
        })
    }

    /// Returns a new message-signalled interrupt, for one vector of a PCI function. The interrupt
    /// is masked until [`MessageInterrupt::set`] gives it a message.
    ///
    /// # Errors
    /// `ENOSPC` if the VM has 4000 such interrupts already, `EMFILE` or `ENFILE` if no descriptor
    /// is left for an eventfd.
    pub fn message(self: &Arc<Self>) -> io::Result<MessageInterrupt> {
        let event = new_event()?;
        let mut state = self.state.lock();
        let gsi = (MESSAGE_FIRST..MESSAGE_FIRST + MESSAGES_MAX)
            .find(|gsi| !state.taken.contains(gsi))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))?;
        state.taken.insert(gsi);
        drop(state);
        Ok(MessageInterrupt {
            controller: Arc::clone(self),
            gsi,
            event,
            routed: Mutex::new(false),
        })
    }

    /// Returns a device's share of the interrupt line `gsi`, which several PCI functions may use.
    /// [`pci_line`] computes `gsi`. At first, this device does not assert the line.
    ///
    /// # Errors
    /// `EINVAL` if `gsi` is not a line for PCI functions.
    pub fn line(self: &Arc<Self>, gsi: u32) -> io::Result<LineInterrupt> {
        if !(LINE_FIRST..LINE_FIRST + LINES).contains(&gsi) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        Ok(LineInterrupt {
            controller: Arc::clone(self),
            gsi,
            asserted: Mutex::new(false),
        })
    }

    /// Returns a passed-through device's share of the interrupt line `gsi`. The host's kernel
    /// asserts the line through an event, and KVM ends that when the guest has handled the
    /// interrupt; the VMM takes no part.
    ///
    /// # Errors
    /// `EINVAL` if `gsi` is not a line for PCI functions, or the hypervisor's error if the event
    /// cannot be connected.
    pub fn resampled_line(self: &Arc<Self>, gsi: u32) -> io::Result<ResampledLine> {
        if !(LINE_FIRST..LINE_FIRST + LINES).contains(&gsi) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (event, handled) = (new_event()?, new_event()?);
        self.chips.connect_resampled(&event, &handled, gsi)?;
        let connection = Connection {
            controller: Arc::clone(self),
            gsi,
            event,
        };
        Ok(ResampledLine {
            connection,
            handled,
        })
    }

    /// Returns a new edge-triggered interrupt that raises ISA interrupt `gsi`, 0 to 15, in the
    /// guest.
    ///
    /// # Errors
    /// `EINVAL` if `gsi` is above 15, or the hypervisor's error if the interrupt's event cannot be
    /// connected.
    pub fn edge(self: &Arc<Self>, gsi: u32) -> io::Result<EdgeInterrupt> {
        if gsi >= LINE_FIRST {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let event = new_event()?;
        self.chips.connect(&event, gsi)?;
        Ok(EdgeInterrupt(Connection {
            controller: Arc::clone(self),
            gsi,
            event,
        }))
    }

    /// Puts a message into the table, or takes it out.
    fn route(&self, gsi: u32, message: Option<MsiMessage>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.messages.get(&gsi).copied() == message {
            return Ok(());
        }
        let mut messages = state.messages.clone();
        match message {
            Some(message) => messages.insert(gsi, message),
            None => messages.remove(&gsi),
        };
        self.chips.set_messages(&messages)?;
        state.messages = messages;
        Ok(())
    }

    /// Counts one more or one less device that asserts a line.
    fn drive(&self, gsi: u32, asserted: bool) {
        let mut state = self.state.lock();
        let count = &mut state.asserted[(gsi - LINE_FIRST) as usize];
        let before = *count;
        *count = if asserted { before + 1 } else { before - 1 };
        if (before == 0) != (*count == 0)
            && let Err(e) = self.chips.set_level(gsi, asserted)
        {
            let change = if asserted { "assert" } else { "deassert" };
            log::error!(
                "KVM cannot {change} the guest's interrupt line {gsi}, so the guest may miss an \
                 interrupt: {e}"
            );
        }
    }
}

fn new_event() -> io::Result<EventFd> {
    EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)
}

/// One message-signalled interrupt of a device.
///
/// This process or another raises it by signalling its event (an eventfd). While the interrupt is
/// masked, the event stays signalled, which serves as the pending bit. The interrupt is then
/// delivered once, when it gets a message.
pub struct MessageInterrupt {
    controller: Arc<InterruptController>,
    gsi: u32,
    event: EventFd,
    /// Whether signals of the event reach the guest.
    routed: Mutex<bool>,
}

impl MessageInterrupt {
    /// Raises the interrupt, or marks it pending while it is masked.
    pub fn trigger(&self) {
        signal(&self.event);
    }

    /// Returns the event whose signals raise the interrupt.
    pub fn event(&self) -> &EventFd {
        &self.event
    }

    /// Gives the interrupt `message`, which is then raised in the guest, or masks the interrupt if
    /// `message` is `None`. A pending interrupt is delivered when it gets a message.
    ///
    /// # Errors
    /// The hypervisor's error if it refuses the message. A masked interrupt stays masked then.
    pub fn set(&self, message: Option<MsiMessage>) -> io::Result<()> {
        let (controller, gsi) = (&self.controller, self.gsi);
        let mut routed = self.routed.lock();
        // Connected after the message is there, and disconnected before it goes: a signal in
        // between would be lost.
        if message.is_none() && *routed {
            controller.chips.disconnect(&self.event, gsi)?;
            *routed = false;
        }
        controller.route(gsi, message)?;
        if message.is_some() && !*routed {
            controller.chips.connect(&self.event, gsi)?;
            *routed = true;
        }
        Ok(())
    }

    /// Returns whether the interrupt was raised while it was masked and has not been delivered yet.
    pub fn is_pending(&self) -> bool {
        let routed = self.routed.lock();
        // Taken and put back: nobody else reads the event while it is not routed.
        let pending = !*routed && self.event.read().is_ok();
        if pending {
            signal(&self.event);
        }
        pending
    }

    /// Makes the interrupt no longer pending, as a reset of the device does.
    pub fn clear_pending(&self) {
        let routed = self.routed.lock();
        if !*routed {
            let _ = self.event.read(); // Fails if nothing is pending.
        }
    }
}

impl Drop for MessageInterrupt {
    fn drop(&mut self) {
        match self.set(None) {
            Ok(()) => drop(self.controller.state.lock().taken.remove(&self.gsi)),
            // Its number is not given to another, which would inherit what is left of it.
            Err(e) => log::error!("cannot disconnect interrupt {} from KVM: {e}", self.gsi),
        }
    }
}

/// One device's share of a level-triggered interrupt line. The line is asserted as long as at least
/// one of the devices that share it asserts it.
pub struct LineInterrupt {
    controller: Arc<InterruptController>,
    gsi: u32,
    asserted: Mutex<bool>,
}

impl LineInterrupt {
    /// Asserts the line for this device if `asserted` is set, else stops asserting it.
    pub fn set(&self, asserted: bool) {
        let mut before = self.asserted.lock();
        if *before != asserted {
            *before = asserted;
            self.controller.drive(self.gsi, asserted);
        }
    }
}

impl Drop for LineInterrupt {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A passed-through device's share of a level-triggered interrupt line. One event (an eventfd)
/// asserts the line. KVM signals a second event when the guest has handled the interrupt, so that
/// the host's kernel checks whether the device still asserts its pin.
pub struct ResampledLine {
    connection: Connection,
    handled: EventFd,
}

impl ResampledLine {
    /// Returns the event whose signals assert the line.
    pub fn event(&self) -> &EventFd {
        &self.connection.event
    }

    /// Returns the event that KVM signals when the guest has handled the interrupt. The host's
    /// kernel then signals [`Self::event`] again if the device still asserts its pin.
    pub fn handled(&self) -> &EventFd {
        &self.handled
    }
}

/// An edge-triggered ISA interrupt, such as that of the serial port. The VMM never masks it.
pub struct EdgeInterrupt(Connection);

impl EdgeInterrupt {
    /// Raises the interrupt.
    pub fn trigger(&self) {
        signal(&self.0.event);
    }
}

/// An event that is connected to an interrupt of the chips, until this value is dropped.
struct Connection {
    controller: Arc<InterruptController>,
    gsi: u32,
    event: EventFd,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Err(e) = self.controller.chips.disconnect(&self.event, self.gsi) {
            log::error!("cannot disconnect interrupt {} from KVM: {e}", self.gsi);
        }
    }
}

fn signal(event: &EventFd) {
    // Fails only if 2^64 - 2 signals are waiting; one of them is as good as one more.
    if let Err(e) = event.write(1) {
        log::debug!("cannot signal an interrupt: {e}");
    }
}

#[cfg(test)]
mod tests;
