//! Whether the library is initialized, and what every call does first (NVML API Reference,
//! "Initialization and Cleanup").

use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_shim_linux::shim::{GpuNumbers, Status};

use crate::boundary::Out;
use crate::device::{self, Facts};
use crate::session::{self, Unanswered};

use super::code::{Answer, Code};
use super::usage;

/// `NVML_INIT_FLAG_NO_GPUS`: succeed without a device.
const WITHOUT_DEVICE: u32 = 1;
/// `NVML_INIT_FLAG_NO_ATTACH`: do not attach devices. The device is not attached by a call.
const WITHOUT_ATTACHING: u32 = 2;

/// How often the library was initialized and not shut down. No lock: a forked child could find it
/// held.
static INITIALIZATIONS: AtomicU32 = AtomicU32::new(0);
/// The devices, once they were found.
static DEVICES: OnceLock<Vec<Monitored>> = OnceLock::new();

/// A device as monitors see it.
pub(super) struct Monitored {
    /// Its place among all devices, which no environment changes.
    pub(super) index: usize,
    facts: Facts,
    /// What the host calls it and its peers.
    pub(super) gpus: GpuNumbers,
}

impl Deref for Monitored {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

/// Answers a call that needs nothing.
pub(super) fn answer(call: impl FnOnce() -> Answer) -> u32 {
    match std::panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => {
            log::error!("a call of NVML has panicked: this is a fault of libcuda");
            Code::UNKNOWN.0
        }
    }
}

/// Answers a call that needs the library initialized.
pub(super) fn initialized(call: impl FnOnce() -> Answer) -> u32 {
    answer(|| match INITIALIZATIONS.load(Ordering::Acquire) {
        0 => Err(Code::UNINITIALIZED),
        _ => call(),
    })
}

/// Answers a call that needs the devices. Without one, no argument can name it.
pub(super) fn call(call: impl FnOnce(&'static [Monitored]) -> Answer) -> u32 {
    initialized(|| match devices() {
        [] => Err(Code::INVALID_ARGUMENT),
        devices => call(devices),
    })
}

/// Returns all devices.
pub(super) fn devices() -> &'static [Monitored] {
    DEVICES.get().map_or(&[], |devices| devices)
}

/// Returns the result of a call for which the device has no answer.
pub(super) fn code_of(unanswered: &Unanswered) -> Code {
    match unanswered {
        Unanswered::Unopened | Unanswered::Refused(Status::DeviceLost) => Code::GPU_IS_LOST,
        // The host is older than the question.
        Unanswered::Refused(Status::BadOpcode) => Code::NOT_SUPPORTED,
        Unanswered::Refused(_) => Code::UNKNOWN,
    }
}

fn initialize(flags: u32) -> u32 {
    crate::start_log();
    answer(|| {
        if flags & !(WITHOUT_DEVICE | WITHOUT_ATTACHING) != 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        if INITIALIZATIONS.load(Ordering::Acquire) == 0 {
            match find_devices() {
                Err(Code::DRIVER_NOT_LOADED) if flags & WITHOUT_DEVICE != 0 => {}
                found => found?,
            }
        }
        change(|count| Some(count.saturating_add(1)))
    })
}

/// Asks the devices what they are, and begins to measure how busy they are. What they said first is
/// kept.
fn find_devices() -> Answer {
    let count = match session::count() {
        Ok(count) => count,
        Err(crate::error::Code::SYSTEM_DRIVER_MISMATCH) => {
            return Err(Code::LIB_RM_VERSION_MISMATCH);
        }
        Err(_) => return Err(Code::DRIVER_NOT_LOADED),
    };
    let found: Vec<Monitored> = (0..count).map(find_device).collect::<Answer<_>>()?;
    DEVICES.get_or_init(|| found);
    (0..count).for_each(usage::begin);
    Ok(())
}

/// Asks a device what it is.
fn find_device(index: usize) -> Answer<Monitored> {
    let asked = session::ask(index, |device| {
        let attributes = device.attributes()?;
        Ok((device::query(device, &attributes), session::numbers(device)))
    });
    match asked {
        Ok((facts, gpus)) => Ok(Monitored {
            index,
            facts: facts.map_err(|_| Code::GPU_IS_LOST)?,
            gpus,
        }),
        Err(Unanswered::Unopened) => Err(Code::DRIVER_NOT_LOADED),
        Err(unanswered) => Err(code_of(&unanswered)),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> u32 {
    initialize(0)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> u32 {
    initialize(0)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(flags: u32) -> u32 {
    initialize(flags)
}

/// The device stays open for what comes later in the process.
#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> u32 {
    answer(|| change(|count| count.checked_sub(1)))
}

/// Changes the count. `None` says that the library is not initialized.
fn change(next: impl Fn(u32) -> Option<u32>) -> Answer {
    let changed = INITIALIZATIONS.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    changed.map(drop).map_err(|_| Code::UNINITIALIZED)
}

/// Puts a text with its NUL where a caller has `room` bytes.
pub(super) fn put_text(into: Out<u8>, room: u32, text: &str) -> Answer {
    if into.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    if text.len() >= room as usize {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    into.set_text(text, room as usize)?;
    Ok(())
}
