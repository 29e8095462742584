//! Launches (CUDA Runtime API, "Execution Control").

use causeway_cuda_abi::boundary::{In, Out};
use causeway_cuda_abi::error::{Answer, Code};

use crate::driver::driver;
use crate::library;
use crate::registry::{self, Kernel};
use crate::shapes::{Dim3, LaunchConfiguration, own};
use crate::table::calls;

/// Where and how large a launch is.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared_bytes: usize,
    pub stream: usize,
}

impl Configuration {
    pub const fn new(grid: Dim3, block: Dim3, shared_bytes: usize, stream: usize) -> Self {
        Self {
            grid,
            block,
            shared_bytes,
            stream,
        }
    }
}

calls! {
    // nvcc's code asks for what it launches by only once, possibly before the program has chosen a
    // device: this is a kernel of the registry, and not the driver's.
    fn __cudaGetKernel(kernel: Out<usize>, host_function: usize) => {
        let found = registry::kernel(host_function).ok_or(Code::INVALID_HANDLE)?;
        kernel.set(std::ptr::from_ref(found) as usize)
    };
    // `kernel` is what the function above gave, or null.
    fn __cudaLaunchKernel(kernel: Option<&'static Kernel>, grid: Dim3, block: Dim3,
                          arguments: usize, shared_bytes: usize, stream: usize)
        / __cudaLaunchKernel_ptsz(kernel, grid, block, arguments, shared_bytes, own(stream))
        => registered(kernel, &Configuration::new(grid, block, shared_bytes, stream), arguments);
    fn cudaLaunchKernel(function: usize, grid: Dim3, block: Dim3, arguments: usize,
                        shared_bytes: usize, stream: usize)
        / cudaLaunchKernel_ptsz(function, grid, block, arguments, shared_bytes, own(stream))
        => of_function(function, &Configuration::new(grid, block, shared_bytes, stream), arguments);
    fn cudaLaunchCooperativeKernel(function: usize, grid: Dim3, block: Dim3, arguments: usize,
                                   shared_bytes: usize, stream: usize)
        / cudaLaunchCooperativeKernel_ptsz(function, grid, block, arguments, shared_bytes,
                                           own(stream))
        => cooperative(function, &Configuration::new(grid, block, shared_bytes, stream), arguments);
    fn cudaLaunchKernelExC(configuration: In<LaunchConfiguration>, function: usize,
                           arguments: usize)
        => with_attributes(configuration.get()?, function, arguments);
    fn cudaLaunchKernelExC_ptsz(configuration: In<LaunchConfiguration>, function: usize,
                                arguments: usize) => {
        let mut configuration = configuration.get()?;
        configuration.stream = own(configuration.stream);
        with_attributes(configuration, function, arguments)
    };
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

/// Launches as the attributes of the configuration say.
pub fn with_attributes(it: LaunchConfiguration, function: usize, arguments: usize) -> Answer {
    let configuration = driver_configuration(it)?;
    let (kernel, no_extra) = (handle(function)?, 0_usize);
    driver!(cuLaunchKernelEx(
        &raw const configuration,
        kernel,
        arguments,
        no_extra
    ))
}

/// Launches a kernel of the registry, or fails for none.
#[inline]
pub fn registered(kernel: Option<&'static Kernel>, it: &Configuration, arguments: usize) -> Answer {
    launch(kernel.ok_or(Code::INVALID_HANDLE)?.handle()?, it, arguments)
}

/// Launches the kernel that `function` says, as [`handle`] understands it.
#[inline]
pub fn of_function(function: usize, it: &Configuration, arguments: usize) -> Answer {
    launch(handle(function)?, it, arguments)
}

/// Launches a kernel of which all blocks run at the same time.
pub fn cooperative(function: usize, it: &Configuration, arguments: usize) -> Answer {
    let (grid, block) = (it.grid, it.block);
    let (kernel, shared) = (handle(function)?, shared_of(it.shared_bytes)?);
    driver!(cuLaunchCooperativeKernel(
        kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, it.stream, arguments
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
