//! The devices as this process has opened them: one session on each, for CUDA and for NVML.

use std::sync::atomic::{AtomicPtr, Ordering};

use causeway_protocol::message::{GPUS_MAX, UNKNOWN_RANK};
use causeway_shim_linux::shim::{Device, GpuNumbers, OpenError, QueryError, Status};
use causeway_shim_linux::{ClientState, LinuxTransport};
use parking_lot::Mutex;

use crate::error::{Answer, Code};
use crate::process::Process;

/// What belongs to one process. A forked child opens the device for itself, and does not touch a
/// lock that a thread of its parent may have held.
struct Slot {
    process: Process,
    /// All devices, once they were opened.
    sessions: Mutex<Vec<Session>>,
}

/// An open device.
struct Session {
    transport: &'static LinuxTransport,
    device: &'static Device<'static>,
    /// Whether CUDA has objects in it, so that it cannot be opened again.
    is_claimed: bool,
}

/// A device that CUDA keeps until the process ends.
#[derive(Clone, Copy)]
pub(crate) struct Claimed {
    pub(crate) device: &'static Device<'static>,
    /// What the host calls it and its peers.
    pub(crate) gpus: GpuNumbers,
}

/// The slot of the process that last looked for its own. Slots are never freed.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// Why the device has no answer.
pub(crate) enum Unanswered {
    /// It cannot be opened.
    Unopened,
    /// It refused the question.
    Refused(Status),
}

/// Returns the number of devices. Opens them, if need be.
///
/// # Errors
/// As for [`claim`].
pub(crate) fn count() -> Answer<usize> {
    let mut slot = slot().lock();
    opened(&mut slot).map(|sessions| sessions.len())
}

/// Returns a device for CUDA, which keeps it until the process ends.
///
/// # Errors
/// `NO_DEVICE` if there is none, `SYSTEM_DRIVER_MISMATCH` if it speaks another protocol.
pub(crate) fn claim(index: usize) -> Answer<Claimed> {
    let mut slot = slot().lock();
    let sessions = opened(&mut slot)?;
    let session = sessions.get_mut(index).ok_or(Code::NO_DEVICE)?;
    if session.device.is_lost() {
        session.reopen()?;
    }
    session.is_claimed = true;
    Ok(Claimed {
        device: session.device,
        gpus: numbers(session.device),
    })
}

/// Asks a device a question, and opens all before, if need be. If the session was lost without
/// CUDA in this process, another process has caused that: the question is asked once more in a new
/// session.
pub(crate) fn ask<T>(
    index: usize,
    question: impl Fn(&Device<'static>) -> Result<T, QueryError>,
) -> Result<T, Unanswered> {
    let mut slot = slot().lock();
    let sessions = opened(&mut slot).map_err(|_| Unanswered::Unopened)?;
    let session = sessions.get_mut(index).ok_or(Unanswered::Unopened)?;
    let refused = |error: QueryError| Unanswered::Refused(error.status());
    match question(session.device) {
        Err(error) if error.status() == Status::DeviceLost && !session.is_claimed => {
            session.reopen().map_err(|_| Unanswered::Unopened)?;
            question(session.device).map_err(refused)
        }
        answer => answer.map_err(refused),
    }
}

/// Returns the processes of this guest that use a device, as clients of one session. Empty where
/// the session is this process's alone.
pub(crate) fn clients(index: usize) -> Vec<ClientState> {
    match slot().lock().get(index).map(|session| session.transport) {
        Some(LinuxTransport::Pci(function)) => function.clients().states(),
        _ => Vec::new(),
    }
}

/// Returns the slot of the calling process.
fn slot() -> &'static Mutex<Vec<Session>> {
    let found = SLOT.load(Ordering::Acquire);
    // SAFETY: the pointer is null or that of a slot, which is never freed.
    if let Some(slot) = unsafe { found.as_ref() }
        && slot.process.is_current()
    {
        return &slot.sessions;
    }
    let fresh = Box::leak(Box::new(Slot {
        process: Process::current(),
        sessions: Mutex::default(),
    }));
    match SLOT.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => &fresh.sessions,
        // Another thread was first.
        Err(_) => slot(),
    }
}

/// Returns the open devices, of which there is at least one. Opens them unless this process has
/// done so.
fn opened(slot: &mut Vec<Session>) -> Answer<&mut Vec<Session>> {
    if slot.is_empty() {
        let first = Session::open()?;
        let further = further(&first);
        slot.push(first);
        slot.extend(further);
    }
    Ok(slot)
}

/// Opens the devices beside the first. One that cannot be opened hides itself and all behind it, so
/// that the others keep their numbers.
fn further(first: &Session) -> Vec<Session> {
    let gpus = numbers(first.device).gpus;
    let mut opened = Vec::new();
    for number in 1..gpus {
        let session = match first.transport.beside(number) {
            Ok(Some(transport)) => Session::on(transport),
            Ok(None) => break,
            Err(error) => {
                log::error!("the program sees {number} of the devices: no other opens: {error}");
                break;
            }
        };
        match session {
            Ok(session) => opened.push(session),
            Err(_) => break,
        }
    }
    opened
}

/// Returns what the host calls a device and its peers. A host that does not know the question has
/// one.
pub(crate) fn numbers(device: &Device<'static>) -> GpuNumbers {
    let alone = GpuNumbers {
        gpu: 0,
        gpus: 1,
        peers: 0,
        copies: 0,
        atomics: 0,
        ranks: [UNKNOWN_RANK; GPUS_MAX as usize],
    };
    device.query_gpus().unwrap_or(alone)
}

impl Session {
    fn open() -> Answer<Self> {
        let transport = LinuxTransport::find().map_err(|error| {
            log::error!("no Causeway device: {error}");
            Code::NO_DEVICE
        })?;
        Self::on(transport)
    }

    fn on(transport: LinuxTransport) -> Answer<Self> {
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
