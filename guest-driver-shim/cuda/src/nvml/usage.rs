//! Memory in use, and how busy the device is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use causeway_shim_linux::shim::BusyTime;
use parking_lot::Mutex;

use crate::boundary::Out;
use crate::session::{self, Unanswered};

use super::code::{Answer, Code};
use super::handle::{Handle, device_call};
use super::library::code_of;

/// Shortest time over which a share is computed: NVML documents 1/6 s to 1 s.
const PERIOD: Duration = Duration::from_micros(166_667);

/// Version word of the second structure: its size, and 2 in the upper byte.
const MEMORY_V2: u32 = 2 << 24 | size_of::<MemoryV2>() as u32;

#[derive(Clone, Copy)]
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct MemoryV2 {
    version: u32,
    _padding: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// What was measured so far.
struct Measured {
    /// Number of the session.
    session: u64,
    since: BusyTime,
    /// Share of the last period, in percent.
    share: Option<u32>,
}

/// By the place of the device.
static MEASURED: Mutex<BTreeMap<usize, Measured>> = Mutex::new(BTreeMap::new());

/// Asks how much memory there is and how much of it is in use, by all processes of this guest.
fn memory(index: usize) -> Answer<Memory> {
    let attributes = session::ask(index, |device| device.attributes()).map_err(|e| code_of(&e))?;
    let (total, used) = (attributes.memory_bytes, attributes.memory_used_bytes);
    Ok(Memory {
        total,
        free: total.saturating_sub(used),
        used,
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(device: Handle, info: Out<Memory>) -> u32 {
    device_call(device, |device| match info.is_null() {
        true => Err(Code::INVALID_ARGUMENT),
        false => Ok(info.set(memory(device.index)?)?),
    })
}

/// Nothing is reserved: the total is what the guest can use.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, info: Out<MemoryV2>) -> u32 {
    device_call(device, |device| {
        let version = Out::<u32>::at(info.address_of(0)?).get()?;
        if version != MEMORY_V2 {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let Memory { total, free, used } = memory(device.index)?;
        Ok(info.set(MemoryV2 {
            version,
            _padding: 0,
            total,
            reserved: 0,
            free,
            used,
        })?)
    })
}

/// Begins to measure, unless that was begun before. An old host cannot tell: nothing is measured.
pub(super) fn begin(index: usize) {
    let Ok(first) = ask(index) else {
        return;
    };
    let mut measured = MEASURED.lock();
    measured
        .entry(index)
        .or_insert_with(|| Measured::since(first));
}

/// Asks how long a device was busy. Returns the number of the session, too.
fn ask(index: usize) -> Result<(u64, BusyTime), Unanswered> {
    session::ask(index, |device| Ok((device.session(), device.query_busy()?)))
}

impl Measured {
    fn since((session, since): (u64, BusyTime)) -> Self {
        Self {
            session,
            since,
            share: None,
        }
    }

    /// Takes a reply of the device. Returns the share of the last whole period in percent, or how
    /// much is missing of the first.
    fn take(&mut self, (session, now): (u64, BusyTime)) -> Result<u32, Duration> {
        let passed_ns = now.clock_ns.checked_sub(self.since.clock_ns);
        let busy_ns = now.busy_ns.checked_sub(self.since.busy_ns);
        let (Some(passed_ns), Some(busy_ns), true) = (passed_ns, busy_ns, session == self.session)
        else {
            *self = Self::since((session, now));
            return Err(PERIOD);
        };
        let missing = PERIOD.saturating_sub(Duration::from_nanos(passed_ns));
        match self.share {
            Some(share) if !missing.is_zero() => Ok(share),
            None if !missing.is_zero() => Err(missing),
            _ => {
                let share = percent(busy_ns, passed_ns);
                self.share = Some(share);
                self.since = now;
                Ok(share)
            }
        }
    }
}

/// Returns the nearest whole percentage, at most 100.
fn percent(part: u64, whole: u64) -> u32 {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    let rounded = (part * 100 + whole / 2) / whole;
    rounded.min(100) as u32
}

/// Returns the share of time in which the guest had work under way, since the call before, or over
/// [`PERIOD`] if this is the first call or the one before is not so long ago.
fn busy_percent(index: usize) -> Answer<u32> {
    loop {
        let asked = ask(index).map_err(|e| code_of(&e))?;
        let taken = match MEASURED.lock().entry(index) {
            Entry::Occupied(mut measured) => measured.get_mut().take(asked),
            Entry::Vacant(none) => {
                none.insert(Measured::since(asked));
                Err(PERIOD)
            }
        };
        match taken {
            Ok(share) => return Ok(share),
            Err(missing) => std::thread::sleep(missing),
        }
    }
}

/// Share of time with kernels, copies or fills under way (`gpu`). How long memory is read or
/// written (`memory`) is not measured: 0.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(device: Handle, rates: Out<[u32; 2]>) -> u32 {
    device_call(device, |device| match rates.is_null() {
        true => Err(Code::INVALID_ARGUMENT),
        false => Ok(rates.set([busy_percent(device.index)?, 0])?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn reply(clock_ms: u64, busy_ms: u64) -> (u64, BusyTime) {
        let time = BusyTime {
            clock_ns: clock_ms * MS,
            busy_ns: busy_ms * MS,
        };
        (1, time)
    }

    #[test]
    fn a_share_is_that_of_a_whole_period() {
        let mut measured = Measured::since(reply(1000, 50));
        let missing = measured.take(reply(1066, 100)).unwrap_err();
        assert_eq!(missing, PERIOD - Duration::from_millis(66));
        assert_eq!(measured.take(reply(1200, 150)), Ok(50));
        assert_eq!(measured.take(reply(1210, 160)), Ok(50), "too soon");
        assert_eq!(measured.take(reply(2200, 400)), Ok(25));
    }

    #[test]
    fn another_session_is_measured_from_its_first_reply() {
        let mut measured = Measured::since(reply(1000, 50));
        let (_, time) = reply(5000, 5000);
        assert_eq!(measured.take((2, time)), Err(PERIOD));
        let (_, time) = reply(6000, 5100);
        assert_eq!(measured.take((2, time)), Ok(10));
        assert_eq!(measured.take((2, reply(5, 5).1)), Err(PERIOD), "went back");
    }

    #[test]
    fn percentages_are_rounded_and_limited() {
        let found = [(0, 0), (1, 200), (999, 1000), (5, 4)].map(|(a, b)| percent(a, b));
        assert_eq!(found, [0, 1, 100, 100]);
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
        assert_eq!(MEMORY_V2, 0x0200_0028);
    }
}
