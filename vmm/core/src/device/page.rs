//! The registers of one client that hold something.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_mediator::Client;

use causeway_protocol::message::Status;
use causeway_protocol::registers::{CONTROL_BYTES_MAX, CONTROL_IN_WINDOW, NO_CONTROL_WINDOW};
use parking_lot::Mutex;

use super::GuestHost;
use super::control_window::ControlWindow;

/// Alignment of the control area and of batch lengths, in bytes.
const CONTROL_ALIGNMENT: u64 = 8;

/// The registers of one client that hold a value: those of its page of BAR 0.
///
/// All virtual CPUs share one control base and one batch status. A doorbell takes the base as it is
/// at that moment and then executes its batch on a copy with no lock held. So a client that sends
/// batches from several virtual CPUs sets the base and rings under a lock of its own, and reads the
/// outcome from its messages, each of which has a status of its own.
pub(super) struct Page {
    base: Mutex<u64>,
    batch_status: AtomicU32,
    window: Mutex<Option<Arc<ControlWindow>>>,
}

impl Page {
    /// Returns the registers of `client` in their state after a reset of the device. The control
    /// base, the address of the client's batches, is guest-physical zero for the first client, as
    /// in versions with one client only. For all others it is their control window: memory in the
    /// aperture for one client's batches, which is created when the client asks for it. So a client
    /// that has missed a reset cannot make the device read batches from, or write replies to,
    /// memory that is not its own.
    pub fn new(client: Client) -> Self {
        let base = match client {
            Client::FIRST => 0,
            _ => CONTROL_IN_WINDOW,
        };
        Self {
            base: Mutex::new(base),
            batch_status: AtomicU32::new(Status::Ok as u32),
            window: Mutex::default(),
        }
    }

    /// Returns the control base: the guest-physical address of the client's batches, or
    /// [`CONTROL_IN_WINDOW`] if they are in its control window, memory in the aperture for this
    /// client's batches.
    pub fn base(&self) -> u64 {
        *self.base.lock()
    }

    /// Calls `change` with the control base, the address of the client's batches, and makes the
    /// result the new control base. Two registers contain the lower and the upper half of the
    /// control base, so a store to one of them keeps the other half.
    pub fn set_base(&self, change: impl FnOnce(u64) -> u64) {
        let mut base = self.base.lock();
        *base = change(*base);
    }

    /// Returns the status of the client's last batch, as the number that the guest reads from the
    /// register.
    pub fn batch_status(&self) -> u32 {
        self.batch_status.load(Ordering::Acquire)
    }

    /// Returns the offset in the aperture of the client's control window, the memory for the
    /// client's batches. Creates the window if the client has none yet. Returns
    /// [`NO_CONTROL_WINDOW`] if that fails.
    pub fn window_offset(&self, host: &GuestHost) -> u64 {
        let mut window = self.window.lock();
        if let Some(window) = &*window {
            return window.offset;
        }
        match ControlWindow::place(&host.aperture) {
            Ok(placed) => window.insert(Arc::new(placed)).offset,
            Err(e) => {
                log::debug!("cannot place a control window: {e}");
                NO_CONTROL_WINDOW
            }
        }
    }

    /// Returns whether the client has a control window: memory in the aperture for its batches.
    pub fn has_window(&self) -> bool {
        self.window.lock().is_some()
    }

    /// Removes the client's control window, the memory for its batches, from the aperture. Does
    /// nothing if the client has none.
    pub fn remove_window(&self, host: &GuestHost) {
        if let Some(window) = self.window.lock().take() {
            window.remove(&host.aperture);
        }
    }

    /// Resets the registers of a client other than the first: batches are expected in its control
    /// window again, and the status of the last batch is `Ok`.
    pub fn clear(&self) {
        self.set_base(|_| CONTROL_IN_WINDOW);
        self.batch_status
            .store(Status::Ok as u32, Ordering::Release);
    }

    /// Executes a batch: copies its `bytes` bytes from the control base, the place of the client's
    /// batches, and calls `execute` with the copy, in which `execute` replaces the requests by
    /// replies. If `execute` returns `Ok`, writes the copy back over the batch. Stores the
    /// resulting status, which [`Self::batch_status`] returns.
    pub fn execute(&self, host: &GuestHost, bytes: u32, execute: impl FnOnce(&mut [u8]) -> Status) {
        let executed = self.try_execute(host, bytes, execute);
        let status = executed.err().unwrap_or(Status::Ok);
        self.batch_status.store(status as u32, Ordering::Release);
    }

    fn try_execute(
        &self,
        host: &GuestHost,
        bytes: u32,
        execute: impl FnOnce(&mut [u8]) -> Status,
    ) -> Result<(), Status> {
        if !(1..=CONTROL_BYTES_MAX).contains(&bytes)
            || !u64::from(bytes).is_multiple_of(CONTROL_ALIGNMENT)
        {
            return Err(Status::BadLength);
        }
        let area = self.area()?;
        let mut batch = vec![0; bytes as usize];
        area.read(host, &mut batch)?;
        match execute(&mut batch) {
            Status::Ok => area.write(host, &batch),
            // A batch that was not taken is as it was: nothing to write, and the guest's own writes
            // since then stay.
            refused => Err(refused),
        }
    }

    /// Returns the memory that the control base names.
    fn area(&self) -> Result<Area, Status> {
        let base = self.base();
        if base == CONTROL_IN_WINDOW {
            let window = self.window.lock().clone();
            // Without a window it is an address like any other, and not aligned.
            return window.map(Area::Window).ok_or(Status::BadAlignment);
        }
        if !base.is_multiple_of(CONTROL_ALIGNMENT) {
            return Err(Status::BadAlignment);
        }
        Ok(Area::Ram(base))
    }
}

/// Memory in which a batch is, held for as long as the batch is executed.
enum Area {
    /// Guest-physical address.
    Ram(u64),
    Window(Arc<ControlWindow>),
}

impl Area {
    fn read(&self, host: &GuestHost, into: &mut [u8]) -> Result<(), Status> {
        match self {
            Self::Ram(base) => host.ram.read(*base, into).map_err(|_| Status::BadRange),
            Self::Window(window) => window.mapping.read(0, into).map_err(|_| Status::BadRange),
        }
    }

    fn write(&self, host: &GuestHost, from: &[u8]) -> Result<(), Status> {
        match self {
            Self::Ram(base) => host.ram.write(*base, from).map_err(|_| Status::BadRange),
            Self::Window(window) => window.mapping.write(0, from).map_err(|_| Status::BadRange),
        }
    }
}
