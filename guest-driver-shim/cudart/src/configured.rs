//! What `<<<>>>` becomes: nvcc's code pushes the configuration of a launch, evaluates the
//! arguments, and pops it in the function that launches (`crt/host_runtime.h`).

use std::cell::RefCell;

use causeway_cuda_abi::boundary::Out;
use causeway_cuda_abi::error::{Answer, Code};

use crate::error::{MISSING_CONFIGURATION, record};
use crate::launch::Configuration;
use crate::shapes::Dim3;

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

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: usize,
) -> u32 {
    let configuration = Configuration::new(grid, block, shared_bytes, stream);
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
