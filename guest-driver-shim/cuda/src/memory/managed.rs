//! Managed memory: host memory at one address for CPU and GPU, so advice and prefetching change
//! nothing, and are told again.

use super::Memory;
use super::advice::{Advice, CPU, DEVICE, NONE, Target};
use super::host::HostPiece;
use super::regions::{Backing, Region};
use crate::boundary::{In, Out};
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::stream;
use crate::structures::Location;

impl Target {
    /// Returns the target of the device with a number. Managed memory is reached by its own alone.
    fn of_device(driver: &Driver, number: i32) -> Answer<Self> {
        let found = Driver::of_device(number)?;
        let is_own = found.ordinal == driver.ordinal;
        is_own
            .then_some(Self::Device(number))
            .ok_or(Code::INVALID_DEVICE)
    }

    /// Returns the target of a device number, where -1 means the CPU.
    fn of_number(driver: &Driver, number: i32) -> Answer<Self> {
        match number {
            CPU => Ok(Self::Host),
            number => Self::of_device(driver, number),
        }
    }

    pub(super) fn of_location(driver: &Driver, location: Location) -> Answer<Self> {
        match location.kind {
            DEVICE => Self::of_device(driver, location.id),
            // The host, a node of it, or the one that the calling thread is on.
            2..=4 => Ok(Self::Host),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        // Attached to all streams (1) or to the host (2) at first.
        if address.is_null() || bytes == 0 || !matches!(flags, 1 | 2) {
            return Err(Code::INVALID_VALUE);
        }
        driver.captures.check_unsafe()?;
        let piece = driver.memory.allocate_shared(driver, bytes as u64)?;
        let region = Region {
            bytes: bytes as u64,
            gpu: Some(piece.gpu),
            host: Some(piece.host),
            context: context.handle,
            flags,
            backing: Backing::Managed {
                piece,
                advice: Advice::default(),
                pool: 0,
            },
        };
        address.set(driver.memory.regions.lock().insert(region))
    })
}

impl Memory {
    /// Allocates host memory that has one address for CPU and GPU.
    pub(super) fn allocate_shared(&self, driver: &Driver, bytes: u64) -> Answer<HostPiece> {
        let mut host = self.host.lock();
        host.collect(driver);
        let piece = host.allocate(bytes)?;
        match piece.gpu == piece.host {
            true => Ok(piece),
            false => {
                host.free(piece);
                Err(Code::NOT_SUPPORTED)
            }
        }
    }
}

/// Calls `change` with the advice of a range of managed memory.
pub(super) fn with_advice<T>(
    driver: &Driver,
    address: u64,
    bytes: usize,
    change: impl FnOnce(&mut Advice) -> Answer<T>,
) -> Answer<T> {
    let mut regions = driver.memory.regions.lock();
    if bytes == 0 || !regions.covers(address, bytes as u64) {
        return Err(Code::INVALID_VALUE);
    }
    match regions.find_mut(address) {
        Some((
            _,
            Region {
                backing: Backing::Managed { advice, .. } | Backing::ManagedVariable(advice),
                ..
            },
        )) => change(advice),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Notes where a range of managed memory was prefetched to.
pub(super) fn note_prefetch(
    driver: &Driver,
    (address, bytes): (u64, usize),
    target: Target,
) -> Answer {
    with_advice(driver, address, bytes, |known| {
        known.prefetched = Some(target);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAdvise(address: u64, bytes: usize, advice: u32, device: i32) -> u32 {
    call_in_context(|driver, _| {
        // The device says nothing about reading.
        let target = match advice {
            1 | 2 | 4 => Target::Host,
            _ => Target::of_number(driver, device)?,
        };
        with_advice(driver, address, bytes, |known| known.note(advice, target))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAdvise_v2(address: u64, bytes: usize, advice: u32, location: Location) -> u32 {
    call_in_context(|driver, _| {
        let target = match advice {
            1 | 2 | 4 => Target::Host,
            _ => Target::of_location(driver, location)?,
        };
        with_advice(driver, address, bytes, |known| known.note(advice, target))
    })
}

/// Notes nothing: CPU and GPU share managed memory at all times, whatever stream it is attached to.
#[unsafe(no_mangle)]
extern "C" fn cuStreamAttachMemAsync(stream: usize, address: u64, bytes: usize, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        let found = stream::find(driver, context, stream)?;
        found.check_not_capturing()?;
        // Global, host, or this stream alone, which is no default stream then.
        if !matches!(flags, 1 | 2 | 4) || flags == 4 && stream <= 1 {
            return Err(Code::INVALID_VALUE);
        }
        let regions = driver.memory.regions.lock();
        let region = regions.find(address).map(|(_, region)| region.bytes);
        drop(regions);
        // All of an allocation, for which 0 stands.
        if bytes != 0 && region != Some(bytes as u64) {
            return Err(Code::INVALID_VALUE);
        }
        with_advice(driver, address, 1, |_| Ok(()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPrefetchAsync(address: u64, bytes: usize, device: i32, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let target = Target::of_number(driver, device)?;
        stream::find(driver, context, stream)?.check_not_capturing()?;
        note_prefetch(driver, (address, bytes), target)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPrefetchAsync_v2(
    address: u64,
    bytes: usize,
    location: Location,
    flags: u32,
    stream: usize,
) -> u32 {
    call_in_context(|driver, context| {
        let target = Target::of_location(driver, location)?;
        stream::find(driver, context, stream)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        note_prefetch(driver, (address, bytes), target)
    })
}

/// Puts one attribute into `bytes` bytes at `data`.
fn put(advice: &Advice, data: usize, bytes: usize, attribute: u32) -> Answer {
    let into = Out::<i32>::at(data);
    if attribute != 3 {
        let number = advice.number(attribute)?;
        return match bytes {
            4 => into.set(number),
            _ => Err(Code::INVALID_VALUE),
        };
    }
    if bytes == 0 || !bytes.is_multiple_of(4) {
        return Err(Code::INVALID_VALUE);
    }
    for index in 0..bytes / 4 {
        let target = advice.accessed_by.get(index);
        into.set_at(index, target.map_or(NONE, |target| target.number()))?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRangeGetAttribute(
    data: usize,
    data_bytes: usize,
    attribute: u32,
    address: u64,
    bytes: usize,
) -> u32 {
    call_in_context(|driver, _| {
        with_advice(driver, address, bytes, |known| {
            put(known, data, data_bytes, attribute)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRangeGetAttributes(
    data: In<usize>,
    data_bytes: In<usize>,
    attributes: In<u32>,
    count: usize,
    address: u64,
    bytes: usize,
) -> u32 {
    call_in_context(|driver, _| {
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        with_advice(driver, address, bytes, |known| {
            (0..count).try_for_each(|index| {
                let (into, room) = (data.get_at(index)?, data_bytes.get_at(index)?);
                put(known, into, room, attributes.get_at(index)?)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::advice::HOST;

    #[test]
    fn advice_is_told_until_it_is_taken_back() {
        let mut advice = Advice::default();
        assert_eq!(advice.number(2), Ok(NONE));
        advice.note(1, Target::Host).unwrap();
        advice.note(3, Target::Host).unwrap();
        advice.note(5, Target::Device(0)).unwrap();
        advice.note(5, Target::Device(0)).unwrap();
        assert_eq!(advice.number(1), Ok(1));
        assert_eq!((advice.number(2), advice.number(5)), (Ok(CPU), Ok(HOST)));
        let mut list = [7_i32; 2];
        put(&advice, std::ptr::from_mut(&mut list) as usize, 8, 3).unwrap();
        assert_eq!(list, [0, NONE]);
        advice.note(2, Target::Host).unwrap();
        advice.note(4, Target::Host).unwrap();
        advice.note(6, Target::Device(0)).unwrap();
        assert_eq!(advice, Advice::default());
        assert_eq!(advice.note(7, Target::Host), Err(Code::INVALID_VALUE));
        assert_eq!(advice.number(9), Err(Code::INVALID_VALUE));
    }
}
