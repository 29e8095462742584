//! Launches (CUDA driver API, "Execution Control"). Parameters are read at the call.
//!
//! What the device would refuse is refused here, so that the error comes from the call and the ring
//! goes on.

mod attributes;
mod prepared;

use std::sync::Arc;

use causeway_protocol::packet::{LaunchOptions, LaunchShape, launch_flags};
use causeway_protocol::registers::features;

use crate::boundary::In;
use crate::cluster::{blocks_of, check_cluster};
use crate::context::Context;
use crate::device;
use crate::driver::{Driver, call_in_context, call_in_stream};
use crate::error::{Answer, Code};
use crate::kernel::{self, Kernel};
use crate::occupancy;
use crate::parameters::{self, with_block};
use crate::stream::{self, Stream};
use crate::structures::LaunchConfiguration;
use crate::work::Work;

pub(crate) use attributes::read as check_attributes;

/// What a launch asks for.
#[derive(Clone, Copy)]
struct Request {
    function: usize,
    shape: LaunchShape,
    stream: usize,
    options: LaunchOptions,
    parameters: In<usize>,
    extra: In<usize>,
}

/// Launches a kernel under one lock, the ring's: it finds kernel and stream, checks, and writes the
/// packet with the parameters.
#[inline]
fn launch(driver: &Driver, context: &Context, request: Request) -> Answer {
    // Dropped after the lock is free: a module's last kernel waits for the ring.
    let (mut old_kernel, mut old_stream) = (None, None);
    let ring = driver.rings.of(stream::ring_of(request.stream));
    let mut locked = ring.lock(driver);
    let writing = &mut *locked;
    let find = |function| kernel::find(driver, function);
    let kernel = writing
        .kernels
        .find(request.function, &mut old_kernel, find)?;
    let stream = match stream::find_default(context, request.stream) {
        Some(stream) => stream,
        None => {
            let find = |handle| stream::find_created(driver, handle);
            writing
                .streams
                .find(request.stream, &mut old_stream, find)?
        }
    };
    if kernel.owner.context != 0 && kernel.owner.context != stream.context {
        return Err(Code::INVALID_HANDLE);
    }
    if let Err(code) = kernel.check_shape(request.shape) {
        let (kernel, stream) = (Arc::clone(kernel), Arc::clone(stream));
        drop(locked);
        return Err(refused(&kernel, &stream, request, code));
    }
    let is_watched = stream.is_default && driver.captures.are_any();
    if request.options != LaunchOptions::PLAIN || is_watched || stream.is_capturing() {
        let (kernel, stream) = (Arc::clone(kernel), Arc::clone(stream));
        drop(locked);
        return launch_checked(driver, kernel, &stream, request);
    }
    let block = writing.block.get_mut(..kernel.parameter_bytes);
    let block = block.ok_or(Code::NOT_SUPPORTED)?;
    if kernel.has_gaps || !request.extra.is_null() {
        block.fill(0);
    }
    parameters::fill(&kernel.layout, block, request.parameters, request.extra)?;
    let commands = &mut writing.commands;
    let written = commands.launch_packed(kernel.handle(), request.shape, block);
    stream.reach(writing.submitted + 1);
    writing.finish();
    drop(locked);
    written.map_err(|error| ring.refused(driver, &error))
}

/// Ends the stream's capture as invalid, as NVIDIA's driver does when it refuses a launch. Returns
/// the error of the call. Outside of captures, a cooperative launch with too much shared memory is
/// too large: no block of it can run.
#[cold]
fn refused(kernel: &Kernel, stream: &Stream, request: Request, code: Code) -> Code {
    let is_cooperative = request.options.flags & launch_flags::COOPERATIVE != 0;
    if stream.is_capturing() {
        stream.invalidate_capture();
        return code;
    }
    match is_cooperative && kernel.only_exceeds_shared(request.shape) {
        true => Code::COOPERATIVE_LAUNCH_TOO_LARGE,
        false => code,
    }
}

/// Launches a kernel where more has to be looked at than a launch usually needs.
fn launch_checked(
    driver: &Driver,
    kernel: Arc<Kernel>,
    stream: &Stream,
    request: Request,
) -> Answer {
    let shape = request.shape;
    let options = match request.options == LaunchOptions::PLAIN {
        true => request.options,
        false => checked_options(driver, &kernel, shape, request.options)
            .map_err(|code| refused(&kernel, stream, request, code))?,
    };
    if stream.is_capturing() {
        let work = Work::Launch {
            parameters: kernel.gather(request.parameters, request.extra)?,
            kernel,
            shape,
            options,
        };
        return stream.submit(driver, work);
    }
    let (layout, bytes) = (&kernel.layout, kernel.parameter_bytes);
    with_block(layout, bytes, request.parameters, request.extra, |block| {
        let handle = kernel.handle();
        let submitted = stream.submit_packets(driver, |writing| {
            writing.commands.launch_with(handle, shape, options, block)
        });
        submitted.map(drop)
    })
}

/// Refuses options that the device cannot have for a launch. Returns those that the packet has: a
/// host that does not know them runs cooperative launches, of which all blocks are known to run at
/// the same time, as others.
#[cold]
fn checked_options(
    driver: &Driver,
    kernel: &Kernel,
    shape: LaunchShape,
    options: LaunchOptions,
) -> Answer<LaunchOptions> {
    if options.flags & launch_flags::COOPERATIVE != 0 {
        check_cooperative(driver, kernel, shape)?;
    }
    check_cluster(
        shape.grid,
        options.cluster,
        device::cluster_blocks_max(driver),
    )?;
    kernel.cluster(options.cluster)?;
    match driver.has(features::LAUNCH_OPTIONS) {
        true => Ok(options),
        false if blocks_of(options.cluster) > 1 => Err(Code::NOT_SUPPORTED),
        false => Ok(LaunchOptions::PLAIN),
    }
}

/// Refuses a grid whose blocks cannot all run at the same time.
fn check_cooperative(driver: &Driver, kernel: &Kernel, shape: LaunchShape) -> Answer {
    let blocks: u64 = shape.grid.iter().map(|side| u64::from(*side)).product();
    match blocks > occupancy::resident_blocks(driver, kernel, shape)? {
        true => Err(Code::COOPERATIVE_LAUNCH_TOO_LARGE),
        false => Ok(()),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: usize,
    parameters: In<usize>,
    extra: In<usize>,
) -> u32 {
    let shape = LaunchShape {
        shared_bytes,
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
    };
    let request = Request {
        function,
        shape,
        stream,
        options: LaunchOptions::PLAIN,
        parameters,
        extra,
    };
    call_in_stream(stream, |driver, context| launch(driver, context, request))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchCooperativeKernel(
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: usize,
    parameters: In<usize>,
) -> u32 {
    let shape = LaunchShape {
        shared_bytes,
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
    };
    let request = Request {
        function,
        shape,
        stream,
        options: LaunchOptions {
            flags: launch_flags::COOPERATIVE,
            ..LaunchOptions::PLAIN
        },
        parameters,
        extra: In::at(0),
    };
    call_in_context(|driver, context| launch(driver, context, request))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx(
    configuration: In<LaunchConfiguration>,
    function: usize,
    parameters: In<usize>,
    extra: In<usize>,
) -> u32 {
    call_in_context(|driver, context| {
        let given = configuration.get()?;
        let options = attributes::read(&given)?;
        let request = Request {
            function,
            shape: LaunchShape {
                shared_bytes: given.shared_bytes,
                grid: given.grid,
                block: given.block,
            },
            stream: given.stream,
            options,
            parameters,
            extra,
        };
        launch(driver, context, request)
    })
}
