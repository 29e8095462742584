//! What `<<<>>>` becomes: nvcc's code pushes the configuration of a launch, evaluates the
//! arguments, and pops it in the function that launches (`crt/host_runtime.h`).

use std::cell::Cell;
use std::mem::MaybeUninit;

use causeway_cuda_abi::error::{Answer, Code};

use crate::error::{MISSING_CONFIGURATION, record};
use crate::launch::Configuration;
use crate::shapes::Dim3;

/// How deep launches can be in the arguments of others.
const DEPTH_MAX: usize = 16;

/// What `<<<>>>` said of launches whose arguments are being evaluated, which may launch, too.
///
/// With this order and alignment, the count and the first configuration share a cache line.
#[repr(C, align(64))]
struct Pushed {
    count: Cell<usize>,
    all: [Cell<Configuration>; DEPTH_MAX],
}

thread_local! {
    // It needs no destructor, so that destructors of a thread can still launch.
    static PUSHED: Pushed = const { Pushed::none() };
}

impl Pushed {
    const fn none() -> Self {
        Self {
            count: Cell::new(0),
            all: [const { Cell::new(Configuration::NONE) }; DEPTH_MAX],
        }
    }

    #[inline]
    fn push(&self, configuration: Configuration) -> Answer {
        let count = self.count.get();
        let place = self.all.get(count).ok_or(Code::OUT_OF_MEMORY)?;
        place.set(configuration);
        self.count.set(count + 1);
        Ok(())
    }

    #[inline]
    fn pop(&self) -> Answer<Configuration> {
        let count = self.count.get().wrapping_sub(1);
        let place = self.all.get(count).ok_or(MISSING_CONFIGURATION)?;
        self.count.set(count);
        Ok(place.get())
    }
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    let configuration = Configuration::new(grid, block, shared_bytes, stream);
    record(PUSHED.with(|pushed| pushed.push(configuration)))
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: &mut MaybeUninit<Dim3>,
    block: &mut MaybeUninit<Dim3>,
    shared_bytes: &mut MaybeUninit<usize>,
    stream: &mut MaybeUninit<usize>,
) -> u32 {
    record(PUSHED.with(Pushed::pop).map(|it| {
        grid.write(it.grid);
        block.write(it.block);
        shared_bytes.write(it.shared_bytes);
        stream.write(it.stream);
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_launch_comes_back_first_and_what_does_not_fit_is_refused() {
        let pushed = Pushed::none();
        let empty = |pushed: &Pushed| pushed.pop().err() == Some(MISSING_CONFIGURATION);
        assert!(empty(&pushed) && empty(&pushed));
        for depth in 0..DEPTH_MAX {
            let configuration = Configuration::new(Dim3::ONE, Dim3::ONE, depth, 0);
            assert_eq!(pushed.push(configuration), Ok(()));
        }
        assert_eq!(pushed.push(Configuration::NONE), Err(Code::OUT_OF_MEMORY));
        for depth in (0..DEPTH_MAX).rev() {
            assert_eq!(pushed.pop().map(|it| it.shared_bytes), Ok(depth));
        }
        assert!(empty(&pushed));
    }
}
