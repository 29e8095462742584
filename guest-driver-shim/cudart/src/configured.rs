//! What `<<<>>>` becomes: nvcc's code pushes the configuration of a launch, evaluates the
//! arguments, and pops it in the function that launches (`crt/host_runtime.h`).
//!
//! What is seldom done is in functions of the same arguments, to which the others jump: they keep
//! no registers for it.

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
    if pushed::push_first(Configuration::new(grid, block, shared_bytes, stream)) {
        return 0;
    }
    push_inner(grid, block, shared_bytes, stream)
}

#[cold]
#[inline(never)]
extern "C" fn push_inner(grid: Dim3, block: Dim3, shared_bytes: usize, stream: usize) -> u32 {
    pushed::push_inner(Configuration::new(grid, block, shared_bytes, stream));
    0
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: &mut MaybeUninit<Dim3>,
    block: &mut MaybeUninit<Dim3>,
    shared_bytes: &mut MaybeUninit<usize>,
    stream: &mut MaybeUninit<usize>,
) -> u32 {
    match pushed::pop_first() {
        Some(it) => {
            give(&it, grid, block, shared_bytes, stream);
            0
        }
        None => pop_inner(grid, block, shared_bytes, stream),
    }
}

#[cold]
#[inline(never)]
extern "C" fn pop_inner(
    grid: &mut MaybeUninit<Dim3>,
    block: &mut MaybeUninit<Dim3>,
    shared_bytes: &mut MaybeUninit<usize>,
    stream: &mut MaybeUninit<usize>,
) -> u32 {
    record(pushed::pop_inner().map(|it| give(&it, grid, block, shared_bytes, stream)))
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
