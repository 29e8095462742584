//! Launches (CUDA driver API, "Execution Control"). Parameters are read at the call.

use std::sync::atomic::Ordering;

use causeway_mediator::backend::{Launch, LaunchOptions, LaunchShape};
use causeway_protocol::packet::launch_flags;

use crate::boundary::In;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::function::{self, Kernel};
use crate::stream;
use crate::structures::{LaunchAttribute, LaunchConfiguration};
use crate::work::Work;

/// Keys in the list of extra options.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// Largest dimensions of a grid and of a block (CUDA programming guide, "Technical
/// Specifications").
const GRID_MAX: [u32; 3] = [(1 << 31) - 1, 65535, 65535];
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];
const THREADS_MAX: u32 = 1024;

/// The work of a launch, checked as far as a call checks it.
pub(crate) fn launch_work(
    kernel: &Kernel,
    (shape, options): (LaunchShape, LaunchOptions),
    parameters: In<usize>,
    extra: In<usize>,
) -> Answer<Work> {
    check_shape(kernel, shape)?;
    let parameters = match (parameters.is_null(), extra.is_null()) {
        (false, true) => gathered(kernel, parameters)?,
        (true, false) => packed(kernel, extra)?,
        (true, true) if kernel.function.parameters().is_empty() => Vec::new(),
        _ => return Err(Code::INVALID_VALUE),
    };
    let checked = Launch::new(&kernel.function, shape, &parameters)
        .and_then(|launch| launch.with_options(options).map(drop));
    if let Err(fault) = checked {
        let name = &kernel.name;
        eprintln!("stand-in driver: launch of `{name}` refused: {fault}");
        return Err(match fault.cuda_result {
            0 => Code::LAUNCH_OUT_OF_RESOURCES,
            code => Code(code),
        });
    }
    Ok(Work::Launch {
        function: std::sync::Arc::clone(&kernel.function),
        shape,
        options,
        parameters,
    })
}

fn check_shape(kernel: &Kernel, shape: LaunchShape) -> Answer {
    let exceeds = |given: [u32; 3], max: [u32; 3]| {
        given.contains(&0) || given.iter().zip(max).any(|(given, max)| *given > max)
    };
    if exceeds(shape.grid, GRID_MAX) || exceeds(shape.block, BLOCK_MAX) {
        return Err(Code::INVALID_VALUE);
    }
    // Within the limits above, the product fits 32 bits.
    let threads: u32 = shape.block.iter().product();
    let shared_max = kernel.dynamic_shared_max.load(Ordering::Relaxed);
    if threads > THREADS_MAX || shape.shared_bytes > shared_max {
        return Err(Code::INVALID_VALUE);
    }
    if threads > kernel.function.block_threads_max() {
        return Err(Code::LAUNCH_OUT_OF_RESOURCES);
    }
    Ok(())
}

/// Parameters behind one pointer each.
fn gathered(kernel: &Kernel, pointers: In<usize>) -> Answer<Vec<u8>> {
    let mut block = vec![0; kernel.function.parameter_bytes() as usize];
    for (index, parameter) in kernel.function.parameters().iter().enumerate() {
        let bytes = usize::from(parameter.size);
        let given = In::<u8>::at(pointers.get_at(index)?).list(bytes)?;
        let offset = usize::from(parameter.offset);
        block[offset..offset + bytes].copy_from_slice(&given);
    }
    Ok(block)
}

/// Parameters in one block.
fn packed(kernel: &Kernel, extra: In<usize>) -> Answer<Vec<u8>> {
    let (mut buffer, mut bytes) = (0, None);
    let mut index = 0;
    loop {
        match extra.get_at(index)? {
            0 => break,
            BUFFER_POINTER => buffer = extra.get_at(index + 1)?,
            BUFFER_SIZE => bytes = Some(In::<usize>::at(extra.get_at(index + 1)?).get()?),
            _ => return Err(Code::INVALID_VALUE),
        }
        index += 2;
    }
    let bytes = bytes.ok_or(Code::INVALID_VALUE)?;
    let last = kernel.function.parameters().last();
    let needed = last.map_or(0, |last| usize::from(last.offset) + usize::from(last.size));
    let wanted = kernel.function.parameter_bytes() as usize;
    if bytes < needed || bytes > wanted.next_multiple_of(16) {
        return Err(Code::INVALID_VALUE);
    }
    let mut block = In::<u8>::at(buffer).list(bytes)?;
    block.resize(wanted, 0);
    Ok(block)
}

fn launch(
    function: usize,
    asked: (LaunchShape, LaunchOptions),
    stream: usize,
    (parameters, extra): (In<usize>, In<usize>),
) -> u32 {
    call_in_context(|driver: &'static Driver, context| {
        let kernel = function::find(driver, function)?;
        let stream = stream::find(driver, context, stream)?;
        if kernel.context != stream.context && !shares(driver, &kernel, stream.context) {
            return Err(Code::INVALID_HANDLE);
        }
        let work = launch_work(&kernel, asked, parameters, extra)?;
        stream.submit(driver, work).map(drop)
    })
}

/// A green context runs functions that its primary context has loaded, and the other way round.
fn shares(driver: &Driver, kernel: &Kernel, context: usize) -> bool {
    use crate::context::Kind;
    let state = driver.state();
    let kind = |handle| {
        state
            .contexts
            .get(handle)
            .map(|found| (found.kind, found.device))
    };
    match (kind(kernel.context), kind(context)) {
        (Some((first, device)), Some((second, other))) => {
            let related = |kind| matches!(kind, Kind::Primary | Kind::Green);
            device == other && related(first) && related(second)
        }
        _ => false,
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
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared_bytes,
    };
    launch(
        function,
        (shape, LaunchOptions::PLAIN),
        stream,
        (parameters, extra),
    )
}

/// Reads the attributes of a launch: those of cooperative launches and of clusters.
fn options(given: &LaunchConfiguration) -> Answer<LaunchOptions> {
    let mut options = LaunchOptions::PLAIN;
    let attributes = In::<LaunchAttribute>::at(given.attributes);
    for LaunchAttribute { kind, value, .. } in attributes.list(given.attributes_count as usize)? {
        match kind {
            2 if value[0] != 0 => options.flags |= launch_flags::COOPERATIVE,
            2 => {}
            4 => options.cluster = [value[0], value[1], value[2]],
            _ => return Err(Code::NOT_SUPPORTED),
        }
    }
    Ok(options)
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx(
    configuration: In<LaunchConfiguration>,
    function: usize,
    parameters: In<usize>,
    extra: In<usize>,
) -> u32 {
    let Ok(given) = configuration.get() else {
        return Code::INVALID_VALUE.0;
    };
    let options = match options(&given) {
        Ok(options) => options,
        Err(code) => return code.0,
    };
    let shape = LaunchShape {
        grid: given.grid,
        block: given.block,
        shared_bytes: given.shared_bytes,
    };
    launch(
        function,
        (shape, options),
        given.stream,
        (parameters, extra),
    )
}
