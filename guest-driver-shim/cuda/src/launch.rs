//! Launches (CUDA driver API, "Execution Control"). Parameters are read at the call.
//!
//! What the device would refuse is refused here, so that the error comes from the call and the ring
//! goes on.

mod attributes;
mod parameters;

use causeway_protocol::packet::LaunchShape;

use crate::boundary::In;
use crate::context::Context;
use crate::driver::{Driver, call_in_context, call_in_stream};
use crate::error::{Answer, Code};
use crate::kernel::{self, Kernel};
use crate::occupancy;
use crate::stream;
use crate::structures::LaunchConfiguration;
use crate::work::Work;

pub(crate) use attributes::read as check_attributes;
pub(crate) use parameters::with_block;

/// What a launch asks for.
#[derive(Clone, Copy)]
struct Request {
    function: usize,
    shape: LaunchShape,
    stream: usize,
    /// Whether all blocks must run at the same time.
    is_cooperative: bool,
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
    if request.is_cooperative {
        check_cooperative(driver, &kernel, shape)?;
    }
    if stream.is_capturing() {
        let work = Work::Launch {
            parameters: kernel.gather(request.parameters, request.extra)?,
            kernel,
            shape,
        };
        return stream.submit(driver, work);
    }
    let (layout, bytes) = (&kernel.layout, kernel.parameter_bytes);
    with_block(layout, bytes, request.parameters, request.extra, |block| {
        let handle = kernel.handle();
        let submitted = stream.submit_packets(driver, |commands| {
            commands.launch_packed(handle, shape, block)
        });
        submitted.map(drop)
    })
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
        is_cooperative: false,
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
        is_cooperative: true,
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
        let attributes = attributes::read(&given)?;
        let request = Request {
            function,
            shape: LaunchShape {
                shared_bytes: given.shared_bytes,
                grid: given.grid,
                block: given.block,
            },
            stream: given.stream,
            is_cooperative: attributes.is_cooperative,
            parameters,
            extra,
        };
        launch(driver, context, request)
    })
}
