//! Interrupt chips that only keep books, for tests of devices.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use vmm_sys_util::eventfd::EventFd;

use super::{InterruptChips, InterruptController, MsiMessage};

#[derive(Default)]
pub(crate) struct Books {
    pub messages: BTreeMap<u32, MsiMessage>,
    /// Interrupt number (GSI) to which each event is connected, by the descriptor of its eventfd.
    pub connected: BTreeMap<i32, u32>,
    /// Descriptor of the eventfd that is signalled when the guest has handled a level-triggered
    /// interrupt, by the interrupt's number (GSI).
    pub resampled: BTreeMap<u32, i32>,
    /// Numbers (GSIs) of the interrupt lines that are asserted.
    pub asserted: Vec<u32>,
    /// Error number with which the next call of these fake chips fails; `None` if it succeeds.
    pub failure: Option<i32>,
}

/// Two of these made by `clone` keep the same books.
#[derive(Clone, Default)]
pub(crate) struct FakeChips(Arc<Mutex<Books>>);

impl FakeChips {
    /// Returns an interrupt controller that uses these fake chips.
    pub fn controller(&self) -> Arc<InterruptController> {
        InterruptController::new(Box::new(self.clone()))
    }

    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock()
    }

    /// Returns the interrupt message that the guest gets when `event` is signalled; `None` if the
    /// event is not connected, or its interrupt has no message.
    pub fn delivers(&self, event: &EventFd) -> Option<MsiMessage> {
        let books = self.books();
        let gsi = books.connected.get(&event.as_raw_fd())?;
        books.messages.get(gsi).copied()
    }

    fn begin(&self) -> io::Result<MutexGuard<'_, Books>> {
        let mut books = self.books();
        match books.failure.take() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(books),
        }
    }
}

impl InterruptChips for FakeChips {
    fn set_messages(&self, messages: &BTreeMap<u32, MsiMessage>) -> io::Result<()> {
        self.begin()?.messages = messages.clone();
        Ok(())
    }

    fn connect(&self, event: &EventFd, gsi: u32) -> io::Result<()> {
        let mut books = self.begin()?;
        if books.connected.insert(event.as_raw_fd(), gsi).is_some() {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        Ok(())
    }

    fn connect_resampled(&self, event: &EventFd, handled: &EventFd, gsi: u32) -> io::Result<()> {
        self.connect(event, gsi)?;
        self.books().resampled.insert(gsi, handled.as_raw_fd());
        Ok(())
    }

    fn disconnect(&self, event: &EventFd, gsi: u32) -> io::Result<()> {
        let mut books = self.begin()?;
        books.connected.remove(&event.as_raw_fd());
        books.resampled.remove(&gsi);
        Ok(())
    }

    fn set_level(&self, gsi: u32, asserted: bool) -> io::Result<()> {
        let mut books = self.begin()?;
        books.asserted.retain(|line| *line != gsi);
        if asserted {
            books.asserted.push(gsi);
        }
        Ok(())
    }
}
