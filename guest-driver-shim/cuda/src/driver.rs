//! The one driver of a process, and what every call does first.

use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_shim_linux::shim::{AddressSpace, Attributes, Device};
use parking_lot::Mutex;

use crate::boundary::{Out, Text};
use crate::capture::Captures;
use crate::context::{self, Context, Contexts};
use crate::device::{self, Facts};
use crate::error::{self, Answer, Code};
use crate::event::Events;
use crate::graph::{Conditions, Graphs};
use crate::host_function;
use crate::memory::{FutureStorage, Memory};
use crate::module::Modules;
use crate::output::Output;
use crate::priority::Priorities;
use crate::process::Process;
use crate::rings::Rings;
use crate::session;
use crate::stream::{self, Streams};
use crate::user_object::UserObjects;

/// Everything that a process has of CUDA. It stays until the process ends.
pub(crate) struct Driver {
    /// The process that called `cuInit`. A forked child has no driver, as with NVIDIA's.
    process: Process,
    pub(crate) device: &'static Device<'static>,
    pub(crate) attributes: Attributes,
    /// Features of the session that the library uses.
    features: u64,
    /// The priorities of streams.
    pub(crate) priorities: Priorities,
    /// What identifies the device, and its CUDA device attributes.
    pub(crate) facts: Facts,
    /// All contexts of the process share one address space, so that they can share memory as CUDA
    /// allows within a device.
    pub(crate) space: &'static AddressSpace<'static>,
    pub(crate) rings: Rings,
    /// Where text of kernels goes.
    pub(crate) output: Output,
    pub(crate) contexts: Mutex<Contexts>,
    pub(crate) streams: Mutex<Streams>,
    pub(crate) memory: Memory,
    pub(crate) modules: Modules,
    pub(crate) captures: Captures,
    pub(crate) events: Events,
    pub(crate) graphs: Mutex<Graphs>,
    pub(crate) conditions: Conditions,
    pub(crate) user_objects: UserObjects,
    /// The error that ended this process's use of CUDA; 0 while there is none.
    sticky: AtomicU32,
}

static DRIVER: OnceLock<Answer<Driver>> = OnceLock::new();

/// Answers a call that needs no driver.
pub(crate) fn answer(call: impl FnOnce() -> Answer) -> u32 {
    match std::panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => {
            log::error!("a call of the CUDA driver API has panicked: this is a fault of libcuda");
            Code::UNKNOWN.0
        }
    }
}

/// Answers a call that needs an initialized driver, but no context.
pub(crate) fn call(call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    answer(|| call(Driver::get()?))
}

/// Answers a call that works on the current context, which no fault has ended.
pub(crate) fn call_in_context(call: impl FnOnce(&'static Driver, &Context) -> Answer) -> u32 {
    answer(|| {
        let driver = Driver::get()?;
        context::with_current(driver, |context| {
            let context = context?;
            driver.check_sticky()?;
            call(driver, context)
        })
    })
}

/// Answers a call about a stream. Where no context is current, it works in the stream's: only the
/// default streams are those of the current context.
pub(crate) fn call_in_stream(
    stream: usize,
    call: impl FnOnce(&'static Driver, &Context) -> Answer,
) -> u32 {
    answer(|| {
        let driver = Driver::get()?;
        context::with_current(driver, |current| {
            let of_stream;
            let context = match current {
                Err(Code::INVALID_CONTEXT) => {
                    of_stream = stream::context_of(driver, stream)?;
                    &of_stream
                }
                current => current?,
            };
            driver.check_sticky()?;
            call(driver, context)
        })
    })
}

/// Answers a call that needs no context, but fails once a fault has ended them all.
pub(crate) fn call_unless_faulted(call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    answer(|| {
        let driver = Driver::get()?;
        host_function::refuse_within()?;
        driver.check_sticky()?;
        call(driver)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> u32 {
    crate::logging::start();
    answer(|| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        DRIVER
            .get_or_init(Driver::start)
            .as_ref()
            .map_err(|code| *code)?;
        Driver::get().map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: u32, name: Out<Text>) -> u32 {
    error::put_name(code, name)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: u32, text: Out<Text>) -> u32 {
    error::put_text(code, text)
}

impl Driver {
    /// Returns the driver, if `cuInit` has succeeded in this process.
    pub(crate) fn get() -> Answer<&'static Self> {
        match DRIVER.get() {
            Some(Ok(driver)) if driver.process.is_current() => Ok(driver),
            _ => Err(Code::NOT_INITIALIZED),
        }
    }

    fn start() -> Answer<Self> {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let visible = visible.map_or(Visible::Yes, |list| Visible::of(&list));
        if visible == Visible::No {
            return Err(Code::NO_DEVICE);
        }
        let device = session::claim()?;
        let storage = FutureStorage::start();
        let unavailable = |error: &dyn std::fmt::Display| {
            log::error!("cannot use the Causeway device: {error}");
            Code::DEVICE_UNAVAILABLE
        };
        let attributes = device.attributes().map_err(|e| unavailable(&e))?;
        let facts = device::query(device, &attributes)?;
        if let Visible::Uuid(prefix) = visible
            && !device::uuid_text(facts.uuid()).starts_with(&prefix)
        {
            return Err(Code::NO_DEVICE);
        }
        let space = device.create_space().map_err(|e| unavailable(&e))?;
        let space: &'static AddressSpace<'static> = Box::leak(Box::new(space));
        let rings = Rings::new(device, space)?;
        let features = device.features() & !unused_features();
        Ok(Self {
            process: Process::current(),
            device,
            features,
            priorities: Priorities::of(device, features),
            memory: Memory::new(device, space, &attributes, storage)?,
            attributes,
            facts,
            space,
            rings,
            output: Output::default(),
            contexts: Mutex::default(),
            streams: Mutex::default(),
            modules: Modules::default(),
            captures: Captures::default(),
            events: Events::default(),
            graphs: Mutex::default(),
            conditions: Conditions::default(),
            user_objects: UserObjects::default(),
            sticky: AtomicU32::new(0),
        })
    }

    /// Returns whether the session has a feature
    /// ([`features`](causeway_protocol::registers::features)).
    pub(crate) const fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Returns the error that all calls answer after a fault.
    pub(crate) fn check_sticky(&self) -> Answer {
        match self.sticky.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    /// Ends the process's use of CUDA with `code`, because a kernel or other work has faulted.
    /// Returns the code with which it ended first.
    pub(crate) fn fail(&self, code: Code) -> Code {
        let first = self
            .sticky
            .compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Acquire);
        Code(first.err().unwrap_or(code.0))
    }
}

/// Returns the features that the library is told not to use, so that it does what it does with an
/// older host: a hexadecimal number in `CAUSEWAY_CUDA_UNUSED_FEATURES`.
fn unused_features() -> u64 {
    let given = std::env::var("CAUSEWAY_CUDA_UNUSED_FEATURES").ok();
    given.map_or(0, |text| {
        u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_else(|_| {
            log::error!(
                "invalid value {text} for CAUSEWAY_CUDA_UNUSED_FEATURES: give a hexadecimal \
                 number, such as 0x400; the library uses all features"
            );
            0
        })
    })
}

/// Whether `CUDA_VISIBLE_DEVICES` shows the one device (CUDA C++ Programming Guide, "CUDA
/// Environment Variables").
#[derive(Debug, PartialEq, Eq)]
enum Visible {
    Yes,
    No,
    /// If its UUID, as text in lower case, begins like this.
    Uuid(String),
}

impl Visible {
    /// Returns what the value `list` says. Its first entry is the device's number, or begins as the
    /// device's UUID does; another entry hides the device, and all behind it.
    fn of(list: &str) -> Self {
        let first = list.split(',').next().unwrap_or_default().trim();
        match first.strip_prefix("GPU-") {
            Some(prefix) => Self::Uuid(format!("GPU-{}", prefix.to_ascii_lowercase())),
            None if first.parse() == Ok(0_u32) => Self::Yes,
            None => Self::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_the_device_hides_it() {
        for shown in ["0", "0,1", " 0 "] {
            assert_eq!(Visible::of(shown), Visible::Yes, "{shown}");
        }
        for hidden in ["", "-1", "1,0", "none", "MIG-1", "gpu-12"] {
            assert_eq!(Visible::of(hidden), Visible::No, "{hidden}");
        }
        for given in ["GPU-1234ab", " GPU-1234AB,0"] {
            assert_eq!(Visible::of(given), Visible::Uuid("GPU-1234ab".into()));
        }
    }
}
