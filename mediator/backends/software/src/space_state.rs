//! State of an address space: its mappings, and the ranges for variables of its modules.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_cpu_queue::{Entry, HostMemory, Mappings};
use causeway_memory::PageSize;
use causeway_protocol::Access;
use parking_lot::Mutex;

use crate::address;
use crate::device::Device;
use crate::heap::HEAP_BYTES;
use crate::system::System;

/// Bytes from the variables of one module to those of the next.
pub(crate) const VARIABLES_STRIDE: u64 = 1 << 30;
/// Bytes of the region for `.const` variables; the region for `.global` variables is no smaller.
pub(crate) const VARIABLES_BYTES: u64 =
    address::CONST_VARIABLES.end - address::CONST_VARIABLES.start;

/// What queues and modules share with their address space.
#[derive(Debug)]
pub(crate) struct SpaceState {
    /// The device of the back end.
    pub(crate) device: Arc<Device>,
    /// Flag that is set when the session ends.
    pub(crate) stop: Arc<AtomicBool>,
    /// Mappings of the address space.
    pub(crate) mappings: Arc<Mappings>,
    /// What kernels have printed and allocated.
    pub(crate) system: Arc<System>,
    /// Whether the heap is mapped.
    heap_mapped: Mutex<bool>,
    /// Ranges for the variables of modules, by number: those in use.
    variables: Mutex<BTreeSet<u64>>,
}

/// Reserves a range of addresses for the variables of one module until it is dropped.
#[derive(Debug)]
pub(crate) struct VariableRange {
    state: Arc<SpaceState>,
    number: u64,
}

impl VariableRange {
    /// Returns where the range begins, as an offset in the regions for variables.
    pub(crate) fn offset(&self) -> u64 {
        self.number * VARIABLES_STRIDE
    }
}

impl Drop for VariableRange {
    fn drop(&mut self) {
        self.state.variables.lock().remove(&self.number);
    }
}

impl SpaceState {
    /// Creates an address space without mappings.
    pub(crate) fn new(device: Arc<Device>, stop: Arc<AtomicBool>) -> Self {
        Self {
            device,
            stop,
            mappings: Arc::new(Mappings::new(address::MAPPINGS)),
            system: Arc::default(),
            heap_mapped: Mutex::default(),
            variables: Mutex::default(),
        }
    }

    /// Maps the heap, unless it is mapped already. It stays as long as the address space.
    pub(crate) fn map_heap(&self) -> Result<(), String> {
        let mut mapped = self.heap_mapped.lock();
        if *mapped {
            return Ok(());
        }
        let charge = self.device.pool.charge(HEAP_BYTES);
        let charge = charge.ok_or("the device has less memory left")?;
        let memory =
            HostMemory::allocate(HEAP_BYTES, PageSize::Large).map_err(|e| e.to_string())?;
        let memory = Arc::new(memory.charged(charge));
        let bytes = memory.mapping().bytes();
        let entry = Entry::new(address::HEAP.start, memory, 0, bytes, Access::ReadWrite);
        *mapped = entry.is_some_and(|entry| self.mappings.change(|table| table.with(entry)));
        mapped
            .then_some(())
            .ok_or_else(|| String::from("its addresses are taken"))
    }

    /// Takes a range for the variables of one more module. Returns `None` if all ranges are taken.
    pub(crate) fn reserve_variables(self: &Arc<Self>) -> Option<VariableRange> {
        let mut taken = self.variables.lock();
        let number = (0..VARIABLES_BYTES / VARIABLES_STRIDE).find(|n| !taken.contains(n))?;
        taken.insert(number);
        Some(VariableRange {
            state: Arc::clone(self),
            number,
        })
    }
}
