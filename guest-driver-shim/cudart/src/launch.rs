//! Launches: what `<<<>>>` becomes, and the functions for it (CUDA Runtime API, "Execution
//! Control").

use std::cell::RefCell;

use causeway_cuda_abi::boundary::{In, Out};
use causeway_cuda_abi::error::{Answer, Code};

use crate::context::answer;
use crate::driver::driver;
use crate::error::{MISSING_CONFIGURATION, record};
use crate::library;
use crate::registry::{self, Kernel};
use crate::shapes::{Dim3, LaunchConfiguration, own};

/// Where and how large a launch is.
#[derive(Clone, Copy, Debug)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: usize,
}

/// How deep launches can be in the arguments of others.
const DEPTH_MAX: usize = 16;

/// What `<<<>>>` said of launches whose arguments are being evaluated, which may launch, too.
struct Pushed {
    all: [Configuration; DEPTH_MAX],
    count: usize,
}

thread_local! {
    // It needs no destructor, so that destructors of a thread can still launch.
    static PUSHED: RefCell<Pushed> = const { RefCell::new(Pushed::NONE) };
}

impl Pushed {
    const NONE: Self = Self {
        all: [Configuration::NONE; DEPTH_MAX],
        count: 0,
    };

    fn push(&mut self, configuration: Configuration) -> Answer {
        let place = self.all.get_mut(self.count).ok_or(Code::OUT_OF_MEMORY)?;
        *place = configuration;
        self.count += 1;
        Ok(())
    }

    fn pop(&mut self) -> Answer<Configuration> {
        self.count = self.count.checked_sub(1).ok_or(MISSING_CONFIGURATION)?;
        Ok(self.all[self.count])
    }
}

impl Configuration {
    const NONE: Self = Self {
        grid: Dim3::ONE,
        block: Dim3::ONE,
        shared_bytes: 0,
        stream: 0,
    };
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    let configuration = Configuration {
        grid,
        block,
        shared_bytes,
        stream,
    };
    record(PUSHED.with_borrow_mut(|pushed| pushed.push(configuration)))
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: Out<Dim3>,
    block: Out<Dim3>,
    shared_bytes: Out<usize>,
    stream: Out<usize>,
) -> u32 {
    let pushed = PUSHED.with_borrow_mut(Pushed::pop);
    record(pushed.and_then(|it| {
        grid.set(it.grid)?;
        block.set(it.block)?;
        shared_bytes.set(it.shared_bytes)?;
        stream.set(it.stream)
    }))
}

/// Gives nvcc's code what it launches by later. It asks only once, possibly before the program has
/// chosen a device, so this is a kernel of the registry, and not the driver's.
#[unsafe(no_mangle)]
extern "C" fn __cudaGetKernel(kernel: Out<usize>, host_function: usize) -> u32 {
    let found = registry::kernel(host_function).ok_or(Code::INVALID_HANDLE);
    record(found.and_then(|found| kernel.set(std::ptr::from_ref(found) as usize)))
}

/// `kernel` is what [`__cudaGetKernel`] gave, or null.
#[unsafe(no_mangle)]
extern "C" fn __cudaLaunchKernel(
    kernel: Option<&'static Kernel>,
    grid: Dim3,
    block: Dim3,
    arguments: usize,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    let configuration = Configuration {
        grid,
        block,
        shared_bytes,
        stream,
    };
    answer(|| {
        let kernel = kernel.ok_or(Code::INVALID_HANDLE)?;
        launch(kernel.handle()?, &configuration, arguments)
    })
}

#[unsafe(no_mangle)]
extern "C" fn __cudaLaunchKernel_ptsz(
    kernel: Option<&'static Kernel>,
    grid: Dim3,
    block: Dim3,
    arguments: usize,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    __cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, own(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchKernel(
    function: usize,
    grid: Dim3,
    block: Dim3,
    arguments: usize,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    let configuration = Configuration {
        grid,
        block,
        shared_bytes,
        stream,
    };
    answer(|| launch(handle(function)?, &configuration, arguments))
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchKernel_ptsz(
    function: usize,
    grid: Dim3,
    block: Dim3,
    arguments: usize,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    cudaLaunchKernel(function, grid, block, arguments, shared_bytes, own(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchCooperativeKernel(
    function: usize,
    grid: Dim3,
    block: Dim3,
    arguments: usize,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    answer(|| {
        let (kernel, shared) = (handle(function)?, shared_of(shared_bytes)?);
        driver!(cuLaunchCooperativeKernel(
            kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments
        ))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchCooperativeKernel_ptsz(
    function: usize,
    grid: Dim3,
    block: Dim3,
    arguments: usize,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    cudaLaunchCooperativeKernel(function, grid, block, arguments, shared_bytes, own(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchKernelExC(
    configuration: In<LaunchConfiguration>,
    function: usize,
    arguments: usize,
) -> u32 {
    answer(|| launch_with_attributes(configuration.get()?, function, arguments))
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchKernelExC_ptsz(
    configuration: In<LaunchConfiguration>,
    function: usize,
    arguments: usize,
) -> u32 {
    answer(|| {
        let mut configuration = configuration.get()?;
        configuration.stream = own(configuration.stream);
        launch_with_attributes(configuration, function, arguments)
    })
}

/// `CUlaunchConfig` of the driver, whose attributes are the runtime's.
#[derive(Debug)]
#[repr(C)]
pub struct DriverConfiguration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: u32,
    stream: usize,
    attributes: usize,
    attribute_count: u32,
}

/// Returns what the driver is told of a launch.
pub fn driver_configuration(it: LaunchConfiguration) -> Answer<DriverConfiguration> {
    Ok(DriverConfiguration {
        grid: it.grid,
        block: it.block,
        shared_bytes: shared_of(it.shared_bytes)?,
        stream: it.stream,
        attributes: it.attributes,
        attribute_count: it.attribute_count,
    })
}

fn launch_with_attributes(it: LaunchConfiguration, function: usize, arguments: usize) -> Answer {
    let configuration = driver_configuration(it)?;
    let (kernel, no_extra) = (handle(function)?, 0_usize);
    driver!(cuLaunchKernelEx(
        &raw const configuration,
        kernel,
        arguments,
        no_extra
    ))
}

#[inline]
fn launch(kernel: usize, it: &Configuration, arguments: usize) -> Answer {
    let (grid, block, no_extra) = (it.grid, it.block, 0_usize);
    let shared = shared_of(it.shared_bytes)?;
    driver!(cuLaunchKernel(
        kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, it.stream, arguments,
        no_extra
    ))
}

/// The driver's handle of the kernel that `function` says: the host function that launches it, or
/// a `cudaKernel_t`, which is this handle.
#[inline]
pub fn handle(function: usize) -> Answer<usize> {
    match registry::kernel(function) {
        Some(kernel) => kernel.handle(),
        None if library::has_given(function) => Ok(function),
        None => Err(Code::INVALID_HANDLE),
    }
}

fn shared_of(bytes: usize) -> Answer<u32> {
    u32::try_from(bytes).map_err(|_| Code::INVALID_VALUE)
}
