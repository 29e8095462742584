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
    to_device_by(driver, shape, |staged| Sides::from_gpu(driver).work(staged))
}

/// From memory that the GPU does not reach to what `on_device` copies to. It gets the copy with the
/// GPU's addresses of staging memory as its source.
pub(super) fn to_device_by(
    driver: &'static Driver,
    shape: Shape,
    on_device: impl FnOnce(Shape) -> Answer<Work>,
) -> Answer<Work> {
    let (memory, host, gpu) = staging(driver, shape.bytes())?;
    let from = Side::dense(gpu, &shape);
    let to = Side::dense(host, &shape);
    let on_device = on_device(Shape { from, ..shape })?;
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
    from_device_by(driver, shape, |staged| Sides::to_gpu(driver).work(staged))
}

/// To memory that the GPU does not reach from what `on_device` copies from. It gets the copy with
/// the GPU's addresses of staging memory as its destination.
pub(super) fn from_device_by(
    driver: &'static Driver,
    shape: Shape,
    on_device: impl FnOnce(Shape) -> Answer<Work>,
) -> Answer<Work> {
    let (memory, host, gpu) = staging(driver, shape.bytes())?;
    let to = Side::dense(gpu, &shape);
    let from = Side::dense(host, &shape);
    let on_device = on_device(Shape { to, ..shape })?;
    let copy = copy(Shape { from, ..shape }, Some(memory));
    let on_host = call(driver, HostWork::Copy(copy))?;
    Ok(Work::Sequence(vec![on_device, on_host]))
}

/// Through `bytes` bytes of staging memory of the node's own: `on_device` returns the device's work
/// for its address.
pub(super) fn through(
    driver: &'static Driver,
    bytes: u64,
    on_device: impl FnOnce(u64) -> Answer<Vec<Work>>,
) -> Answer<Work> {
    let (memory, host, gpu) = staging(driver, bytes)?;
    let mut works = on_device(gpu)?;
    let keep = copy(Shape::linear(host, host, bytes), Some(memory));
    works.push(call(driver, HostWork::Keep(keep))?);
    Ok(Work::Sequence(works))
}

fn copy(shape: Shape, staging: Option<Buffer<'static>>) -> Arc<HostCopy> {
    Arc::new(HostCopy::new(shape, staging))
}

fn call(driver: &'static Driver, work: HostWork) -> Answer<Work> {
    HostCall::new(driver, work).map(Work::Host)
}

/// Returns `bytes` bytes of memory for a copy, and its address on the host and for the GPU.
fn staging(driver: &'static Driver, bytes: u64) -> Answer<(Buffer<'static>, u64, u64)> {
    let memory = Buffer::new(driver.device, driver.space, bytes, MemoryKind::Host);
    let memory = memory.map_err(|error| {
        log::warn!("cannot allocate {bytes} bytes for a copy of a graph: {error}");
        Code::OUT_OF_MEMORY
    })?;
    let host = memory.cpu.window().as_ptr().as_ptr() as u64;
    let gpu = memory.gpu.address();
    Ok((memory, host, gpu))
}
