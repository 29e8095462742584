//! A small session over the back end: allocations mapped one behind the other, kernels launched by
//! name.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_mediator::backend::{
    AllocateOptions, Backend, Fault, Launch, LaunchShape, Memory, Module, ModuleError, Queue,
    Reservation, Space, Work,
};
use causeway_memory::Mapping;
use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;
use causeway_software::{Config, Engine, Software, SoftwareSpace};

/// Distance of buffers in the address space: what lies between is not mapped.
const DISTANCE: u64 = 1 << 32;

/// A buffer on the device.
pub struct Buffer {
    pub va: u64,
    pub memory: Arc<dyn Memory>,
    view: Mapping,
}

impl Buffer {
    pub fn write(&self, bytes: &[u8]) {
        self.view.write(0, bytes).unwrap();
    }

    pub fn bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.view.read(0, &mut bytes).unwrap();
        bytes
    }

    pub fn words(&self, count: usize) -> Vec<u32> {
        let bytes = self.bytes(4 * count);
        let words = bytes.chunks(4);
        words
            .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }

    pub fn doubles(&self, count: usize) -> Vec<u64> {
        let bytes = self.bytes(8 * count);
        let doubles = bytes.chunks(8);
        doubles
            .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }

    pub fn write_words(&self, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.write(&bytes);
    }
}

/// One address space with one queue.
pub struct Device {
    pub backend: Arc<Software>,
    pub space: Arc<SoftwareSpace>,
    pub queue: Box<dyn Queue>,
    pub stop: Arc<AtomicBool>,
    next: u64,
}

impl Device {
    pub fn new(cores: usize) -> Self {
        let config = Config {
            memory_bytes: 1 << 30,
            cores: Some(cores),
            ..Config::default()
        };
        Self::on(Arc::new(Software::new(config)))
    }

    /// With one core, and this to execute kernels.
    pub fn with(engine: Engine) -> Self {
        let config = Config {
            memory_bytes: 1 << 30,
            cores: Some(1),
            engine,
            ..Config::default()
        };
        Self::on(Arc::new(Software::new(config)))
    }

    pub fn on(backend: Arc<Software>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let space = Arc::new(backend.space(Arc::clone(&stop)));
        let queue = space.create_queue(0).unwrap();
        let next = backend.attributes().va.start;
        Self {
            backend,
            space,
            queue,
            stop,
            next,
        }
    }

    pub fn buffer(&mut self, bytes: u64, access: Access) -> Buffer {
        let bytes = bytes.next_multiple_of(4096);
        let memory = self
            .backend
            .allocate(MemoryKind::Device, bytes, AllocateOptions::default())
            .unwrap();
        let va = self.map(&memory, access);
        let backing = memory.backing().unwrap();
        let (shared, offset) = backing.host().unwrap();
        let view = shared.map(offset, bytes, Access::ReadWrite).unwrap();
        Buffer { va, memory, view }
    }

    /// Maps memory behind what is mapped so far.
    pub fn map(&mut self, memory: &Arc<dyn Memory>, access: Access) -> u64 {
        let (va, bytes) = (self.next, memory.bytes());
        self.next += DISTANCE;
        self.space.map(Some(va), memory, 0, bytes, access).unwrap()
    }

    pub fn load(&self, ptx: &str) -> Result<Arc<dyn Module>, ModuleError> {
        self.space
            .load_module(ptx.as_bytes(), &mut Reservation::unlimited())
    }

    pub fn launch(
        &mut self,
        module: &Arc<dyn Module>,
        kernel: &str,
        (grid, block, shared_bytes): ([u32; 3], [u32; 3], u32),
        parameters: &[u8],
    ) -> Result<(), Fault> {
        let kernel = module.kernel(kernel).expect("the module has the kernel");
        let shape = LaunchShape {
            grid,
            block,
            shared_bytes,
        };
        self.queue
            .submit(Work::Launch(Launch::new(&kernel, shape, parameters)?))
    }

    /// Runs the body as a kernel `k(.param .u64 out, .param .u64 in)` with one row of blocks.
    pub fn run(
        &mut self,
        body: &str,
        (blocks, threads): (u32, u32),
        input: &[u32],
        output_words: usize,
    ) -> Result<Vec<u32>, Fault> {
        let module = self
            .load(&kernel("", body))
            .unwrap_or_else(|e| panic!("{e}\n{body}"));
        self.run_module(&module, (blocks, threads), input, output_words)
    }

    /// The same for a module that has such a kernel.
    pub fn run_module(
        &mut self,
        module: &Arc<dyn Module>,
        (blocks, threads): (u32, u32),
        input: &[u32],
        output_words: usize,
    ) -> Result<Vec<u32>, Fault> {
        let source = self.buffer((4 * input.len()).max(4) as u64, Access::Read);
        source.write_words(input);
        let output = self.buffer((4 * output_words) as u64, Access::ReadWrite);
        let parameters = [output.va.to_le_bytes(), source.va.to_le_bytes()].concat();
        let shape = ([blocks, 1, 1], [threads, 1, 1], 0);
        self.launch(module, "k", shape, &parameters)?;
        Ok(output.words(output_words))
    }
}

/// A module with a kernel `k` that has plenty of registers: `%out` and `%in` hold its two pointers,
/// `%t` the number of the thread in the grid, `%o` the address of word `%t` of the output, `%i`
/// that of the input.
pub fn kernel(before: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n{before}\n\
         .visible .entry k(.param .u64 pout, .param .u64 pin)\n{{\n\
         .reg .pred %p<32>; .reg .b16 %h<64>; .reg .b32 %r<64>; .reg .b64 %d<64>; \
         .reg .f32 %f<64>;\n\
         .reg .f64 %g<32>; .reg .b32 %t, %tid; .reg .b64 %out, %in, %o, %i, %off;\n\
         ld.param.u64 %out, [pout]; ld.param.u64 %in, [pin];\n\
         mov.u32 %tid, %tid.x; mov.u32 %r60, %ctaid.x; mov.u32 %r61, %ntid.x;\n\
         mad.lo.u32 %t, %r60, %r61, %tid; mul.wide.u32 %off, %t, 4;\n\
         add.u64 %o, %out, %off; add.u64 %i, %in, %off;\n\
         {body}\n\
         ret;\n}}\n"
    )
}

/// Returns `body`, of a kernel as [`kernel`] makes it, for the lanes in `mask` only. The others
/// have addresses of nothing in the registers with addresses.
pub fn masked(body: &str, mask: u32) -> String {
    format!(
        "mov.u32 %r50, {mask}; shr.u32 %r50, %r50, %tid; and.b32 %r50, %r50, 1;\n\
         setp.eq.u32 %p9, %r50, 0; @%p9 mov.u64 %i, -8; @%p9 mov.u64 %o, -8;\n\
         @%p9 mov.u64 %in, -8; @%p9 mov.u64 %out, -8; @%p9 mov.u64 %d1, -8;\n\
         @%p9 mov.u64 %d2, -8; @%p9 mov.u64 %d3, -8; @%p9 mov.u32 %r1, -4;\n\
         @%p9 bra done;\n{body}\ndone:"
    )
}
