//! A back end that runs launches, whichever it is.

use std::collections::HashMap;
use std::sync::Arc;

use causeway_mediator::backend::{
    AllocateOptions, Backend, Fault, Launch, Memory, MemoryWork, Module, ModuleError, Queue,
    Reservation, Space, Work,
};
use causeway_memory::Mapping;
use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;

use crate::subject::Subject;

/// Bytes of the staging buffer: as many as the largest buffer may have.
const STAGING_BYTES: u64 = 4 << 20;

/// One address space with one queue.
pub struct Device {
    backend: Arc<dyn Backend>,
    space: Arc<dyn Space>,
    queue: Box<dyn Queue>,
    /// Modules by their text. Loading one can take long.
    modules: HashMap<&'static str, Arc<dyn Module>>,
    staging: Staging,
}

/// Why a launch has no result.
pub enum Failure {
    /// The driver is older than the module's version of PTX.
    TooOld(String),
    /// It should have had one.
    Wrong(String),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Wrong(fault.to_string())
    }
}

impl From<ModuleError> for Failure {
    fn from(error: ModuleError) -> Self {
        match error.reason.contains("UNSUPPORTED_PTX_VERSION") {
            true => Self::TooOld(error.reason),
            false => Self::Wrong(error.to_string()),
        }
    }
}

/// Host memory through which buffers are filled and looked at.
struct Staging {
    va: u64,
    view: Mapping,
    _memory: Arc<dyn Memory>,
}

struct Buffer {
    va: u64,
    _memory: Arc<dyn Memory>,
}

impl Device {
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let space = backend.create_space(Arc::default()).unwrap();
        let queue = space.create_queue(0).unwrap();
        let (va, memory) = map(&*backend, &*space, MemoryKind::Host, STAGING_BYTES);
        let backing = memory.backing().expect("host memory has a backing");
        let (object, offset) = backing.host().expect("host memory is an object");
        let view = object.map(offset, STAGING_BYTES, Access::ReadWrite);
        let staging = Staging {
            va,
            view: view.unwrap(),
            _memory: memory,
        };
        Self {
            backend,
            space,
            queue,
            modules: HashMap::new(),
            staging,
        }
    }

    /// What the buffers hold after the launch. They are in device memory for even seeds, and in
    /// host memory for odd ones.
    pub fn run(&mut self, subject: &Subject, seed: u64) -> Result<Vec<Vec<u8>>, Failure> {
        let kind = match seed % 2 {
            0 => MemoryKind::Device,
            _ => MemoryKind::Host,
        };
        let buffers: Vec<Buffer> = subject
            .buffers
            .iter()
            .map(|bytes| {
                let (backend, space) = (&*self.backend, &*self.space);
                let (va, memory) = map(backend, space, kind, bytes.len() as u64);
                Buffer {
                    va,
                    _memory: memory,
                }
            })
            .collect();
        let outcome = self.launch(subject, &buffers);
        for buffer in &buffers {
            let unmapped = self.space.unmap(buffer.va);
            unmapped.map_err(|e| Failure::Wrong(e.to_string()))?;
        }
        outcome
    }

    fn launch(&mut self, subject: &Subject, buffers: &[Buffer]) -> Result<Vec<Vec<u8>>, Failure> {
        for (bytes, buffer) in subject.buffers.iter().zip(buffers) {
            self.upload(buffer.va, bytes)?;
        }
        let kernel = self
            .module(subject.ptx)?
            .kernel(&subject.kernel)
            .expect("the module has the kernel");
        let addresses: Vec<u64> = buffers.iter().map(|buffer| buffer.va).collect();
        self.queue.submit(Work::Launch(Launch::new(
            &kernel,
            subject.launch_shape(kernel.block_threads_max()),
            &(subject.parameters)(&addresses),
        )?))?;
        let contents = subject.buffers.iter().zip(buffers);
        let contents: Result<_, Fault> = contents
            .map(|(bytes, buffer)| self.download(buffer.va, bytes.len()))
            .collect();
        Ok(contents?)
    }

    fn module(&mut self, ptx: &'static str) -> Result<Arc<dyn Module>, ModuleError> {
        if let Some(module) = self.modules.get(ptx) {
            return Ok(Arc::clone(module));
        }
        let module = self
            .space
            .load_module(ptx.as_bytes(), &mut Reservation::unlimited())?;
        self.modules.insert(ptx, Arc::clone(&module));
        Ok(module)
    }

    fn upload(&mut self, va: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.staging.view.write(0, bytes).unwrap();
        self.copy(va, self.staging.va, bytes.len())
    }

    fn download(&mut self, va: u64, count: usize) -> Result<Vec<u8>, Fault> {
        self.copy(self.staging.va, va, count)?;
        let mut bytes = vec![0; count];
        self.staging.view.read(0, &mut bytes).unwrap();
        Ok(bytes)
    }

    fn copy(&mut self, destination: u64, source: u64, count: usize) -> Result<(), Fault> {
        self.queue.submit(Work::Memory(MemoryWork::Copy {
            destination,
            source,
            bytes: count as u64,
        }))?;
        self.queue.finish()
    }
}

/// Fresh memory with a mapping.
fn map(
    backend: &dyn Backend,
    space: &dyn Space,
    kind: MemoryKind,
    bytes: u64,
) -> (u64, Arc<dyn Memory>) {
    let bytes = bytes.next_multiple_of(backend.attributes().granularity_bytes);
    let memory = backend.allocate(kind, bytes, AllocateOptions::default());
    let memory = memory.unwrap_or_else(|e| panic!("{e}: {e:?}"));
    let va = space.map(None, &memory, 0, bytes, Access::ReadWrite);
    (va.unwrap_or_else(|e| panic!("{e}: {e:?}")), memory)
}
