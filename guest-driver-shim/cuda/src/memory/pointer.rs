//! What pointers are (CUDA driver API, "Unified Addressing").

use super::regions::{Backing, Region, Regions};
use crate::boundary::{In, Out};
use crate::context;
use crate::driver::{call, call_in_context, call_unless_faulted};
use crate::error::{Answer, Code};

/// `CU_DEVICE_INVALID`
const NO_DEVICE: i32 = -2;

/// An attribute's value, as wide as the attribute is.
#[derive(Debug, PartialEq, Eq)]
enum Value {
    Byte(u8),
    Narrow(u32),
    Wide(u64),
}

impl Value {
    fn put(self, data: usize) -> Answer {
        match self {
            Self::Byte(value) => Out::at(data).set(value),
            Self::Narrow(value) => Out::at(data).set(value),
            Self::Wide(value) => Out::at(data).set(value),
        }
    }
}

/// Returns a `CUpointer_attribute` of an address of the device with number `device`.
fn value(regions: &Regions, device: usize, attribute: u32, address: u64) -> Answer<Value> {
    let found = regions.original(address).ok_or(Code::INVALID_VALUE)?;
    let (start, region) = found;
    let seen = regions.find(address).map_or(start, |(seen, _)| seen);
    let inside = address - seen;
    let is_managed = match &region.backing {
        Backing::Managed { .. } | Backing::ManagedVariable(_) => true,
        Backing::Graph(memory) => memory.is_managed,
        _ => false,
    };
    let wrong = Code::INVALID_VALUE;
    Ok(match attribute {
        1 => Value::Wide(region.context as u64),
        // Memory of the host, or of the device.
        2 => Value::Narrow(if region.host.is_some() && !is_managed {
            1
        } else {
            2
        }),
        3 => Value::Wide(region.gpu.ok_or(wrong)? + inside),
        4 => Value::Wide(region.host.ok_or(wrong)? + inside),
        6 => Value::Byte(u8::from(region.host.is_some())),
        7 => Value::Wide(regions.number(address).ok_or(wrong)?),
        8 => Value::Byte(u8::from(is_managed)),
        9 => Value::Narrow(device as u32),
        10 => Value::Byte(u8::from(matches!(
            region.backing,
            Backing::Piece { pool: 0, .. }
        ))),
        11 | 19 => Value::Wide(start),
        12 | 18 => Value::Wide(region.bytes),
        13 => Value::Byte(u8::from(region.gpu.is_some())),
        // No handle can be exported, and other devices cannot reach it.
        14 => Value::Wide(0),
        15 | 21 => Value::Byte(0),
        16 => Value::Narrow(3),
        17 => Value::Wide(pool(region)),
        20 => Value::Wide(regions.number(address).ok_or(wrong)?),
        _ => return Err(wrong),
    })
}

fn pool(region: &Region) -> u64 {
    let handle = match &region.backing {
        Backing::Piece { pool, .. }
        | Backing::Managed { pool, .. }
        | Backing::Pooled { pool, .. } => *pool,
        Backing::Stored(stored) => stored.pool,
        Backing::ImportedPiece(imported) => imported.pool,
        _ => 0,
    };
    handle as u64
}

/// Returns what an attribute of memory is that CUDA does not know.
fn unknown(attribute: u32) -> Answer<Value> {
    Ok(match attribute {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => Value::Wide(0),
        2 | 16 => Value::Narrow(0),
        6 | 8 | 10 | 13 | 15 | 21 => Value::Byte(0),
        9 => Value::Narrow(NO_DEVICE as u32),
        _ => return Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(data: usize, attribute: u32, address: u64) -> u32 {
    call(|driver| {
        let driver = driver.owner_at(address);
        // Neither a context nor work without faults is wanted, only that there has been a context.
        let is_without =
            context::with_current(driver, |found| matches!(found, Err(Code::INVALID_CONTEXT)));
        let regions = driver.memory.regions.lock();
        // What was imported from a pool was so without a context.
        let is_imported = regions
            .find(address)
            .is_some_and(|(_, region)| matches!(region.backing, Backing::ImportedPiece(_)));
        if is_without && !is_imported {
            return Err(Code::INVALID_VALUE);
        }
        value(&regions, driver.ordinal, attribute, address)?.put(data)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttributes(
    count: u32,
    attributes: In<u32>,
    data: In<usize>,
    address: u64,
) -> u32 {
    call_unless_faulted(|driver| {
        let driver = driver.owner_at(address);
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let regions = driver.memory.regions.lock();
        (0..count as usize).try_for_each(|index| {
            let attribute = attributes.get_at(index)?;
            // What does not apply to a pointer is as for a pointer that CUDA does not know.
            let value = value(&regions, driver.ordinal, attribute, address);
            let value = value.or_else(|_| unknown(attribute))?;
            value.put(data.get_at(index)?)
        })
    })
}

/// The one attribute that can be set is that copies with this memory are synchronous.
#[unsafe(no_mangle)]
extern "C" fn cuPointerSetAttribute(value: In<u32>, attribute: u32, address: u64) -> u32 {
    call_in_context(|driver, _| {
        value.get()?;
        let regions = driver.owner_at(address).memory.regions.lock();
        match (attribute, regions.find(address)) {
            (6, Some(_)) => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_told_by_both_of_its_addresses() {
        let mut regions = Regions::default();
        regions.insert(Region {
            bytes: 64,
            gpu: Some(0x9000),
            host: Some(0x1000),
            context: 7,
            flags: 0,
            backing: Backing::Registered(None),
        });
        for address in [0x1008, 0x9008] {
            let told = |attribute| value(&regions, 3, attribute, address);
            assert_eq!(told(9), Ok(Value::Narrow(3)));
            assert_eq!(told(1), Ok(Value::Wide(7)));
            assert_eq!(told(2), Ok(Value::Narrow(1)));
            assert_eq!(told(3), Ok(Value::Wide(0x9008)));
            assert_eq!(told(4), Ok(Value::Wide(0x1008)));
            assert_eq!(told(12), Ok(Value::Wide(64)));
            assert_eq!(told(99), Err(Code::INVALID_VALUE));
        }
        assert_eq!(value(&regions, 0, 2, 0x1040), Err(Code::INVALID_VALUE));
    }
}
