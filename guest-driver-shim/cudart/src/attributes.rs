//! Attributes of kernels, and what fits on a device (CUDA Runtime API, "Execution Control" and
//! "Occupancy").

use causeway_cuda_abi::boundary::{In, Out, Text};
use causeway_cuda_abi::error::Answer;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::context::device;
use crate::driver::driver;
use crate::launch::{driver_configuration, handle};
use crate::shapes::LaunchConfiguration;
use crate::table::calls;

/// `cudaFuncAttributes`: sizes in bytes, then the attributes of [`NUMBERS`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct FunctionAttributes {
    sizes: [usize; 3],
    numbers: [i32; NUMBERS.len()],
    reserved: [i32; 17],
}

/// `enum CUfunction_attribute` of the sizes: shared, constant, local.
const SIZES: [u32; 3] = [1, 2, 3];

/// The same of the numbers behind them: threads of a block, registers, versions of PTX and of
/// machine code, caching, dynamic shared bytes, carveout, whether and how large clusters must be,
/// their scheduling, and whether they may be larger than all devices have.
const NUMBERS: [u32; 13] = [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14];

fn attribute(kernel: usize, number: u32) -> Answer<i32> {
    let (mut value, device) = (0_i32, device());
    driver!(cuKernelGetAttribute(&raw mut value, number, kernel, device))?;
    Ok(value)
}

calls! {
    fn cudaFuncGetAttributes(into: Out<FunctionAttributes>, function: usize)
        => into.set(attributes(handle(function)?)?);
    fn cudaFuncSetAttribute(function: usize, number: u32, value: i32)
        => set_attribute(handle(function)?, number, value, device());
    fn cudaKernelSetAttributeForDevice(kernel: usize, number: u32, value: i32, device: i32)
        => set_attribute(handle(kernel)?, number, value, device);
    fn cudaFuncSetCacheConfig(function: usize, preference: u32) => {
        let (kernel, device) = (handle(function)?, device());
        driver!(cuKernelSetCacheConfig(kernel, preference, device))
    };
    // Devices since Maxwell have one width of banks.
    fn cudaFuncSetSharedMemConfig(function: usize, _banks: u32) => handle(function).map(|_| ());
    fn cudaFuncGetName(name: Out<Text>, function: usize) => {
        let kernel = handle(function)?;
        driver!(cuKernelGetName(name, kernel))
    };
    fn cudaFuncGetParamInfo(function: usize, index: usize, offset: Out<usize>, bytes: Out<usize>)
        => {
        let kernel = handle(function)?;
        driver!(cuKernelGetParamInfo(kernel, index, offset, bytes))
    };
    // The driver's function of a kernel, in the current context.
    fn cudaGetFuncBySymbol(into: Out<usize>, function: usize) => {
        let kernel = handle(function)?;
        driver!(cuKernelGetFunction(into, kernel))
    };
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>, function: usize, block_threads: i32, shared_bytes: usize
    ) => {
        let kernel = handle(function)?;
        driver!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks, kernel, block_threads, shared_bytes
        ))
    };
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>, function: usize, block_threads: i32, shared_bytes: usize, flags: u32
    ) => {
        let kernel = handle(function)?;
        driver!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            blocks, kernel, block_threads, shared_bytes, flags
        ))
    };
    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>, function: usize, blocks: i32, block_threads: i32
    ) => {
        let kernel = handle(function)?;
        driver!(cuOccupancyAvailableDynamicSMemPerBlock(bytes, kernel, blocks, block_threads))
    };
    fn cudaOccupancyMaxActiveClusters(
        clusters: Out<i32>, function: usize, configuration: In<LaunchConfiguration>
    ) => {
        let configuration = driver_configuration(configuration.get()?)?;
        let kernel = handle(function)?;
        driver!(cuOccupancyMaxActiveClusters(clusters, kernel, &raw const configuration))
    };
    fn cudaOccupancyMaxPotentialClusterSize(
        blocks: Out<i32>, function: usize, configuration: In<LaunchConfiguration>
    ) => {
        let configuration = driver_configuration(configuration.get()?)?;
        let kernel = handle(function)?;
        driver!(cuOccupancyMaxPotentialClusterSize(blocks, kernel, &raw const configuration))
    };
}

fn attributes(kernel: usize) -> Answer<FunctionAttributes> {
    let mut it = FunctionAttributes {
        sizes: [0; 3],
        numbers: [0; NUMBERS.len()],
        reserved: [0; 17],
    };
    for (value, number) in it.sizes.iter_mut().zip(SIZES) {
        *value = attribute(kernel, number)? as usize;
    }
    for (value, number) in it.numbers.iter_mut().zip(NUMBERS) {
        *value = attribute(kernel, number)?;
    }
    Ok(it)
}

fn set_attribute(kernel: usize, number: u32, value: i32, device: i32) -> Answer {
    driver!(cuKernelSetAttribute(number, value, kernel, device))
}
