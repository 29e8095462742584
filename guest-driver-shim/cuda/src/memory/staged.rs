//! Copies from and to memory that the GPU does not reach, as nodes of graphs. The library's thread
//! copies such memory each time that a ring has come to the node, from or to staging memory of the
//! node's own.

use std::sync::Arc;

use causeway_shim_linux::shim::{Buffer, MemoryKind};

use super::host_copy::HostCopy;
use super::segments::{Shape, Side};
use super::transfer::Sides;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::host_function::{HostCall, HostWork};
use crate::work::Work;

/// Copies on the host alone.
pub(super) fn on_host(driver: &'static Driver, shape: Shape) -> Answer<Work> {
    let staging = None;
    call(driver, HostWork::Copy(copy(shape, staging)))
}

/// From memory that the GPU does not reach.
pub(super) fn to_device(driver: &'static Driver, shape: Shape) -> Answer<Work> {
    let (memory, host, gpu) = staging(driver, &shape)?;
    let from = Side::dense(gpu, &shape);
    let to = Side::dense(host, &shape);
    let on_device = Sides::from_gpu(driver).work(Shape { from, ..shape })?;
    let copy = copy(Shape { to, ..shape }, Some(memory));
    // The last keeps the memory until the device has read it, also of a graph that ends before.
    let keep = HostWork::Keep(Arc::clone(&copy));
    Ok(Work::Sequence(vec![
        call(driver, HostWork::Copy(copy))?,
        on_device,
        call(driver, keep)?,
    ]))
}

/// To memory that the GPU does not reach.
pub(super) fn from_device(driver: &'static Driver, shape: Shape) -> Answer<Work> {
    let (memory, host, gpu) = staging(driver, &shape)?;
    let to = Side::dense(gpu, &shape);
    let from = Side::dense(host, &shape);
    let on_device = Sides::to_gpu(driver).work(Shape { to, ..shape })?;
    let copy = copy(Shape { from, ..shape }, Some(memory));
    let on_host = call(driver, HostWork::Copy(copy))?;
    Ok(Work::Sequence(vec![on_device, on_host]))
}

fn copy(shape: Shape, staging: Option<Buffer<'static>>) -> Arc<HostCopy> {
    Arc::new(HostCopy::new(shape, staging))
}

fn call(driver: &'static Driver, work: HostWork) -> Answer<Work> {
    HostCall::new(driver, work).map(Work::Host)
}

/// Returns memory for a copy, and its address on the host and for the GPU.
fn staging(driver: &'static Driver, shape: &Shape) -> Answer<(Buffer<'static>, u64, u64)> {
    let bytes = shape.bytes();
    let memory = Buffer::new(driver.device, driver.space, bytes, MemoryKind::Host);
    let memory = memory.map_err(|error| {
        log::warn!("cannot allocate {bytes} bytes for a copy of a graph: {error}");
        Code::OUT_OF_MEMORY
    })?;
    let host = memory.cpu.window().as_ptr().as_ptr() as u64;
    let gpu = memory.gpu.address();
    Ok((memory, host, gpu))
}
