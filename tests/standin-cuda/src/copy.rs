//! Copies and fills (CUDA driver API, "Memory Management": `cuMemcpy…`, `cuMemset…`).
//!
//! Pageable memory is copied to or from staging memory at the call, as the driver does it ("API
//! synchronization behavior"): a copy from it returns when it has been read, a copy to it when it
//! has been written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_protocol::Access;

use crate::context::Context;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::host_ranges::{HostRange, pages};
use crate::memory::Reached;
use crate::stream;
use crate::work::Work;

/// Memory of the driver's own, which the device reaches at its address.
pub(crate) struct Staging {
    driver: &'static Driver,
    start: u64,
    bytes: u64,
    range: Option<HostRange>,
}

impl Staging {
    fn new(driver: &'static Driver, bytes: u64) -> Answer<Arc<Self>> {
        let (_, bytes) = pages(0, bytes)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let visibility = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let (none, length) = (std::ptr::null_mut(), bytes as usize);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(none, length, rights, visibility, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Code::OUT_OF_MEMORY);
        }
        let start = base as u64;
        let kind = (false, 0);
        let range = HostRange::show(driver, (start, bytes), start, Access::ReadWrite, kind)?;
        Ok(Arc::new(Self {
            driver,
            start,
            bytes,
            range: Some(range),
        }))
    }

    /// Address at which all devices reach it.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(range) = self.range.take() {
            range.withdraw(self.driver);
        }
        // SAFETY: mapped by `new`; the engine has let go of it.
        unsafe { libc::munmap(self.start as *mut _, self.bytes as usize) };
    }
}

/// One copy, as it was asked for.
#[derive(Clone, Copy)]
struct Copy {
    destination: u64,
    source: u64,
    bytes: u64,
}

/// Which of the two addresses are said to be the device's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Unified addressing says.
    Any,
    DeviceToDevice,
    HostToDevice,
    DeviceToHost,
}

fn copy(copy: Copy, direction: Direction, stream: usize, waits: bool) -> u32 {
    call_in_context(|driver, context| {
        if copy.bytes == 0 {
            return Ok(());
        }
        let work = plan(driver, context, copy, direction)?;
        submit(driver, context, work, stream, waits)
    })
}

/// A copy of which both sides are known.
struct Plan {
    work: Work,
    /// Where staging memory is to be copied to when the work is done.
    read_back: Option<(Arc<Staging>, u64, u64)>,
}

fn plan(
    driver: &'static Driver,
    context: &Context,
    copy: Copy,
    direction: Direction,
) -> Answer<Plan> {
    let Copy {
        destination,
        source,
        bytes,
    } = copy;
    let to = driver.reach(context.device, destination, bytes)?;
    let from = driver.reach(context.device, source, bytes)?;
    let device_to = matches!(to, Reached::Device(_));
    let device_from = matches!(from, Reached::Device(_));
    let agrees = match direction {
        Direction::Any => true,
        Direction::DeviceToDevice => device_to && device_from,
        Direction::HostToDevice => device_to,
        Direction::DeviceToHost => device_from,
    };
    if !agrees {
        return Err(Code::INVALID_VALUE);
    }
    let mut read_back = None;
    let mut staging = None;
    let source = match from {
        Reached::Device(at) => at,
        Reached::Pageable(at) => {
            let stage = staged(driver, bytes)?;
            note_pageable(driver, at, bytes);
            transfer(stage.start, at, bytes, at);
            let start = stage.start;
            staging = Some(stage);
            start
        }
    };
    let destination = match to {
        Reached::Device(at) => at,
        Reached::Pageable(at) => {
            let stage = staged(driver, bytes)?;
            note_pageable(driver, at, bytes);
            let start = stage.start;
            read_back = Some((stage, at, bytes));
            start
        }
    };
    let work = Work::Copy {
        destination,
        source,
        bytes,
        staging,
    };
    Ok(Plan { work, read_back })
}

fn submit(
    driver: &'static Driver,
    context: &Context,
    plan: Plan,
    stream: usize,
    waits: bool,
) -> Answer {
    let stream = stream::find(driver, context, stream)?;
    let staged = plan.read_back.is_some() || uses_staging(&plan.work);
    if stream.capture().is_some() && (staged || waits) {
        // A graph must not depend on memory that is gone when it runs.
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let position = stream.submit(driver, plan.work)?;
    if waits || plan.read_back.is_some() {
        position.wait();
        driver.check_sticky()?;
    }
    if let Some((staging, at, bytes)) = plan.read_back {
        transfer(at, staging.start, bytes, at);
    }
    Ok(())
}

fn uses_staging(work: &Work) -> bool {
    matches!(
        work,
        Work::Copy {
            staging: Some(_),
            ..
        }
    )
}

pub(crate) fn staged(driver: &'static Driver, bytes: u64) -> Answer<Arc<Staging>> {
    Staging::new(driver, bytes)
}

/// Says once that pageable memory is copied, or ends the process if that is not to be.
fn note_pageable(driver: &Driver, address: u64, bytes: u64) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if driver.settings.strict {
        eprintln!(
            "stand-in driver: {bytes} bytes of pageable memory at {address:#x} are copied, \
             and CAUSEWAY_STANDIN_STRICT is set"
        );
        std::process::abort();
    }
    if !SAID.swap(true, Ordering::Relaxed) {
        eprintln!("stand-in driver: pageable memory is copied ({bytes} bytes at {address:#x})");
    }
}

/// Copies within the process through the kernel, which tells whether the client's memory is there.
/// If it is not, a driver would have crashed; this one says where.
fn transfer(to: u64, from: u64, bytes: u64, client: u64) {
    let mut done = 0;
    while done < bytes {
        let part = |start: u64| libc::iovec {
            iov_base: (start + done) as *mut _,
            iov_len: (bytes - done).min(1 << 30) as usize,
        };
        let (local, remote) = (part(to), part(from));
        // SAFETY: the kernel checks both ranges; they are the client's, by the API's contract, and
        // staging memory.
        let moved = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if moved <= 0 {
            eprintln!(
                "stand-in driver: a copy of {bytes} bytes of host memory at {client:#x} fails: {}",
                io::Error::last_os_error()
            );
            std::process::abort();
        }
        done += moved.unsigned_abs() as u64;
    }
}

macro_rules! copies {
    ($($name:ident, $name_async:ident: $direction:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(destination: u64, source: u64, bytes: usize) -> u32 {
                let bytes = bytes as u64;
                copy(Copy { destination, source, bytes }, Direction::$direction, 0, true)
            }

            #[unsafe(no_mangle)]
            extern "C" fn $name_async(
                destination: u64,
                source: u64,
                bytes: usize,
                stream: usize,
            ) -> u32 {
                let bytes = bytes as u64;
                copy(Copy { destination, source, bytes }, Direction::$direction, stream, false)
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

/// Work that fills `count` elements.
pub(crate) fn fill_work(
    driver: &Driver,
    device: usize,
    (destination, pattern, width): (u64, u32, u32),
    count: u64,
) -> Answer<Work> {
    let bytes = count
        .checked_mul(u64::from(width))
        .ok_or(Code::INVALID_VALUE)?;
    if !destination.is_multiple_of(u64::from(width)) {
        return Err(Code::INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(Work::Nothing);
    }
    let Reached::Device(destination) = driver.reach(device, destination, bytes)? else {
        return Err(Code::INVALID_VALUE);
    };
    Ok(Work::Fill {
        destination,
        bytes,
        pattern,
        width,
    })
}

/// A copy of which both sides are reached by the device, for graphs.
pub(crate) fn copy_work(
    driver: &Driver,
    device: usize,
    (destination, source): (u64, u64),
    bytes: u64,
) -> Answer<Work> {
    let to = driver.reach(device, destination, bytes)?;
    let from = driver.reach(device, source, bytes)?;
    let (Reached::Device(destination), Reached::Device(source)) = (to, from) else {
        return Err(Code::NOT_SUPPORTED);
    };
    Ok(Work::Copy {
        destination,
        source,
        bytes,
        staging: None,
    })
}

fn fill(element: (u64, u32, u32), count: usize, stream: usize) -> u32 {
    call_in_context(|driver, context| {
        let stream = stream::find(driver, context, stream)?;
        let work = fill_work(driver, context.device, element, count as u64)?;
        // Fills of device memory do not wait for the device, the synchronous ones neither.
        stream.submit(driver, work).map(drop)
    })
}

macro_rules! fills {
    ($($name:ident, $name_async:ident: $element:ty, $width:literal;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(destination: u64, value: $element, count: usize) -> u32 {
                fill((destination, u32::from(value), $width), count, 0)
            }

            #[unsafe(no_mangle)]
            extern "C" fn $name_async(
                destination: u64,
                value: $element,
                count: usize,
                stream: usize,
            ) -> u32 {
                fill((destination, u32::from(value), $width), count, stream)
            }
        )*
    };
}

fills! {
    cuMemsetD8_v2, cuMemsetD8Async: u8, 1;
    cuMemsetD16_v2, cuMemsetD16Async: u16, 2;
    cuMemsetD32_v2, cuMemsetD32Async: u32, 4;
}
