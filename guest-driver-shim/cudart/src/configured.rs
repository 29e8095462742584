//! What `<<<>>>` becomes: nvcc's code pushes the configuration of a launch, evaluates the
//! arguments, and pops it in the function that launches (`crt/host_runtime.h`).
//!
//! Rare cases have functions of their own, with the same arguments, so that the usual path saves no
//! registers.

use std::mem::MaybeUninit;

use crate::error::record;
use crate::launch::Configuration;
use crate::pushed;
use crate::shapes::Dim3;

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    if pushed::push(Configuration::new(grid, block, shared_bytes, stream)) {
        return 0;
    }
    push_anyhow(grid, block, shared_bytes, stream)
}

#[cold]
#[inline(never)]
extern "C" fn push_anyhow(grid: Dim3, block: Dim3, shared_bytes: usize, stream: usize) -> u32 {
    pushed::push_anyhow(Configuration::new(grid, block, shared_bytes, stream));
    0
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: &mut MaybeUninit<Dim3>,
    block: &mut MaybeUninit<Dim3>,
    shared_bytes: &mut MaybeUninit<usize>,
    stream: &mut MaybeUninit<usize>,
) -> u32 {
    match pushed::pop() {
        Some(it) => {
            give(&it, grid, block, shared_bytes, stream);
            0
        }
        None => pop_anyhow(grid, block, shared_bytes, stream),
    }
}

#[cold]
#[inline(never)]
extern "C" fn pop_anyhow(
    grid: &mut MaybeUninit<Dim3>,
    block: &mut MaybeUninit<Dim3>,
    shared_bytes: &mut MaybeUninit<usize>,
    stream: &mut MaybeUninit<usize>,
) -> u32 {
    record(pushed::pop_anyhow().map(|it| give(&it, grid, block, shared_bytes, stream)))
}

#[inline]
fn give(
    it: &Configuration,
    grid: &mut MaybeUninit<Dim3>,
    block: &mut MaybeUninit<Dim3>,
    shared_bytes: &mut MaybeUninit<usize>,
    stream: &mut MaybeUninit<usize>,
) {
    grid.write(it.grid);
    block.write(it.block);
    shared_bytes.write(it.shared_bytes);
    stream.write(it.stream);
}
