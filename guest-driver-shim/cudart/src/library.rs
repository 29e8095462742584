//! Libraries that a program loads itself, and the handles of kernels (CUDA Runtime API, "Library
//! Management"). `cudaKernel_t` is the driver's `CUkernel`. A program may pass one wherever it may
//! pass a host function, so those that it was given are remembered.

use std::collections::BTreeSet;

use causeway_cuda_abi::boundary::{In, Out};
use parking_lot::RwLock;

use crate::context::answer;
use crate::driver::driver;
use crate::launch::handle;

/// Handles that programs were given. A library that is unloaded leaves its own behind, which its
/// program may not use any more.
static GIVEN: RwLock<BTreeSet<usize>> = RwLock::new(BTreeSet::new());

/// Whether this is a handle that the program was given.
pub fn has_given(kernel: usize) -> bool {
    GIVEN.read().contains(&kernel)
}

/// Returns all of them, each as the program knows it, and as the driver does, which is the same.
pub fn given() -> Vec<(usize, usize)> {
    GIVEN
        .read()
        .iter()
        .map(|kernel| (*kernel, *kernel))
        .collect()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetKernel(into: Out<usize>, function: usize) -> u32 {
    answer(|| {
        let kernel = handle(function)?;
        GIVEN.write().insert(kernel);
        into.set(kernel)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaLibraryGetKernel(into: Out<usize>, library: usize, name: usize) -> u32 {
    answer(|| {
        let mut kernel = 0_usize;
        driver!(cuLibraryGetKernel(&raw mut kernel, library, name))?;
        GIVEN.write().insert(kernel);
        into.set(kernel)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaLibraryEnumerateKernels(kernels: Out<usize>, room: u32, library: usize) -> u32 {
    answer(|| {
        let mut count = 0_u32;
        driver!(cuLibraryGetKernelCount(&raw mut count, library))?;
        driver!(cuLibraryEnumerateKernels(kernels, room, library))?;
        let listed = In::at(kernels.address_of(0)?).list(count.min(room) as usize)?;
        GIVEN.write().extend::<Vec<usize>>(listed);
        Ok(())
    })
}
