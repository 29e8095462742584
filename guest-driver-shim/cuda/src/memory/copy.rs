//! Copies of bytes that follow each other (`cuMemcpy…`).

use super::segments::Shape;
use super::transfer::{self, Direction};
use crate::boundary::{In, Out};
use crate::context;
use crate::driver::{Driver, call_with_current_stream};
use crate::error::{Answer, Code};
use crate::stream;

fn copy(shape: Shape, direction: Direction, stream: usize, waits: bool) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        let stream = stream::find(driver, context, stream)?;
        transfer::copy(driver, &stream, shape, direction, waits)
    })
}

macro_rules! copies {
    ($($name:ident, $name_async:ident: $direction:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(destination: u64, source: u64, bytes: usize) -> u32 {
                let shape = Shape::linear(destination, source, bytes as u64);
                copy(shape, Direction::$direction, 0, true)
            }

            #[unsafe(no_mangle)]
            extern "C" fn $name_async(
                destination: u64,
                source: u64,
                bytes: usize,
                stream: usize,
            ) -> u32 {
                let shape = Shape::linear(destination, source, bytes as u64);
                copy(shape, Direction::$direction, stream, false)
            }
        )*
    };
}

copies! {
    cuMemcpy, cuMemcpyAsync: Any;
    cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2: DeviceToDevice;
    cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2: HostToDevice;
    cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2: DeviceToHost;
}

/// Copies between contexts. If `waits` holds, the copy waits for all earlier work of their devices,
/// and all later work of theirs waits for the copy, as CUDA documents. Otherwise only `stream`
/// orders the copy.
fn copy_between(
    (destination, to_context): (u64, usize),
    (source, from_context): (u64, usize),
    bytes: usize,
    stream: usize,
    waits: bool,
) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        let to = owner_of(driver, destination, to_context)?;
        let from = owner_of(driver, source, from_context)?;
        let stream = stream::find(driver, context, stream)?;
        let shape = Shape::linear(destination, source, bytes as u64);
        let others = [to, from].into_iter();
        let others: Vec<_> = others.filter(|it| it.ordinal != driver.ordinal).collect();
        let across = waits && !others.is_empty();
        if across {
            others
                .iter()
                .try_for_each(|other| other.rings.drain(other))?;
        }
        transfer::copy(driver, &stream, shape, Direction::DeviceToDevice, false)?;
        match across {
            true => driver.wait_for(stream.last()),
            false => Ok(()),
        }
    })
}

/// Returns the driver of the device whose memory is at an address, and refuses a context that there
/// is not. None given is the current one.
fn owner_of(driver: &'static Driver, address: u64, given: usize) -> Answer<&'static Driver> {
    if given != 0 {
        context::find(driver, given)?;
    }
    Ok(driver.owner_at(address))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeer(
    destination: u64,
    to_context: usize,
    source: u64,
    from_context: usize,
    bytes: usize,
) -> u32 {
    let (to, from) = ((destination, to_context), (source, from_context));
    copy_between(to, from, bytes, 0, true)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    destination: u64,
    to_context: usize,
    source: u64,
    from_context: usize,
    bytes: usize,
    stream: usize,
) -> u32 {
    let (to, from) = ((destination, to_context), (source, from_context));
    copy_between(to, from, bytes, stream, false)
}

/// Copies several ranges. Attributes are hints about order and place: every copy is made in the
/// order of the stream, and pageable memory has been read when the call returns.
fn copy_batch(
    [destinations, sources, sizes]: [In<u64>; 3],
    count: usize,
    attributes_count: usize,
    fail_index: Option<Out<usize>>,
    stream: usize,
) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        // The default streams take no batches.
        if count == 0 || stream <= 2 || !(1..=count).contains(&attributes_count) {
            return Err(Code::INVALID_VALUE);
        }
        let stream = stream::find(driver, context, stream)?;
        for index in 0..count {
            let (to, from) = (destinations.get_at(index)?, sources.get_at(index)?);
            let shape = Shape::linear(to, from, sizes.get_at(index)?);
            let copied = match shape.is_empty() {
                true => Err(Code::INVALID_VALUE),
                false => transfer::copy(driver, &stream, shape, Direction::Any, false),
            };
            if let (Err(_), Some(failed)) = (copied, fail_index) {
                failed.set_if_wanted(index);
            }
            copied?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyBatchAsync(
    destinations: In<u64>,
    sources: In<u64>,
    sizes: In<u64>,
    count: usize,
    _attributes: usize,
    _attribute_indices: usize,
    attributes_count: usize,
    fail_index: Out<usize>,
    stream: usize,
) -> u32 {
    let lists = [destinations, sources, sizes];
    copy_batch(lists, count, attributes_count, Some(fail_index), stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyBatchAsync_v2(
    destinations: In<u64>,
    sources: In<u64>,
    sizes: In<u64>,
    count: usize,
    _attributes: usize,
    _attribute_indices: usize,
    attributes_count: usize,
    stream: usize,
) -> u32 {
    let lists = [destinations, sources, sizes];
    copy_batch(lists, count, attributes_count, None, stream)
}
