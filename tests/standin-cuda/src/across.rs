//! Copies from the memory of one context to that of another (CUDA driver API, "Memory Management":
//! `cuMemcpyPeerAsync`, `cuMemcpy3DPeerAsync`): through memory of the host, whether or not the
//! devices can reach each other's memory.

use causeway_mediator::backend::CopyShape;
use causeway_protocol::packet::RectSide;

use crate::boundary::In;
use crate::copy::staged;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::rectangle::shape_of;
use crate::stream;
use crate::structures::Copy3d;
use crate::work::{Across, PIECE_BYTES, Work};

/// The device of a context.
fn device_of(driver: &Driver, context: usize) -> Answer<usize> {
    let found = driver.state().contexts.get(context);
    found
        .map(|context| context.device)
        .ok_or(Code::INVALID_CONTEXT)
}

/// Copies rows that go over as many bytes as `extents` says, at destination and source.
fn copy(shape: CopyShape, extents: Option<[u64; 2]>, [to, from]: [usize; 2], stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let devices = [device_of(driver, to)?, device_of(driver, from)?];
        let [to_bytes, from_bytes] = extents.ok_or(Code::INVALID_VALUE)?;
        driver.check_device_range(devices[0], shape.destination.address, to_bytes)?;
        driver.check_device_range(devices[1], shape.source.address, from_bytes)?;
        let stream = stream::find(driver, context, stream)?;
        if stream.capture().is_some() {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let staging = staged(driver, PIECE_BYTES)?;
        let work = Work::Across(Across {
            devices,
            shape,
            staging,
        });
        stream.submit(driver, work).map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    destination: u64,
    to: usize,
    source: u64,
    from: usize,
    bytes: usize,
    stream: usize,
) -> u32 {
    let row = |address| RectSide {
        address,
        pitch: 0,
        rows: 1,
    };
    let shape = CopyShape {
        destination: row(destination),
        source: row(source),
        width: bytes as u64,
        height: 1,
        depth: 1,
    };
    copy(shape, Some([shape.width; 2]), [to, from], stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpy3DPeerAsync(parameters: In<Copy3d>, stream: usize) -> u32 {
    let given = match parameters.get() {
        Ok(given) => given,
        Err(code) => return code.0,
    };
    let contexts = [given.destination.reserved, given.source.reserved];
    match shape_of(&given) {
        Ok(shape) => {
            let contexts = contexts.map(|it| it as usize);
            copy(shape, shape.extents(), contexts, stream)
        }
        Err(code) => code.0,
    }
}
