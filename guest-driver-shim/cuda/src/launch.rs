//! Launches (CUDA driver API, "Execution Control"). Parameters are read at the call.
//!
//! What the device would refuse is refused here, so that the error comes from the call and the ring
//! goes on.

mod attributes;
mod parameters;

use causeway_protocol::packet::{LaunchOptions, LaunchShape, launch_flags};
use causeway_protocol::registers::features;

use crate::boundary::In;
use crate::context::Context;
use crate::device;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::kernel::{self, Kernel};
use crate::occupancy;
use crate::stream;
use crate::structures::LaunchConfiguration;
use crate::work::Work;

pub(crate) use attributes::read as check_attributes;
pub(crate) use parameters::with_block;

/// `CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH`
const CLUSTER_LAUNCH: u32 = 120;
/// Blocks of a cluster on any device that has clusters (CUDA C++ Programming Guide, "Thread Block
/// Clusters").
const CLUSTER_BLOCKS_MAX: u64 = 8;

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

#[inline]
fn launch(driver: &Driver, context: &Context, request: Request) -> Answer {
    let kernel = kernel::find(driver, request.function)?;
    let stream = stream::find(driver, context, request.stream)?;
    if kernel.owner.context != 0 && kernel.owner.context != stream.context {
        return Err(Code::INVALID_HANDLE);
    }
    let shape = request.shape;
    kernel.check_shape(shape)?;
    let options = match request.options == LaunchOptions::PLAIN {
        true => request.options,
        false => checked_options(driver, &kernel, shape, request.options)?,
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
        let submitted = stream.submit_packets(driver, |commands| {
            commands.launch_with(handle, shape, options, block)
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
    check_cluster(driver, shape, options.cluster)?;
    match driver.has(features::LAUNCH_OPTIONS) {
        true => Ok(options),
        false if blocks_of(options.cluster) > 1 => Err(Code::NOT_SUPPORTED),
        false => Ok(LaunchOptions::PLAIN),
    }
}

fn blocks_of(sides: [u32; 3]) -> u64 {
    sides
        .iter()
        .map(|side| u64::from(*side))
        .fold(1, u64::saturating_mul)
}

/// Refuses clusters that do not divide the grid, or that have more blocks than those of the device.
fn check_cluster(driver: &Driver, shape: LaunchShape, cluster: [u32; 3]) -> Answer {
    if cluster == [0; 3] {
        return Ok(());
    }
    let is_divisor = |(grid, cluster): (u32, u32)| cluster != 0 && grid.is_multiple_of(cluster);
    let divides = shape.grid.into_iter().zip(cluster).all(is_divisor);
    match divides && blocks_of(cluster) <= cluster_blocks_max(driver) {
        true => Ok(()),
        false => Err(Code::INVALID_CLUSTER_SIZE),
    }
}

/// Returns how many blocks a cluster may have.
pub(crate) fn cluster_blocks_max(driver: &Driver) -> u64 {
    match device::attribute(driver, CLUSTER_LAUNCH) {
        Some(1) => CLUSTER_BLOCKS_MAX,
        _ => 1,
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
    call_in_context(|driver, context| launch(driver, context, request))
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
