//! The drivers of a process, one for each device, and what every call does first.
//!
//! What a call works on decides which driver it gets: a device that it names, the device of the
//! current context, or that of a stream, an event or an address
//! (`docs/decisions/0034-devices-of-cuda-programs.md`).

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_shim_linux::shim::{AddressSpace, Attributes, Device, GpuNumbers};
use parking_lot::Mutex;

use crate::array::Arrays;
use crate::boundary::{Out, Text};
use crate::capture::Captures;
use crate::context::{self, Context, Contexts};
use crate::device::{self, Facts};
use crate::error::{self, Answer, Code};
use crate::event::Events;
use crate::graph::{Conditions, Graphs};
use crate::handles;
use crate::host_function;
use crate::memory::{FutureStorage, Memory};
use crate::module::Modules;
use crate::output::Output;
use crate::priority::Priorities;
use crate::process::Process;
use crate::rings::Rings;
use crate::session::{self, Claimed};
use crate::stream::{self, Streams};
use crate::user_object::UserObjects;
use crate::visible;

/// Everything that a process has of CUDA on one device. It stays until the process ends.
pub(crate) struct Driver {
    /// The number of the device, as the program sees it.
    pub(crate) ordinal: usize,
    /// Its place among all devices.
    pub(crate) index: usize,
    /// What the host calls the device and its peers.
    pub(crate) gpus: GpuNumbers,
    /// Addresses of memory that the program allocates on this device, and on no other; `None` if
    /// this is the one device.
    pub(crate) window: Option<Range<u64>>,
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
    pub(crate) arrays: Arrays,
    pub(crate) modules: Modules,
    pub(crate) captures: Captures,
    pub(crate) events: Events,
    pub(crate) graphs: Mutex<Graphs>,
    pub(crate) conditions: Conditions,
    pub(crate) user_objects: UserObjects,
    /// The error that ended this process's use of the device; 0 while there is none.
    sticky: AtomicU32,
}

static DRIVERS: OnceLock<Answer<Drivers>> = OnceLock::new();

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

/// Answers a call that needs an initialized driver, but no context. It gets the driver of the
/// current context, or else the first.
pub(crate) fn call(call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    answer(|| call(Driver::current()?))
}

/// Answers a call about the device with number `ordinal`.
pub(crate) fn call_on(ordinal: i32, call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    answer(|| call(Driver::of_device(ordinal)?))
}

/// Answers a call about the device with number `ordinal`, which fails once a fault has ended it.
pub(crate) fn call_on_unless_faulted(
    ordinal: i32,
    call: impl FnOnce(&'static Driver) -> Answer,
) -> u32 {
    answer(|| {
        let first = Driver::current()?;
        host_function::refuse_within()?;
        let driver = Driver::of_device(ordinal);
        // A number that no device has is told after a fault.
        driver.as_ref().copied().unwrap_or(first).check_sticky()?;
        call(driver?)
    })
}

/// Answers a call that works on the current context, which no fault has ended.
pub(crate) fn call_in_context(call: impl FnOnce(&'static Driver, &Context) -> Answer) -> u32 {
    answer(|| {
        let driver = Driver::get()?;
        context::with_current(driver, |context| {
            let context = context?;
            let driver = context.driver;
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
                    of_stream = stream::context_of(driver.owner_of(stream), stream)?;
                    &of_stream
                }
                current => current?,
            };
            let driver = context.driver;
            driver.check_sticky()?;
            call(driver, context)
        })
    })
}

/// Answers a call that works on a stream of whatever device, in the current context or, if the
/// stream is of another device, in its own.
pub(crate) fn call_with_stream(
    stream: usize,
    call: impl FnOnce(&'static Driver, &Context) -> Answer,
) -> u32 {
    call_in_stream(stream, |driver, context| {
        in_owner(driver, context, stream, call)
    })
}

/// As [`call_with_stream`], but a context has to be current.
pub(crate) fn call_with_current_stream(
    stream: usize,
    call: impl FnOnce(&'static Driver, &Context) -> Answer,
) -> u32 {
    call_in_context(|driver, context| in_owner(driver, context, stream, call))
}

/// Calls `call` with the current context, or with that of a stream of another device.
fn in_owner(
    driver: &'static Driver,
    context: &Context,
    stream: usize,
    call: impl FnOnce(&'static Driver, &Context) -> Answer,
) -> Answer {
    let owner = driver.owner_of(stream);
    if std::ptr::eq(owner, driver) {
        return call(driver, context);
    }
    let of_stream = stream::context_of(owner, stream).map_err(|_| Code::INVALID_HANDLE)?;
    owner.check_sticky()?;
    call(owner, &of_stream)
}

/// Answers a call that needs a context, about an object of whatever device that `handle` names: it
/// gets that device's driver.
pub(crate) fn call_about(handle: usize, call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    call_in_context(|driver, _| {
        let owner = driver.owner_of(handle);
        owner.check_sticky()?;
        call(owner)
    })
}

/// Answers a call that needs no context, about an object of whatever device that `handle` names: it
/// gets that device's driver. It fails once a fault has ended that one.
pub(crate) fn call_of(handle: usize, call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    answer(|| {
        let driver = Driver::current()?.owner_of(handle);
        host_function::refuse_within()?;
        driver.check_sticky()?;
        call(driver)
    })
}

/// Answers a call about memory of whatever device: it gets the driver of the device whose memory is
/// at `address`, or else that of the current context. It fails once a fault has ended that one.
pub(crate) fn call_at(address: u64, call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    answer(|| {
        let driver = Driver::current()?.owner_at(address);
        host_function::refuse_within()?;
        driver.check_sticky()?;
        call(driver)
    })
}

/// Answers a call that needs no context, but fails once a fault has ended them all.
pub(crate) fn call_unless_faulted(call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    answer(|| {
        let driver = Driver::current()?;
        host_function::refuse_within()?;
        driver.check_sticky()?;
        call(driver)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> u32 {
    crate::start_log();
    answer(|| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        DRIVERS
            .get_or_init(Drivers::start)
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

/// The drivers of a process.
struct Drivers {
    /// The process that called `cuInit`. A forked child has no driver, as with NVIDIA's.
    process: Process,
    all: Vec<&'static Driver>,
}

impl Drivers {
    /// Prepares the devices that the program shall see.
    fn start() -> Answer<Self> {
        let wanted = std::env::var(visible::VARIABLE).ok();
        if wanted.as_deref().is_some_and(visible::shows_nothing) {
            return Err(Code::NO_DEVICE);
        }
        let storages: Vec<FutureStorage> = (0..session::count()?)
            .map(|_| FutureStorage::start())
            .collect();
        let count = storages.len();
        let found: Vec<Found> = (0..count).map(Found::look).collect::<Answer<_>>()?;
        let uuids: Vec<String> = found.iter().map(Found::uuid).collect();
        let shown = match wanted {
            Some(list) => visible::of(&list, &uuids),
            None => (0..count).collect(),
        };
        let ranges: Vec<Range<u64>> = found.iter().map(Found::addresses).collect();
        let windows = windows(&ranges);
        let mut storages = storages.into_iter();
        let mut all = Vec::new();
        for (ordinal, index) in shown.into_iter().enumerate() {
            let window = windows.get(index).cloned().flatten();
            let Some(storage) = storages.next() else {
                break;
            };
            if count > 1 && window.is_none() {
                log::error!("the program sees {ordinal} devices: others have the same addresses");
                break;
            }
            let driver = found[index].driver(ordinal, window, storage)?;
            all.push(&*Box::leak(Box::new(driver)));
        }
        match all.is_empty() {
            true => Err(Code::NO_DEVICE),
            false => Ok(Self {
                process: Process::current(),
                all,
            }),
        }
    }
}

/// A device before the program sees it.
struct Found {
    index: usize,
    claimed: Claimed,
    attributes: Attributes,
    facts: Facts,
}

impl Found {
    fn look(index: usize) -> Answer<Self> {
        let claimed = session::claim(index)?;
        let attributes = claimed.device.attributes().map_err(|e| unavailable(&e))?;
        Ok(Self {
            facts: device::query(claimed.device, &attributes)?,
            index,
            attributes,
            claimed,
        })
    }

    fn uuid(&self) -> String {
        device::uuid_text(self.facts.uuid())
    }

    fn addresses(&self) -> Range<u64> {
        let start = self.attributes.va_base;
        start..start.saturating_add(self.attributes.va_bytes)
    }

    /// Prepares the device for the program. Memory that the program allocates has addresses in
    /// `window`, if there is one.
    fn driver(
        &self,
        ordinal: usize,
        window: Option<Range<u64>>,
        storage: FutureStorage,
    ) -> Answer<Driver> {
        let Claimed { device, gpus } = self.claimed;
        let space = device.create_space().map_err(|e| unavailable(&e))?;
        let space: &'static AddressSpace<'static> = Box::leak(Box::new(space));
        let rings = Rings::new(device, space, ordinal)?;
        let features = device.features() & !unused_features();
        Ok(Driver {
            ordinal,
            index: self.index,
            gpus,
            device,
            features,
            priorities: Priorities::of(device, features),
            window: window.clone(),
            memory: Memory::new(
                (device, space),
                ordinal << ORDINAL_SHIFT,
                &self.attributes,
                window,
                storage,
            )?,
            attributes: self.attributes,
            facts: self.facts.clone(),
            space,
            rings,
            output: Output::default(),
            contexts: Mutex::default(),
            streams: Mutex::default(),
            arrays: Arrays::default(),
            modules: Modules::new(ordinal << ORDINAL_SHIFT),
            captures: Captures::default(),
            events: Events::default(),
            graphs: Mutex::default(),
            conditions: Conditions::default(),
            user_objects: UserObjects::default(),
            sticky: AtomicU32::new(0),
        })
    }
}

fn unavailable(error: &dyn std::fmt::Display) -> Code {
    log::error!("cannot use the Causeway device: {error}");
    Code::DEVICE_UNAVAILABLE
}

/// Bit from which on a handle has the number of its device.
const ORDINAL_SHIFT: u32 = 48;

impl Driver {
    /// Returns the first driver, if `cuInit` has succeeded in this process.
    #[inline]
    pub(crate) fn get() -> Answer<&'static Self> {
        match DRIVERS.get() {
            Some(Ok(drivers)) if drivers.process.is_current() => Ok(drivers.all[0]),
            _ => Err(Code::NOT_INITIALIZED),
        }
    }

    /// Returns the driver of the current context, or the first if no context is current.
    pub(crate) fn current() -> Answer<&'static Self> {
        let first = Self::get()?;
        Ok(context::current_driver().unwrap_or(first))
    }

    /// Returns all drivers, in the order of the numbers of their devices; none before `cuInit`.
    pub(crate) fn all() -> &'static [&'static Self] {
        match DRIVERS.get() {
            Some(Ok(drivers)) => &drivers.all,
            _ => &[],
        }
    }

    /// Returns the driver of the device with number `ordinal`.
    pub(crate) fn of_device(ordinal: i32) -> Answer<&'static Self> {
        Self::get()?;
        let found = usize::try_from(ordinal).ok();
        let found = found.and_then(|ordinal| Self::all().get(ordinal).copied());
        found.ok_or(Code::INVALID_DEVICE)
    }

    /// Returns the bits by which handles of objects of this device tell it.
    #[inline]
    pub(crate) const fn handle_bits(&self) -> usize {
        self.ordinal << ORDINAL_SHIFT
    }

    /// Returns a handle that no object has had, of whatever kind. It tells the device.
    pub(crate) fn fresh_handle(&self) -> usize {
        handles::fresh() | self.handle_bits()
    }

    /// Returns whether a handle tells this device.
    #[inline]
    pub(crate) const fn owns(&self, handle: usize) -> bool {
        handle >> ORDINAL_SHIFT == self.ordinal
    }

    /// Returns the same driver for as long as the process lasts, once `cuInit` has succeeded.
    pub(crate) fn lasting(&self) -> Answer<&'static Self> {
        let found = Self::all().get(self.ordinal).copied();
        found.ok_or(Code::NOT_INITIALIZED)
    }

    /// Returns the driver whose device a handle tells. Handles of default
    /// streams, which tell none, are this one's.
    pub(crate) fn owner_of(&'static self, handle: usize) -> &'static Self {
        match handle {
            ..=stream::PER_THREAD => self,
            handle => {
                let ordinal = handle >> ORDINAL_SHIFT;
                Self::all().get(ordinal).copied().unwrap_or(self)
            }
        }
    }

    /// Returns the driver of the device whose memory is at an address; this one if it is that of
    /// none.
    pub(crate) fn owner_at(&'static self, address: u64) -> &'static Self {
        self.other_at(address).unwrap_or(self)
    }

    /// Returns the driver of another device whose memory is at an address, which is not of this
    /// one's.
    pub(crate) fn other_at(&self, address: u64) -> Option<&'static Self> {
        let all = Self::all();
        if all.len() < 2 || self.memory.has(address) {
            return None;
        }
        let mut others = all.iter().filter(|other| other.ordinal != self.ordinal);
        others.find(|other| other.memory.has(address)).copied()
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

    /// Ends the process's use of the device with `code`, because a kernel or other work has
    /// faulted. Returns the code with which it ended first.
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

/// Returns a range of addresses for the memory of each device, of which no two overlap, from those
/// that each device has. What the device places by itself lies below, and reservations of programs
/// lie in the upper half. One device alone needs none.
fn windows(ranges: &[Range<u64>]) -> Vec<Option<Range<u64>>> {
    if ranges.len() < 2 {
        return vec![None; ranges.len()];
    }
    let mut chosen: Vec<Option<Range<u64>>> = Vec::new();
    for range in ranges {
        let bytes = (range.end - range.start) / 2 / (ranges.len() as u64 + 1);
        let mut places = (1..=ranges.len() as u64).map(|place| {
            let start = range.start + place * bytes;
            start..start + bytes
        });
        let is_free = |place: &Range<u64>| {
            let mut others = chosen.iter().flatten();
            others.all(|other| place.end <= other.start || other.end <= place.start)
        };
        let free = places.find(is_free);
        chosen.push(free);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_addresses_of_their_own() {
        assert_eq!(windows(std::slice::from_ref(&(0x1000..0x9000))), [None]);
        let same = windows(&[0..0x1000, 0..0x1000, 0..0x1000]);
        let wanted = [0x200..0x400, 0x400..0x600, 0x600..0x800];
        assert_eq!(same, wanted.map(Some));
        let apart = windows(&[0..0x1200, 0x8000..0x9200]);
        assert_eq!(apart, [Some(0x300..0x600), Some(0x8300..0x8600)]);
        let no_room = windows(&[0..0x1200, 0x300..0x5ff]);
        assert_eq!(no_room, [Some(0x300..0x600), None]);
    }
}
