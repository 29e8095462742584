//! The device as this process has opened it: one session, for CUDA and for NVML.

use std::sync::atomic::{AtomicPtr, Ordering};

use causeway_shim_linux::shim::{Device, OpenError, QueryError, Status};
use causeway_shim_linux::{ClientState, LinuxTransport};
use parking_lot::Mutex;

use crate::error::{Answer, Code};
use crate::process::Process;

/// What belongs to one process. A forked child opens the device for itself, and does not touch a
/// lock that a thread of its parent may have held.
struct Slot {
    process: Process,
    session: Mutex<Option<Session>>,
}

/// The open device.
struct Session {
    transport: &'static LinuxTransport,
    device: &'static Device<'static>,
    /// Whether CUDA has objects in it, so that it cannot be opened again.
    is_claimed: bool,
}

/// The slot of the process that last looked for its own. Slots are never freed.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// Why the device has no answer.
pub(crate) enum Unanswered {
    /// It cannot be opened.
    Unopened(Code),
    /// It refused the question.
    Refused(Status),
}

/// Returns the device for CUDA, which keeps it until the process ends.
///
/// # Errors
/// `NO_DEVICE` if there is none, `SYSTEM_DRIVER_MISMATCH` if it speaks another protocol.
pub(crate) fn claim() -> Answer<&'static Device<'static>> {
    let mut slot = slot().lock();
    let session = opened(&mut slot)?;
    if session.device.is_lost() {
        session.reopen()?;
    }
    session.is_claimed = true;
    Ok(session.device)
}

/// Asks the device a question, and opens it before, if need be. If the session was lost without
/// CUDA in this process, another process has caused that: the question is asked once more in a new
/// session.
pub(crate) fn ask<T>(
    question: impl Fn(&Device<'static>) -> Result<T, QueryError>,
) -> Result<T, Unanswered> {
    let mut slot = slot().lock();
    let session = opened(&mut slot).map_err(Unanswered::Unopened)?;
    let refused = |error: QueryError| Unanswered::Refused(error.status());
    match question(session.device) {
        Err(error) if error.status() == Status::DeviceLost && !session.is_claimed => {
            session.reopen().map_err(Unanswered::Unopened)?;
            question(session.device).map_err(refused)
        }
        answer => answer.map_err(refused),
    }
}

/// Returns the processes of this guest that use the device, as clients of one session. Empty where
/// the session is this process's alone.
pub(crate) fn clients() -> Vec<ClientState> {
    match slot().lock().as_ref().map(|session| session.transport) {
        Some(LinuxTransport::Pci(function)) => function.clients().states(),
        _ => Vec::new(),
    }
}

/// Returns the slot of the calling process.
fn slot() -> &'static Mutex<Option<Session>> {
    let found = SLOT.load(Ordering::Acquire);
    // SAFETY: the pointer is null or that of a slot, which is never freed.
    if let Some(slot) = unsafe { found.as_ref() }
        && slot.process.is_current()
    {
        return &slot.session;
    }
    let fresh = Box::leak(Box::new(Slot {
        process: Process::current(),
        session: Mutex::new(None),
    }));
    match SLOT.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => &fresh.session,
        // Another thread was first.
        Err(_) => slot(),
    }
}

/// Returns the open device. Opens it unless this process has done so.
fn opened(slot: &mut Option<Session>) -> Answer<&mut Session> {
    let session = match slot.take() {
        Some(session) => session,
        None => Session::open()?,
    };
    Ok(slot.insert(session))
}

impl Session {
    fn open() -> Answer<Self> {
        let transport = LinuxTransport::find().map_err(|error| {
            log::error!("no Causeway device: {error}");
            Code::NO_DEVICE
        })?;
        let transport: &'static LinuxTransport = Box::leak(Box::new(transport));
        Ok(Self {
            transport,
            device: open(transport)?,
            is_claimed: false,
        })
    }

    /// Begins a new session on a device whose session is lost.
    fn reopen(&mut self) -> Answer {
        Device::reset(self.transport);
        self.device = open(self.transport)?;
        Ok(())
    }
}

fn open(transport: &'static LinuxTransport) -> Answer<&'static Device<'static>> {
    let device = Device::open(transport).map_err(|error| {
        log::error!("cannot open the Causeway device: {error}");
        match error {
            OpenError::Version { .. } => Code::SYSTEM_DRIVER_MISMATCH,
            _ => Code::NO_DEVICE,
        }
    })?;
    Ok(Box::leak(Box::new(device)))
}
