//! Launches by programs of CUDA 12, whose runtime has its own error for a grid or a block that
//! exceeds the device's limits. CUDA 13's answers `cudaErrorInvalidValue`, as the driver does.

use causeway_cuda_abi::boundary::In;
use causeway_cuda_abi::error::{Answer, Code};

use crate::context::device;
use crate::driver::driver;
use crate::error::INVALID_CONFIGURATION;
use crate::launch::{Configuration, cooperative, of_function, registered, with_attributes};
use crate::registry::Kernel;
use crate::shapes::{Dim3, LaunchConfiguration, own};
use crate::table::calls;

calls! {
    fn __cuda12_LaunchKernel(kernel: Option<&'static Kernel>, grid: Dim3, block: Dim3,
                             arguments: usize, shared_bytes: usize, stream: usize)
        / __cuda12_LaunchKernel_ptsz(kernel, grid, block, arguments, shared_bytes, own(stream)) => {
        let it = Configuration::new(grid, block, shared_bytes, stream);
        registered(kernel, &it, arguments).map_err(|code| error_of(code, grid, block))
    };
    fn cuda12_LaunchKernel(function: usize, grid: Dim3, block: Dim3, arguments: usize,
                           shared_bytes: usize, stream: usize)
        / cuda12_LaunchKernel_ptsz(function, grid, block, arguments, shared_bytes, own(stream)) => {
        let it = Configuration::new(grid, block, shared_bytes, stream);
        of_function(function, &it, arguments).map_err(|code| error_of(code, grid, block))
    };
    fn cuda12_LaunchCooperativeKernel(function: usize, grid: Dim3, block: Dim3, arguments: usize,
                                      shared_bytes: usize, stream: usize)
        / cuda12_LaunchCooperativeKernel_ptsz(function, grid, block, arguments, shared_bytes,
                                              own(stream)) => {
        let it = Configuration::new(grid, block, shared_bytes, stream);
        cooperative(function, &it, arguments).map_err(|code| error_of(code, grid, block))
    };
    fn cuda12_LaunchKernelExC(configuration: In<LaunchConfiguration>, function: usize,
                              arguments: usize)
        => attributed(configuration.get()?, function, arguments);
    fn cuda12_LaunchKernelExC_ptsz(configuration: In<LaunchConfiguration>, function: usize,
                                   arguments: usize) => {
        let mut configuration = configuration.get()?;
        configuration.stream = own(configuration.stream);
        attributed(configuration, function, arguments)
    };
}

fn attributed(it: LaunchConfiguration, function: usize, arguments: usize) -> Answer {
    with_attributes(it, function, arguments).map_err(|code| error_of(code, it.grid, it.block))
}

/// Returns what a launch of this shape that failed with `code` answers. NVIDIA's runtime checks the
/// shape first, and returns this error whatever else is wrong, except for an unknown function. Here
/// the shape is checked only after a failure, so that valid launches are not delayed.
#[cold]
fn error_of(code: Code, grid: Dim3, block: Dim3) -> Code {
    let may_be_the_shape = [
        Code::INVALID_VALUE,
        Code::INVALID_CLUSTER_SIZE,
        Code::COOPERATIVE_LAUNCH_TOO_LARGE,
    ];
    match may_be_the_shape.contains(&code) && !fits(grid, block) {
        true => INVALID_CONFIGURATION,
        false => code,
    }
}

/// Whether the thread's device can have such a grid and such a block.
fn fits(grid: Dim3, block: Dim3) -> bool {
    /// Of `enum CUdevice_attribute`: threads of a block; the largest x, y and z of a block, and
    /// of a grid.
    const THREADS: u32 = 1;
    const BLOCK: u32 = 2;
    const GRID: u32 = 5;
    let device = device();
    let limit = |attribute: u32| {
        let mut value = 0_i32;
        let found = driver!(cuDeviceGetAttribute(&raw mut value, attribute, device));
        found.map_or(u64::MAX, |()| value as u64)
    };
    let sizes = |it: Dim3| [it.x, it.y, it.z].map(u64::from);
    let is_within = |it: Dim3, first: u32| {
        let mut with_limits = sizes(it).into_iter().zip(first..);
        with_limits.all(|(size, attribute)| (1..=limit(attribute)).contains(&size))
    };
    is_within(grid, GRID)
        && is_within(block, BLOCK)
        && sizes(block).into_iter().product::<u64>() <= limit(THREADS)
}
