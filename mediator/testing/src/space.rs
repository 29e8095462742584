//! Address spaces of the fake back end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use causeway_mediator::backend::{
    Array, ArrayCharge, ArrayShape, BackendError, Memory, Module, ModuleError, Place, Queue,
    Recorded, Recording, Reservation, Sampling, Space, TensorMapAnswer, Texture, TextureSource,
    Usage, Variable,
};
use causeway_mediator::va::VaAllocator;
use causeway_memory::{MemoryError, PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::{EncodeTensorMap, Status, TENSOR_MAP_BYTES};
use parking_lot::Mutex;

use crate::array::{FakeArray, FakeTexture, MORE_BYTES};
use crate::behind::Behind;
use crate::failures::{Failures, error};
use crate::gate::Gate;
use crate::kernel::FakeKernel;
use crate::live::{Alive, Counts, Live, Used};
use crate::memory::{FakeMapping, FakeMemory, SpaceMemory};
use crate::queue::FakeQueue;
use crate::work::{FakeCausewayKernel, FakeModule, FakeRecording};

/// An address space.
pub(crate) struct FakeSpace {
    pub memory: Arc<SpaceMemory>,
    pub va: Mutex<VaAllocator>,
    pub kernels: HashMap<String, FakeKernel>,
    pub counts: Counts,
    pub failures: Arc<Failures>,
    pub behind: Arc<Behind>,
    pub piece_ns: Arc<AtomicU64>,
    pub loads: Arc<Gate>,
    pub fetches: Arc<Gate>,
    pub priorities: Arc<Mutex<Vec<i32>>>,
    pub used: Used,
}

impl FakeSpace {
    fn alive(&self, object: Live) -> Alive {
        Alive::new(&self.counts, object)
    }

    /// Maps memory for a variable of a module. Its addresses are not used again.
    fn variable(&self, bytes: u64) -> Result<Variable, BackendError> {
        let failed = |e: MemoryError| error(Status::NoMemory, &e.to_string());
        let shared = SharedMemory::new("fake", PAGE_BYTES, PageSize::Small).map_err(failed)?;
        let mapping = shared
            .map(0, PAGE_BYTES, Access::ReadWrite)
            .map_err(failed)?;
        let memory = FakeMemory {
            shared: Arc::new(shared),
            offset: 0,
            bytes: PAGE_BYTES,
            mapping,
            fabric: None,
            place: Place::Own,
            _alive: self.alive(Live::default()),
        };
        let address = self.va.lock().place(None, PAGE_BYTES)?;
        let mapping = FakeMapping {
            memory: Arc::new(memory),
            offset: 0,
            bytes: bytes.min(PAGE_BYTES),
            access: Access::ReadWrite,
        };
        self.memory.mappings.lock().insert(address, mapping);
        Ok(Variable { address, bytes })
    }
}

impl Space for FakeSpace {
    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError> {
        self.failures.check("map")?;
        let va = self.va.lock().place(wanted, bytes)?;
        let mapping = FakeMapping {
            memory: Arc::clone(memory),
            offset,
            bytes,
            access,
        };
        match self.memory.mappings.lock().insert(va, mapping) {
            None => Ok(va),
            Some(_) => Err(error(Status::BackEnd, "mapped twice")),
        }
    }

    fn unmap(&self, va: u64) -> Result<(), BackendError> {
        self.failures.check("unmap")?;
        let removed = self.memory.mappings.lock().remove(&va);
        let mapping = removed.ok_or(error(Status::BackEnd, "not mapped"))?;
        self.va.lock().give(va, mapping.bytes);
        if let Some(used) = self.used.lock().as_mut() {
            used.push(Arc::new(Arc::clone(&mapping.memory)));
        }
        Ok(())
    }

    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        let mut mappings = self.memory.mappings.lock();
        let mapping = mappings.get_mut(&va);
        mapping.ok_or(error(Status::BackEnd, "not mapped"))?.access = access;
        Ok(())
    }

    fn load_module(
        &self,
        image: &[u8],
        reservation: &mut Reservation,
    ) -> Result<Arc<dyn Module>, ModuleError> {
        self.loads.pass();
        let text = String::from_utf8_lossy(image);
        let mut kernels = HashMap::new();
        let mut variables = HashMap::new();
        let mut memory_bytes = 0;
        for (index, line) in text.trim_end_matches('\0').lines().enumerate() {
            let refuse = |reason: &str| ModuleError::new(index as u32 + 1, reason);
            if let Some((word, bytes)) = line.split_once(' ')
                && ["variables", "late", "spare"].contains(&word)
            {
                let bytes: u64 = bytes.parse().map_err(|_| refuse("not a number"))?;
                if word != "late" {
                    reservation.memory(bytes, "the module takes")?;
                }
                if word != "spare" {
                    memory_bytes += bytes;
                }
                continue;
            }
            if let Some(words) = line.strip_prefix("variable ") {
                let (name, bytes) = words.split_once(' ').ok_or_else(|| refuse("no size"))?;
                let bytes = bytes.parse().map_err(|_| refuse("not a number"))?;
                reservation.allocation("a variable takes")?;
                let variable = self.variable(bytes).map_err(|e| refuse(&e.to_string()))?;
                variables.insert(name.to_owned(), variable);
                continue;
            }
            let name = line.strip_prefix("kernel ");
            let name = name.ok_or_else(|| refuse("not a line of a fake module"))?;
            let kernel = self.kernels.get(name);
            let kernel = kernel.ok_or_else(|| refuse("the test has not defined this kernel"))?;
            kernels.insert(name.to_owned(), FakeCausewayKernel::boxed(kernel.clone()));
        }
        Ok(Arc::new(FakeModule {
            kernels,
            variables,
            memory_bytes,
            space: Arc::clone(&self.memory),
            _alive: self.alive(Live {
                modules: 1,
                ..Live::default()
            }),
        }))
    }

    fn create_queue(&self, priority: i32) -> Result<Box<dyn Queue>, BackendError> {
        self.failures.check("create_queue")?;
        self.priorities.lock().push(priority);
        Ok(Box::new(FakeQueue {
            backlog: self.behind.backlog(&self.memory),
            failures: Arc::clone(&self.failures),
            piece_ns: Arc::clone(&self.piece_ns),
            usage: Usage::default(),
            _alive: self.alive(Live {
                queues: 1,
                ..Live::default()
            }),
        }))
    }

    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError> {
        self.failures.check("record")?;
        Ok(Arc::new(FakeRecording {
            work: work.to_vec(),
            _alive: self.alive(Live {
                recordings: 1,
                ..Live::default()
            }),
        }))
    }

    /// The description has the address and the number of dimensions.
    fn encode_tensor_map(
        &self,
        request: &EncodeTensorMap,
    ) -> Result<TensorMapAnswer, BackendError> {
        let mut map = [0; TENSOR_MAP_BYTES];
        if request.address != 0 && self.load_u64(request.address).is_none() {
            return Err(error(Status::MemoryFault, "describe a tensor"));
        }
        if request.rank == 0 {
            // CUDA_ERROR_INVALID_VALUE
            return Ok((1, map));
        }
        map[..8].copy_from_slice(&request.address.to_le_bytes());
        map[8] = request.rank as u8;
        Ok((0, map))
    }

    fn array_bytes(&self, shape: &ArrayShape) -> u64 {
        shape.bytes() + MORE_BYTES
    }

    fn create_array(
        &self,
        shape: &ArrayShape,
        charge: ArrayCharge,
    ) -> Result<Arc<dyn Array>, BackendError> {
        self.failures.check("create_array")?;
        self.loads.pass();
        Ok(Arc::new(FakeArray {
            shape: *shape,
            content: Mutex::new(vec![0; shape.bytes() as usize]),
            _charge: charge,
            _alive: self.alive(Live {
                arrays: 1,
                ..Live::default()
            }),
        }))
    }

    fn create_texture(
        &self,
        source: TextureSource<'_>,
        _: &Sampling,
    ) -> Result<Box<dyn Texture>, BackendError> {
        self.failures.check("create_texture")?;
        let alive = self.alive(Live {
            textures: 1,
            ..Live::default()
        });
        Ok(Box::new(FakeTexture::new(source, &self.used, alive)))
    }

    fn load_u64(&self, va: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read(va, &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn fetch_u64(&self, va: u64, gives_up: &dyn Fn() -> bool) -> Option<u64> {
        let passes = self.fetches.pass_unless(gives_up);
        passes.then(|| self.load_u64(va)).flatten()
    }
}
