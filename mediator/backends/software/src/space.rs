//! Address spaces: mappings that change while kernels run, and ranges for the variables of modules.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_cpu_queue::{
    HostHandle, Part, WorkQueue, WorkRecording, load_acquire_u32, store_release_u32,
};
use causeway_mediator::backend::{
    Array, ArrayCharge, ArrayShape, BackendError, Fault, Memory, Module, ModuleError, Queue,
    Recorded, Recording, Reservation, Sampling, Space, Texture, TextureSource,
};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::array::{self, SoftwareArray};
use crate::device::Device;
use crate::exec::Multiprocessors;
use crate::module::{self, SoftwareModule};
use crate::queue::SoftwareKernels;
use crate::space_state::SpaceState;

/// An address space of the software back end: the mappings and modules of one session.
#[derive(Debug)]
pub struct SoftwareSpace {
    state: Arc<SpaceState>,
}

impl SoftwareSpace {
    /// Creates an empty address space.
    pub(crate) fn new(device: Arc<Device>, stop: Arc<AtomicBool>) -> Self {
        Self {
            state: Arc::new(SpaceState::new(device, stop)),
        }
    }

    /// Loads a module from PTX text, as [`Space::load_module`] does, for a program that has no
    /// session with limits, and returns the concrete type.
    ///
    /// # Errors
    /// [`ModuleError`] if `image` is not PTX, uses PTX that the back end does not support, or needs
    /// more memory or addresses than are left. The error names the line of the mistake, from 1;
    /// line 0 stands for the whole module.
    pub fn load(&self, image: &[u8]) -> Result<Arc<SoftwareModule>, ModuleError> {
        let reservation = &mut Reservation::unlimited();
        Ok(Arc::new(module::load(&self.state, image, reservation)?))
    }

    /// Stores `value` as the 32-bit word at GPU virtual address `va`, with release ordering.
    ///
    /// # Errors
    /// [`Status::MemoryFault`] if `va` is not a multiple of 4, or if no writable mapping contains
    /// all four bytes.
    pub fn store_u32(&self, va: u64, value: u32) -> Result<(), Fault> {
        self.state
            .mappings
            .with_table(|table| store_release_u32(table, va, value))
    }

    /// Loads the 32-bit word at GPU virtual address `va`, with acquire ordering. Returns `None` if
    /// `va` is not a multiple of 4, or if no readable mapping contains all four bytes.
    pub fn load_u32(&self, va: u64) -> Option<u32> {
        self.state
            .mappings
            .with_table(|table| load_acquire_u32(table, va))
    }

    /// Creates a queue for work in this address space. Its kernels read `multiprocessors` from the
    /// special registers `%smid` and `%nsmid`.
    pub fn queue_on(&self, multiprocessors: Multiprocessors) -> Box<dyn Queue> {
        let state = Arc::clone(&self.state);
        let (mappings, stop) = (Arc::clone(&state.mappings), Arc::clone(&state.stop));
        let kernels = SoftwareKernels {
            state,
            multiprocessors,
        };
        Box::new(WorkQueue::new(mappings, stop, kernels))
    }
}

/// A part of an allocation of this back end, to be mapped.
fn part(
    account: &Arc<dyn Memory>,
    offset: u64,
    bytes: u64,
    access: Access,
) -> Result<Part<'_>, BackendError> {
    let memory = HostHandle::memory_of(account)
        .ok_or_else(|| BackendError::new(Status::BackEnd, "map memory of another back end"))?;
    Ok(Part {
        account,
        memory,
        offset,
        bytes,
        access,
    })
}

impl SoftwareSpace {
    /// Maps `bytes` bytes of `memory`, beginning at byte `offset`, at GPU virtual address `va`,
    /// which may be any address below 2^47. Only [`Self::unmap_at`] ends the mapping.
    ///
    /// This is for callers that choose all addresses of an address space themselves. Other callers
    /// use [`Space::map`]; one address space must not be used in both ways.
    ///
    /// # Errors
    /// [`Status::BackEnd`] if another mapping overlaps, if `memory` has no such range, or if it
    /// belongs to another back end.
    pub fn map_at(
        &self,
        va: u64,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(), BackendError> {
        let part = part(memory, offset, bytes, access)?;
        self.state.mappings.map_at(va, part)
    }

    /// Ends the mapping that [`Self::map_at`] made at `va`.
    ///
    /// # Errors
    /// [`Status::BackEnd`] if no mapping begins at `va`.
    pub fn unmap_at(&self, va: u64) -> Result<(), BackendError> {
        self.state.mappings.unmap_at(va)
    }
}

impl Space for SoftwareSpace {
    /// Texts come in the order of the calls, each as a whole. A mebibyte is kept; when more is
    /// printed, the texts of the oldest calls are lost, as in CUDA. What a kernel has printed can
    /// be taken once it has ended, or before.
    fn take_output(&self, max_bytes: usize) -> Vec<u8> {
        self.state.system.output.take(max_bytes)
    }

    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError> {
        let part = part(memory, offset, bytes, access)?;
        self.state.mappings.map(wanted, part)
    }

    fn unmap(&self, va: u64) -> Result<(), BackendError> {
        self.state.mappings.unmap(va)
    }

    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError> {
        self.state.mappings.set_access(va, access)
    }

    fn load_module(
        &self,
        image: &[u8],
        reservation: &mut Reservation,
    ) -> Result<Arc<dyn Module>, ModuleError> {
        Ok(Arc::new(module::load(&self.state, image, reservation)?))
    }

    /// The engine has no priorities: the cores take blocks of kernels by the weights of sessions.
    fn create_queue(&self, _priority: i32) -> Result<Box<dyn Queue>, BackendError> {
        Ok(self.queue_on(Multiprocessors::default()))
    }

    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError> {
        Ok(Arc::new(WorkRecording::new(work)))
    }

    fn array_bytes(&self, shape: &ArrayShape) -> u64 {
        array::memory_bytes(shape)
    }

    fn create_array(
        &self,
        shape: &ArrayShape,
        charge: ArrayCharge,
    ) -> Result<Arc<dyn Array>, BackendError> {
        Ok(Arc::new(SoftwareArray::new(&self.state, shape, charge)?))
    }

    fn create_texture(
        &self,
        source: TextureSource<'_>,
        sampling: &Sampling,
    ) -> Result<Box<dyn Texture>, BackendError> {
        Ok(Box::new(array::create_texture(
            &self.state,
            source,
            sampling,
        )?))
    }

    fn load_u64(&self, va: u64) -> Option<u64> {
        self.state.mappings.load_u64(va)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Config, Software};
    use crate::space_state::{VARIABLES_BYTES, VARIABLES_STRIDE};

    fn space() -> (Software, SoftwareSpace) {
        let software = Software::new(Config {
            memory_bytes: 16 << 20,
            cores: Some(1),
            ..Config::default()
        });
        let space = SoftwareSpace::new(Arc::clone(software.device()), Arc::default());
        (software, space)
    }

    #[test]
    fn ranges_for_variables_are_used_again() {
        const PTX: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n\
            .global .u32 counter;\n.visible .entry nothing() { ret; }\n";
        let (_software, space) = space();
        let ranges = VARIABLES_BYTES / VARIABLES_STRIDE;
        for _ in 0..=ranges {
            let module = space.load(PTX).expect("a range is free");
            assert_eq!(module.memory_bytes(), 2 * 4096, "code and variables");
        }
    }
}
