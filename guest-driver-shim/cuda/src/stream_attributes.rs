//! Attributes of streams (`CUstreamAttrID`): kept for those who ask, and of no effect here. A
//! priority has its effect only if the stream is made with it.

use std::collections::BTreeMap;

use crate::boundary::{In, Out};
use crate::device;
use crate::driver::{Driver, call_with_current_stream};
use crate::error::{Answer, Code};
use crate::stream::{self, Stream};

const WINDOW: u32 = 1;
const SYNCHRONIZATION_POLICY: u32 = 3;
const PRIORITY: u32 = 8;
/// Window of persisting accesses, synchronization policy, priority, domain map and domain.
const KNOWN: [u32; 5] = [WINDOW, SYNCHRONIZATION_POLICY, PRIORITY, 9, 10];
/// Attribute of devices: most bytes of a window.
const WINDOW_BYTES_MAX: u32 = 109;
/// `CU_ACCESS_PROPERTY_PERSISTING`
const PERSISTING: u32 = 2;
/// Bytes of `CUstreamAttrValue`.
const VALUE_BYTES: usize = 64;

type Value = [u8; VALUE_BYTES];

/// The attributes that were set.
pub(crate) type Attributes = BTreeMap<u32, Value>;

fn check(attribute: u32) -> Answer {
    match KNOWN.contains(&attribute) {
        true => Ok(()),
        false => Err(Code::INVALID_VALUE),
    }
}

/// Refuses values that an attribute cannot have.
fn check_value(driver: &Driver, attribute: u32, value: &Value) -> Answer {
    let word = |at: usize| [value[at], value[at + 1], value[at + 2], value[at + 3]];
    let bytes = u64::from_ne_bytes(std::array::from_fn(|index| value[8 + index]));
    let is_fine = match attribute {
        // Automatic, spin, yield, block.
        SYNCHRONIZATION_POLICY => matches!(u32::from_ne_bytes(word(0)), 1..=4),
        // Address, bytes, ratio, and properties of hits and misses, which do not persist.
        WINDOW => {
            let bytes_max = device::attribute(driver, WINDOW_BYTES_MAX).unwrap_or(0);
            // A device without windows takes them, and they have no effect.
            let bytes_max = if bytes_max == 0 { i32::MAX } else { bytes_max };
            bytes <= u64::from(bytes_max.cast_unsigned())
                && (0.0..=1.0).contains(&f32::from_ne_bytes(word(16)))
                && u32::from_ne_bytes(word(24)) != PERSISTING
        }
        _ => true,
    };
    is_fine.then_some(()).ok_or(Code::INVALID_VALUE)
}

fn get(stream: &Stream, attribute: u32) -> Value {
    if let Some(value) = stream.attributes.lock().get(&attribute) {
        return *value;
    }
    let mut value = [0; VALUE_BYTES];
    let first = match attribute {
        // `CU_SYNC_POLICY_AUTO`
        SYNCHRONIZATION_POLICY => 1,
        PRIORITY => stream.priority(),
        _ => 0,
    };
    value[..4].copy_from_slice(&first.to_ne_bytes());
    if attribute == 9 {
        // The map's second byte: remote accesses use domain 1.
        value[1] = 1;
    }
    value
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetAttribute(stream: usize, attribute: u32, value: Out<Value>) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        check(attribute)?;
        let stream = stream::find(driver, context, stream)?;
        value.set(get(&stream, attribute))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSetAttribute(stream: usize, attribute: u32, value: In<Value>) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        check(attribute)?;
        let stream = stream::find(driver, context, stream)?;
        let value = value.get()?;
        check_value(driver, attribute, &value)?;
        if attribute == PRIORITY {
            stream.set_priority(
                driver,
                i32::from_ne_bytes([value[0], value[1], value[2], value[3]]),
            );
            return Ok(());
        }
        stream.attributes.lock().insert(attribute, value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCopyAttributes(destination: usize, source: usize) -> u32 {
    call_with_current_stream(destination, |driver, context| {
        let destination = stream::find(driver, context, destination)?;
        let source = stream::find(driver, context, source)?;
        let copied = source.attributes.lock().clone();
        *destination.attributes.lock() = copied;
        destination.set_priority(driver, source.priority());
        Ok(())
    })
}
