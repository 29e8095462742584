//! The mechanism of this project: memory in the aperture, launches in a ring.

#![allow(unsafe_code, reason = "hand-written loops over the aperture")]

use causeway_bench_workloads::{KERNELS, Kernel, Mechanism, Shape};
use causeway_guests::{CaseMemory, Pipeline, Required, touch};
use causeway_kernels::loops;
use causeway_shim::{
    self as shim, AddressSpace, Buffer, Device, LaunchShape, MemoryKind, Module, Patience,
};

/// Size of the ring in units.
const RING_UNITS: u64 = 4096;

/// Loads the modules of all kernels.
pub fn modules<'d>(
    memory: &mut CaseMemory,
    space: &AddressSpace<'d>,
) -> [Module<'d>; KERNELS.len()] {
    KERNELS.map(|kernel| memory.load_module(space, kernel.ptx()))
}

/// The kernels of all workloads, by their number.
pub struct Kernels<'m>([shim::Kernel<'m>; KERNELS.len()]);

impl<'m> Kernels<'m> {
    /// Finds the kernels in their modules.
    pub fn find(modules: &'m [Module<'_>; KERNELS.len()]) -> Self {
        let find = |kernel: Kernel| {
            let name = kernel.name();
            modules[kernel as usize].kernel(name).required(name)
        };
        Self(KERNELS.map(find))
    }
}

/// The mediated device, with a command buffer.
pub struct Mediated<'k, 'd> {
    device: &'d Device<'d>,
    space: &'k AddressSpace<'d>,
    kernels: &'k Kernels<'k>,
    pipeline: Pipeline<'d>,
    /// Whether a kernel was launched for which nothing has waited yet.
    busy: bool,
}

impl<'k, 'd> Mediated<'k, 'd> {
    /// Returns the mechanism on `device`, with a new command buffer.
    pub fn new(
        device: &'d Device<'d>,
        space: &'k AddressSpace<'d>,
        kernels: &'k Kernels<'k>,
    ) -> Self {
        Self {
            device,
            space,
            kernels,
            pipeline: Pipeline::new(device, space, RING_UNITS),
            busy: false,
        }
    }

    /// Returns the address of a part of memory, when no work is under way.
    #[inline]
    fn settled(&mut self, memory: &Buffer<'_>, offset: usize, bytes: usize) -> *mut u8 {
        self.synchronize();
        let window = memory.cpu.window();
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= window.bytes()),
            "beyond memory"
        );
        window.as_ptr().as_ptr().wrapping_add(offset)
    }
}

impl<'d> Mechanism for Mediated<'_, 'd> {
    type Memory = Buffer<'d>;

    fn allocate(&mut self, bytes: usize) -> Buffer<'d> {
        let buffer = Buffer::new(self.device, self.space, bytes as u64, MemoryKind::Host);
        buffer.required("memory")
    }

    fn free(&mut self, memory: Buffer<'d>) {
        self.synchronize();
        memory.free().required("freeing memory");
    }

    fn touch(&mut self, memory: &Buffer<'d>, _: usize) {
        touch::pages(memory.cpu.window());
    }

    fn address(&self, memory: &Buffer<'d>) -> u64 {
        memory.gpu.address()
    }

    fn store_words(&mut self, memory: &Buffer<'d>, words: usize, passes: u32) {
        let part = self.settled(memory, 0, 8 * words);
        // SAFETY: the window has that many words, begins at a page, and nobody has references to
        // it.
        unsafe { loops::store(part.cast(), words, passes) };
    }

    fn load_words(&mut self, memory: &Buffer<'d>, words: usize, passes: u32) -> u64 {
        let part = self.settled(memory, 0, 8 * words);
        // SAFETY: as for stores.
        unsafe { loops::load(part.cast(), words, passes) }
    }

    fn copy_in(&mut self, memory: &Buffer<'d>, offset: usize, from: &[u8]) {
        let part = self.settled(memory, offset, from.len());
        // SAFETY: the part has as many bytes, is no part of what the program has references to, and
        // may be written.
        unsafe { loops::copy(part, from.as_ptr(), from.len()) };
    }

    fn copy_out(&mut self, memory: &Buffer<'d>, offset: usize, into: &mut [u8]) {
        let part = self.settled(memory, offset, into.len());
        // SAFETY: as for the other direction.
        unsafe { loops::copy(into.as_mut_ptr(), part, into.len()) };
    }

    fn launch(&mut self, kernel: Kernel, shape: Shape, arguments: &[u64]) {
        let function = &self.kernels.0[kernel as usize];
        let mut parameters = function.parameters().required(kernel.name());
        for (index, argument) in arguments.iter().enumerate() {
            let bytes = argument.to_le_bytes();
            let size = function.layout()[index].size;
            let set = parameters.set(index, &bytes[..usize::from(size)]);
            set.required("an argument");
        }
        let shape = LaunchShape {
            grid: [shape.grid[0], shape.grid[1], 1],
            block: [shape.block[0], shape.block[1], 1],
            shared_bytes: 0,
        };
        let commands = &mut self.pipeline.commands;
        commands.launch(shape, &parameters).required("launching");
        commands.submit();
        self.busy = true;
    }

    fn synchronize(&mut self) {
        if self.busy {
            let value = self.pipeline.finish();
            let waited = self.pipeline.wait(value, Patience::SPIN);
            waited.required("waiting for the device");
            self.busy = false;
        }
    }

    fn get_ready(&mut self) {
        self.synchronize();
        self.pipeline.arm();
    }

    fn doorbells(&self) -> u64 {
        self.pipeline.commands.doorbells_rung()
    }

    fn wake(&mut self) {
        self.pipeline.open();
        // The consumer may have gone to sleep at the gate. It looks for more for a while, once it
        // has released this.
        self.busy = true;
        self.synchronize();
    }
}
