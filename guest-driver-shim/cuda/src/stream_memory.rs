//! Operations of streams on words of memory (CUDA driver API, "Stream Memory Operations").
//!
//! Stores and waits are packets. Where the host knows only waits for 8 bytes that grow, the
//! library's thread does all others, which only works on memory that the process sees.
//!
//! A wait holds up the work of all streams of its ring. If work that is submitted later to the same
//! ring stores the value, the wait never ends. It ends if the program stores the value itself,
//! submits that work before the wait, or gives it to a stream of another ring.

use causeway_protocol::packet::Condition;
use causeway_protocol::registers::features;

use crate::boundary::In;
use crate::driver::{Driver, call_with_current_stream};
use crate::error::{Answer, Code};
use crate::host_function::{HostCall, HostWork};
use crate::stream;
use crate::structures::BatchOperation;
use crate::word::{self, Word};
use crate::work::Work;

/// Most operations of one call, as documented.
const OPERATIONS_MAX: u32 = 256;

/// `CUstreamBatchMemOpType`
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const FLUSH: u32 = 3;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;
const BARRIER: u32 = 6;

/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`
const NO_BARRIER: u32 = 1;
/// The condition, and `CU_STREAM_WAIT_VALUE_FLUSH`, which memory here does not need.
const WAIT_FLAGS: u32 = 3 | 1 << 30;

/// Reads the operations of a call.
pub(crate) fn read(
    count: u32,
    operations: In<BatchOperation>,
    flags: u32,
) -> Answer<Vec<BatchOperation>> {
    if flags != 0 || count > OPERATIONS_MAX {
        return Err(Code::INVALID_VALUE);
    }
    operations.list(count as usize)
}

/// Returns the work of several operations, in order.
pub(crate) fn batch(driver: &'static Driver, operations: &[BatchOperation]) -> Answer<Work> {
    let parts = operations.iter().map(|given| one(driver, given));
    parts.collect::<Answer<Vec<Work>>>().map(Work::Sequence)
}

fn one(driver: &'static Driver, given: &BatchOperation) -> Answer<Work> {
    let bytes = match given.operation {
        WAIT_32 | WRITE_32 => 4,
        WAIT_64 | WRITE_64 => 8,
        // The ring is in order, and so are stores to memory of the process.
        FLUSH | BARRIER => return Ok(Work::Nothing),
        _ => return Err(Code::INVALID_VALUE),
    };
    let known = match given.operation {
        WAIT_32 | WAIT_64 => WAIT_FLAGS,
        _ => NO_BARRIER,
    };
    let address = given.address;
    if given.flags & !known != 0 || address == 0 || !address.is_multiple_of(bytes) {
        return Err(Code::INVALID_VALUE);
    }
    let word = word::find(driver, address, bytes)?;
    match given.operation {
        WRITE_32 if !driver.has(features::WORDS) => Ok(Work::Fill {
            destination: word.address,
            bytes,
            pattern: given.value as u32,
            width: 4,
        }),
        WRITE_32 | WRITE_64 => Ok(Work::Store {
            address: word.address,
            value: given.value,
            bytes,
        }),
        _ => wait(driver, &word, bytes, given),
    }
}

/// Returns the work that waits for a word.
fn wait(driver: &'static Driver, word: &Word, bytes: u64, given: &BatchOperation) -> Answer<Work> {
    let (wanted, value) = (condition(given.flags), given.value);
    let address = word.address;
    let grows = bytes == 8 && wanted == Condition::NotBefore;
    let (known, condition) = match driver.has(features::WORDS) {
        // Not every host can look at memory that the process does not see.
        true => (grows || word.window.is_some(), wanted),
        false => (grows, Condition::Reached),
    };
    if known {
        return Ok(Work::Await {
            address,
            value,
            bytes,
            condition,
        });
    }
    let work = HostWork::Wait {
        word: word.window.ok_or(Code::NOT_SUPPORTED)?,
        condition: wanted,
        bytes: bytes as u32,
        value,
    };
    HostCall::new(driver, work).map(Work::Host)
}

/// Returns the condition that the low bits of flags mean (`CUstreamWaitValue_flags`).
const fn condition(flags: u32) -> Condition {
    match flags & 3 {
        0 => Condition::NotBefore,
        1 => Condition::Equal,
        2 => Condition::And,
        _ => Condition::Nor,
    }
}

/// Submits one operation.
fn submit(stream: usize, operation: u32, (address, value): (u64, u64), flags: u32) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        let stream = stream::find(driver, context, stream)?;
        let given = BatchOperation {
            operation,
            padding: 0,
            address,
            value,
            flags,
            padding_behind: 0,
            alias: 0,
            rest: 0,
        };
        stream.submit(driver, one(driver, &given)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWriteValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32 {
    submit(stream, WRITE_32, (address, value.into()), flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWriteValue64_v2(stream: usize, address: u64, value: u64, flags: u32) -> u32 {
    submit(stream, WRITE_64, (address, value), flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32 {
    submit(stream, WAIT_32, (address, value.into()), flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitValue64_v2(stream: usize, address: u64, value: u64, flags: u32) -> u32 {
    submit(stream, WAIT_64, (address, value), flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBatchMemOp_v2(
    stream: usize,
    count: u32,
    operations: In<BatchOperation>,
    flags: u32,
) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        let stream = stream::find(driver, context, stream)?;
        let operations = read(count, operations, flags)?;
        stream.submit(driver, batch(driver, &operations)?)
    })
}
