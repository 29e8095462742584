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

/// First GSI of PCI's lines.
pub const LINE_FIRST: u32 = 16;
/// Number of PCI's lines.
pub const LINES: u32 = 8;
/// First GSI of messages: behind the I/O APIC's pins.
const MESSAGE_FIRST: u32 = 24;
/// Most messages of a VM. KVM's table holds 4096 entries, of which 40 are those of lines.
const MESSAGES_MAX: u32 = 4000;

/// A message-signalled interrupt: what a function would store, and where (PCI Local Bus
/// Specification 3.0, 6.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MsiMessage {
    /// Address, as it stands in the vector's registers.
    pub address: u64,
    /// Data.
    pub data: u32,
}

/// GSI of the line of pin `pin` (1 for INTA# … 4 for INTD#) of device `device` on bus 0. The
/// routing table of the firmware says the same to the guest.
pub const fn pci_line(device: u8, pin: u8) -> u32 {
    LINE_FIRST + (device as u32 + pin as u32 - 1) % LINES
}

/// A hypervisor's interrupt chips. The seam below which is KVM.
pub trait InterruptChips: Send + Sync {
    /// Replaces the meaning of all GSIs: chips' pins as ever, and these messages.
    ///
    /// # Errors
    /// The hypervisor's error: `EINVAL` for a message that cannot be, `ENOMEM`.
    fn set_messages(&self, messages: &BTreeMap<u32, MsiMessage>) -> io::Result<()>;

    /// Makes every signal of `event` raise `gsi`, beginning with one that came before.
    ///
    /// # Errors
    /// The hypervisor's error: `EBUSY` if the event is connected.
    fn connect(&self, event: &EventFd, gsi: u32) -> io::Result<()>;

    /// Makes every signal of `event` assert the line `gsi`. When the guest has handled the
    /// interrupt, the line falls and `handled` is signalled (`KVM_IRQFD_FLAG_RESAMPLE`).
    ///
    /// # Errors
    /// The hypervisor's error.
    fn connect_resampled(&self, event: &EventFd, handled: &EventFd, gsi: u32) -> io::Result<()>;

    /// Ends what [`Self::connect`] or [`Self::connect_resampled`] began. Signals are then kept in
    /// the event.
    ///
    /// # Errors
    /// The hypervisor's error.
    fn disconnect(&self, event: &EventFd, gsi: u32) -> io::Result<()>;

    /// Sets the level of a line.
    ///
    /// # Errors
    /// The hypervisor's error.
    fn set_level(&self, gsi: u32, asserted: bool) -> io::Result<()>;
}

/// All interrupts of one VM.
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
    /// Returns interrupts that end at `chips`.
    pub fn new(chips: Box<dyn InterruptChips>) -> Arc<Self> {
        Arc::new(Self {
            chips,
            state: Mutex::default(),
        })
    }

    /// Returns a message-signalled interrupt, one for each vector of a function. It is masked until
    /// it is given a message.
    ///
    /// # Errors
    /// `ENOSPC` if there are too many, or the process has no descriptor left for an eventfd.
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

    /// Returns a device's share of the line `gsi` (see [`pci_line`]), not asserted.
    ///
    /// # Errors
    /// `EINVAL` for a GSI that is no line.
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

    /// Returns one more share of the line `gsi`, for a device that the host's kernel watches: it is
    /// asserted by an event, until the guest has handled the interrupt, and nobody in between is
    /// told.
    ///
    /// # Errors
    /// `EINVAL` for a GSI that is no line, or what the hypervisor said.
    pub fn resampled_line(self: &Arc<Self>, gsi: u32) -> io::Result<ResampledLine> {
        if !(LINE_FIRST..LINE_FIRST + LINES).contains(&gsi) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (event, handled) = (new_event()?, new_event()?);
        self.chips.connect_resampled(&event, &handled, gsi)?;
        Ok(ResampledLine {
            controller: Arc::clone(self),
            gsi,
            event,
            handled,
        })
    }

    /// Returns the edge-triggered ISA interrupt `gsi`.
    ///
    /// # Errors
    /// `EINVAL` for a GSI that is not ISA's, or what the hypervisor said.
    pub fn edge(self: &Arc<Self>, gsi: u32) -> io::Result<EdgeInterrupt> {
        if gsi >= LINE_FIRST {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let event = new_event()?;
        self.chips.connect(&event, gsi)?;
        Ok(EdgeInterrupt {
            controller: Arc::clone(self),
            gsi,
            event,
        })
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
            log::error!("cannot set interrupt line {gsi} to {asserted}: {e}");
        }
    }
}

fn new_event() -> io::Result<EventFd> {
    EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)
}

/// A message-signalled interrupt of a device.
///
/// Signals while it is masked are kept, as one, and delivered when it is given a message: its event
/// *is* the pending bit. Anyone who has a descriptor of the event can signal it, another process,
/// too.
pub struct MessageInterrupt {
    controller: Arc<InterruptController>,
    gsi: u32,
    event: EventFd,
    /// Whether signals of the event reach the guest.
    routed: Mutex<bool>,
}

impl MessageInterrupt {
    /// Raises the interrupt, or marks it pending.
    pub fn trigger(&self) {
        signal(&self.event);
    }

    /// Returns the event that raises the interrupt.
    pub fn event(&self) -> &EventFd {
        &self.event
    }

    /// Unmasks the interrupt with a message, or masks it with none. What became pending is
    /// delivered.
    ///
    /// # Errors
    /// The hypervisor's error; an interrupt that was masked is masked still.
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

    /// Returns whether it was raised while it was masked and is yet to be delivered.
    pub fn is_pending(&self) -> bool {
        let routed = self.routed.lock();
        // Taken and put back: nobody else reads the event while it is not routed.
        let pending = !*routed && self.event.read().is_ok();
        if pending {
            signal(&self.event);
        }
        pending
    }

    /// Forgets what is pending, as a reset of the device does.
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
            Err(e) => log::error!("cannot remove interrupt message {} from KVM: {e}", self.gsi),
        }
    }
}

/// One device's share of a level-triggered line, which is asserted as long as one of those who
/// share it asserts it.
pub struct LineInterrupt {
    controller: Arc<InterruptController>,
    gsi: u32,
    asserted: Mutex<bool>,
}

impl LineInterrupt {
    /// Asserts the line, or stops asserting it.
    pub fn set(&self, asserted: bool) {
        let mut before = self.asserted.lock();
        if *before != asserted {
            *before = asserted;
            self.controller.drive(self.gsi, asserted);
        }
    }

    /// Returns the line's GSI.
    pub fn gsi(&self) -> u32 {
        self.gsi
    }
}

impl Drop for LineInterrupt {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A share of a level-triggered line whose device is not ours to ask: who signals it is told when
/// to look again.
pub struct ResampledLine {
    controller: Arc<InterruptController>,
    gsi: u32,
    event: EventFd,
    handled: EventFd,
}

impl ResampledLine {
    /// Returns the event that asserts the line.
    pub fn event(&self) -> &EventFd {
        &self.event
    }

    /// Returns the event that KVM signals when the guest has handled the interrupt. If the device
    /// asserts its pin still, it signals [`Self::event`] again.
    pub fn handled(&self) -> &EventFd {
        &self.handled
    }
}

impl Drop for ResampledLine {
    fn drop(&mut self) {
        if let Err(e) = self.controller.chips.disconnect(&self.event, self.gsi) {
            log::error!("cannot remove interrupt line {} from KVM: {e}", self.gsi);
        }
    }
}

/// An edge-triggered interrupt that is always connected.
pub struct EdgeInterrupt {
    controller: Arc<InterruptController>,
    gsi: u32,
    event: EventFd,
}

impl EdgeInterrupt {
    /// Raises the interrupt.
    pub fn trigger(&self) {
        signal(&self.event);
    }
}

impl Drop for EdgeInterrupt {
    fn drop(&mut self) {
        if let Err(e) = self.controller.chips.disconnect(&self.event, self.gsi) {
            log::error!("cannot remove interrupt {} from KVM: {e}", self.gsi);
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
