//! Prefetches and discards of several ranges of managed memory.

use super::advice::Target;
use super::managed::{note_prefetch, with_advice};
use crate::boundary::In;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::stream;
use crate::structures::Location;

/// Ranges that a caller has listed.
#[derive(Clone, Copy)]
struct Ranges {
    addresses: In<u64>,
    bytes: In<usize>,
    count: usize,
}

/// Where ranges are to go. Each place is that of the ranges from its first range up to the first
/// range of the next place.
#[derive(Clone, Copy)]
struct Places {
    locations: In<Location>,
    firsts: In<usize>,
    count: usize,
}

impl Ranges {
    /// Calls `act` with the number, the address and the bytes of each range.
    fn each(self, mut act: impl FnMut(usize, u64, usize) -> Answer) -> Answer {
        (0..self.count).try_for_each(|index| {
            let address = self.addresses.get_at(index)?;
            act(index, address, self.bytes.get_at(index)?)
        })
    }
}

impl Places {
    /// Returns the target of each place with its first range.
    fn targets(self, driver: &Driver, ranges: usize) -> Answer<Vec<(usize, Target)>> {
        if self.count == 0 || self.count > ranges {
            return Err(Code::INVALID_VALUE);
        }
        let mut found: Vec<(usize, Target)> = Vec::new();
        for index in 0..self.count {
            let first = self.firsts.get_at(index)?;
            let is_right = match found.last() {
                None => first == 0,
                Some((before, _)) => first > *before && first < ranges,
            };
            if !is_right {
                return Err(Code::INVALID_VALUE);
            }
            let target = Target::of_location(driver, self.locations.get_at(index)?)?;
            found.push((first, target));
        }
        Ok(found)
    }
}

/// Discards ranges, which changes nothing: memory is in one place, with its content. Then notes
/// where they are to go, if `places` are given. Nothing is noted if any range is wrong.
fn submit(ranges: Ranges, places: Option<Places>, flags: u64, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        if ranges.count == 0 || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let found = stream::find(driver, context, stream)?;
        // The API takes no legacy default stream.
        if found.is_default {
            return Err(Code::INVALID_VALUE);
        }
        found.check_not_capturing()?;
        let targets = match places {
            Some(places) => places.targets(driver, ranges.count)?,
            None => Vec::new(),
        };
        ranges.each(|_, address, bytes| with_advice(driver, address, bytes, |_| Ok(())))?;
        ranges.each(|index, address, bytes| {
            let target = targets.iter().rev().find(|(first, _)| *first <= index);
            match target {
                Some((_, target)) => note_prefetch(driver, (address, bytes), *target),
                None => Ok(()),
            }
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPrefetchBatchAsync(
    addresses: In<u64>,
    bytes: In<usize>,
    count: usize,
    locations: In<Location>,
    firsts: In<usize>,
    places: usize,
    flags: u64,
    stream: usize,
) -> u32 {
    let ranges = Ranges {
        addresses,
        bytes,
        count,
    };
    let places = Places {
        locations,
        firsts,
        count: places,
    };
    submit(ranges, Some(places), flags, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemDiscardBatchAsync(
    addresses: In<u64>,
    bytes: In<usize>,
    count: usize,
    flags: u64,
    stream: usize,
) -> u32 {
    let ranges = Ranges {
        addresses,
        bytes,
        count,
    };
    submit(ranges, None, flags, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemDiscardAndPrefetchBatchAsync(
    addresses: In<u64>,
    bytes: In<usize>,
    count: usize,
    locations: In<Location>,
    firsts: In<usize>,
    places: usize,
    flags: u64,
    stream: usize,
) -> u32 {
    cuMemPrefetchBatchAsync(
        addresses, bytes, count, locations, firsts, places, flags, stream,
    )
}
