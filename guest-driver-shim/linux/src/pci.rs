//! The device as a PCI function of the guest that this process runs in, without a driver in the
//! kernel.
//!
//! | what | is mapped from |
//! |---|---|
//! | BAR 0, registers: a page for each client | sysfs `resource0` |
//! | BAR 2, aperture, in pieces | `/dev/mem` (write-back), else `resource2_wc`, else `resource2` |
//! | BAR 4, doorbells | sysfs `resource4` |

mod aperture;
mod interrupt;

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use causeway_protocol::registers::{
    CONTROL_WINDOW_BYTES, NO_CONTROL_WINDOW, RESET_KEY, Register, doorbells,
};
use causeway_shim::{ControlArea, Sleeping, Status, Transport, Window};
use causeway_sysfs::{Page, Registers};
use parking_lot::Mutex;

pub use aperture::Caching;
pub(crate) use causeway_sysfs::FUNCTION_VARIABLE;
pub use causeway_sysfs::{Bar, ClientState, Clients, NotUsable, PciFunction, PciFunctionError};
pub use interrupt::Interrupts;

use crate::area::{Area, first_status, refuse};
use crate::fork::{Forked, Owner};
use aperture::Aperture;

/// Bytes of the control window for batches. The rest is for records of the test device.
const BATCH_BYTES: u64 = CONTROL_WINDOW_BYTES - RECORD_BYTES;
/// Bytes at the end of the control window that the shim does not use.
const RECORD_BYTES: u64 = 4096;

/// Why a process cannot use the Causeway function of a guest.
#[derive(Debug, thiserror::Error)]
pub enum OpenPciError {
    /// The guest has no Causeway function, or this process may not use it.
    #[error(transparent)]
    Function(#[from] PciFunctionError),
    /// Other processes hold all clients of the function.
    #[error(
        "{clients} running processes use Causeway device {function}, which cannot serve more at \
         once: end one of them"
    )]
    Taken {
        /// Address of the function on the bus.
        function: String,
        /// Number of clients that processes can hold.
        clients: u32,
    },
    /// The host's version is too old for this shim.
    #[error(
        "Causeway device {function} {what}: run the VM with a version of `causeway` that speaks \
         protocol 1.2 or later"
    )]
    TooOld {
        /// Address of the function on the bus.
        function: String,
        /// What the function lacks, as a predicate whose subject is the function.
        what: &'static str,
    },
}

/// The transport of a process in a guest. It reaches the device through the PCI function, as one of
/// the function's clients.
#[derive(Debug)]
pub struct PciTransport {
    function: PciFunction,
    owner: Owner,
    page: Page,
    clients: Clients,
    aperture: Aperture,
    doorbells: Registers,
    interrupts: Interrupts,
    area: Area,
    /// The control window, if there is one: its offset in the aperture, and the memory.
    control: Mutex<Option<(u64, Window)>>,
}

impl PciTransport {
    /// Makes this process a client of the Causeway function that the environment variable
    /// `CAUSEWAY_FUNCTION` names, or of the first function if the variable is not set.
    ///
    /// # Errors
    /// [`OpenPciError::Function`] if the guest has no Causeway function, or if the variable names
    /// none of its functions; otherwise as [`Self::open_function`].
    pub fn open() -> Result<Self, OpenPciError> {
        Self::open_function(PciFunction::find()?)
    }

    /// Takes the first client of `function` that no process holds. Also frees the objects that
    /// ended processes have left on the device.
    ///
    /// # Errors
    /// [`OpenPciError::Function`] if this process cannot use the function, [`OpenPciError::Taken`]
    /// if other processes hold all clients, [`OpenPciError::TooOld`] if the host is too old to
    /// support several clients and control windows.
    pub fn open_function(function: PciFunction) -> Result<Self, OpenPciError> {
        function.enable()?;
        let name = function.name();
        let too_old = |what| OpenPciError::TooOld {
            function: name.clone(),
            what,
        };
        let clients = Clients::open(&function)?;
        if clients.count() < 2 {
            return Err(too_old("cannot be shared by processes"));
        }
        let (page, lock) = clients.take().ok_or_else(|| OpenPciError::Taken {
            function: name.clone(),
            clients: clients.count() - 1,
        })?;
        // What a process that died has left there; and what others have left.
        page.store(Register::Reset, RESET_KEY);
        clients.reap();
        let bytes = u64::from(page.load(Register::ApertureLow))
            | u64::from(page.load(Register::ApertureHigh)) << 32;
        if bytes == 0 || bytes > crate::APERTURE_BYTES_MAX {
            return Err(too_old("has an aperture of an invalid size"));
        }
        let doorbells = function.map_part(
            4,
            doorbells::FIRST,
            doorbells::STRIDE * u64::from(doorbells::COUNT),
        )?;
        let transport = Self {
            aperture: Aperture::new(&function, bytes)?,
            interrupts: Interrupts::find(&function),
            owner: Owner::new(lock),
            page,
            clients,
            doorbells,
            area: Area::new(BATCH_BYTES as usize),
            control: Mutex::default(),
            function,
        };
        if transport.control().is_none() {
            return Err(too_old("has no memory for messages"));
        }
        Ok(transport)
    }

    /// Returns the PCI function through which this transport reaches the device.
    pub const fn function(&self) -> &PciFunction {
        &self.function
    }

    /// Returns the number of the client that this process holds, from 1.
    pub const fn client(&self) -> u32 {
        self.page.number()
    }

    /// Returns how the CPU caches the aperture.
    pub const fn caching(&self) -> Caching {
        self.aperture.caching()
    }

    /// Returns the object through which this process learns of its interrupts.
    pub const fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// Returns all clients of the function, including this process's.
    pub const fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Returns the part of the client's control window that the shim does not use, and the offset
    /// of this part in the aperture. Programs write their records for the test device there.
    /// Returns `None` if there is no control window. A reset of the client may move the window;
    /// call this method again after one.
    pub fn spare_memory(&self) -> Option<(Window, u64)> {
        let (offset, window) = self.control()?;
        let spare = window.part(BATCH_BYTES as usize, RECORD_BYTES as usize);
        Some((spare.ok()?, offset + BATCH_BYTES))
    }

    /// Returns the guest-physical address of the byte at `offset` in the aperture.
    pub const fn aperture_address(&self, offset: u64) -> u64 {
        self.aperture.address() + offset
    }

    /// Returns the control window. Makes and announces it first if there is none.
    fn control(&self) -> Option<(u64, Window)> {
        let mut control = self.control.lock();
        if control.is_none() {
            let low = self.page.load(Register::ControlWindowLow);
            let high = self.page.load(Register::ControlWindowHigh);
            let offset = u64::from(high) << 32 | u64::from(low);
            if offset == NO_CONTROL_WINDOW || !self.aperture.reach(offset, CONTROL_WINDOW_BYTES) {
                return None;
            }
            let window = self.aperture.window();
            let window = window.part(offset as usize, CONTROL_WINDOW_BYTES as usize);
            self.page.store(Register::ControlBaseLow, u32::MAX);
            self.page.store(Register::ControlBaseHigh, u32::MAX);
            *control = Some((offset, window.ok()?));
        }
        *control
    }

    /// Executes the batch in the control area. If the device refuses it because a limit is reached,
    /// frees what ended processes left and executes it once more.
    fn execute(&self, bytes: u32) {
        let area = self.area.window();
        let mut batch = vec![0; (bytes as usize).min(area.bytes())];
        // As long as the area at most.
        let _ = area.read(0, &mut batch);
        let Some((_, window)) = self.control() else {
            return refuse(&area, Status::DeviceLost as u32);
        };
        self.hand_over(&window, &batch);
        let status = Status::from_wire(first_status(&area));
        if status.is_some_and(Status::is_shortage) && self.clients.reap() > 0 {
            self.hand_over(&window, &batch);
        }
    }

    fn hand_over(&self, window: &Window, batch: &[u8]) {
        let mut replies = vec![0; batch.len()];
        // The batch fits the area, which is smaller than the window.
        let _ = window.write(0, batch);
        fence(Ordering::SeqCst);
        self.page
            .store(Register::ControlDoorbell, batch.len() as u32);
        fence(Ordering::SeqCst);
        let _ = window.read(0, &mut replies);
        let _ = self.area.window().write(0, &replies);
    }

    fn is_here(&self) -> bool {
        let here = self.owner.is_here();
        if !here {
            log::error!("{}", Forked(std::process::id()));
        }
        here
    }
}

impl Transport for PciTransport {
    fn read_register(&self, register: Register) -> u32 {
        if self.is_here() {
            self.page.load(register)
        } else {
            u32::MAX
        }
    }

    fn write_register(&self, register: Register, value: u32) {
        match register {
            Register::ControlDoorbell if !self.is_here() => {
                refuse(&self.area.window(), Status::DeviceLost as u32);
            }
            _ if !self.is_here() => {}
            Register::ControlDoorbell => self.execute(value),
            // Batches go to the control window, wherever the shim has its own.
            Register::ControlBaseLow | Register::ControlBaseHigh => {}
            Register::Reset => {
                // The window goes with what the client has.
                *self.control.lock() = None;
                self.page.store(register, value);
            }
            _ => self.page.store(register, value),
        }
    }

    fn control_area(&self) -> ControlArea {
        ControlArea {
            window: self.area.window(),
            // Only this transport knows where batches go.
            address: 0,
        }
    }

    fn aperture(&self) -> Window {
        self.aperture.window()
    }

    fn reach(&self, offset: u64, bytes: u64) -> bool {
        self.aperture.reach(offset, bytes)
    }

    fn sleeping(&self) -> Sleeping {
        match self.interrupts.path() {
            Some(_) => Sleeping::UntilInterrupt,
            None => Sleeping::ByTime,
        }
    }

    fn sleep(&self, limit_ns: u64) -> u64 {
        let begin = Instant::now();
        self.interrupts
            .sleep(&self.page, Duration::from_nanos(limit_ns));
        u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn ring_doorbell(&self, index: u32) {
        let offset = u64::from(index) * doorbells::STRIDE;
        // What was written to write-combining memory must be there before the bell is heard.
        fence(Ordering::SeqCst);
        self.doorbells.store(offset, 1);
    }
}

impl Drop for PciTransport {
    fn drop(&mut self) {
        if self.owner.is_here() {
            self.page.store(Register::Reset, RESET_KEY);
        }
    }
}
