//! State of an address space: its mappings, and the ranges for variables of its modules.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_cpu_queue::{Entry, HostMemory, Mappings};
use causeway_mediator::va::VaAllocator;
use causeway_memory::PageSize;
use causeway_protocol::Access;
use parking_lot::Mutex;

use crate::address;
use crate::device::Device;
use crate::heap::{HEAP_BYTES, RECORDS_BYTES};
use crate::output::OUTPUT_BYTES;
use crate::system::System;
use crate::texture::Textures;

/// Bytes from the variables of one module to those of the next.
pub(crate) const VARIABLES_STRIDE: u64 = 1 << 30;
/// Bytes of the region for `.const` variables; the region for `.global` variables is no smaller.
pub(crate) const VARIABLES_BYTES: u64 =
    address::CONST_VARIABLES.end - address::CONST_VARIABLES.start;

/// Bytes of text, at most, that are left when no module prints any more. A program may unload its
/// module before it asks for the text.
const OUTPUT_BYTES_LEFT: usize = 64 << 10;

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
    /// Addresses of arrays.
    pub(crate) arrays: Mutex<VaAllocator>,
    /// The textures and surfaces.
    pub(crate) textures: Arc<Textures>,
    /// How many modules use what `system` has.
    users: Mutex<Users>,
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

/// Modules that use what the back end provides to kernels.
#[derive(Debug, Default)]
struct Users {
    heap: usize,
    output: usize,
}

/// A module that uses the heap or the output of its address space, until it is dropped. The heap
/// and most of the output go with the last one, because only modules are charged for them.
#[derive(Debug)]
pub(crate) struct SystemUse {
    state: Arc<SpaceState>,
    allocates: bool,
    prints: bool,
}

impl SystemUse {
    /// Returns the bytes for which a module is charged if its kernels allocate or print. They are
    /// charged twice where two modules of an address space use the same heap or output. That is
    /// safe, as a session never has more than it is charged for, and rare: linked modules count as
    /// one. Otherwise the charge would have to pass from a module that is unloaded to another one.
    pub(crate) const fn bytes_of(allocates: bool, prints: bool) -> u64 {
        let heap = if allocates {
            HEAP_BYTES + RECORDS_BYTES
        } else {
            0
        };
        let output = if prints { OUTPUT_BYTES } else { 0 };
        heap + output
    }

    /// Returns the bytes with which the module is charged.
    pub(crate) fn bytes(&self) -> u64 {
        Self::bytes_of(self.allocates, self.prints)
    }
}

impl Drop for SystemUse {
    fn drop(&mut self) {
        let (state, mut users) = (&self.state, self.state.users.lock());
        users.heap -= usize::from(self.allocates);
        users.output -= usize::from(self.prints);
        if self.allocates && users.heap == 0 {
            let heap = address::HEAP.start;
            state.mappings.change(|table| table.without(heap));
            state.system.heap.clear();
        }
        if self.prints && users.output == 0 {
            state.system.output.shrink(OUTPUT_BYTES_LEFT);
        }
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
            arrays: Mutex::new(VaAllocator::new(address::ARRAYS)),
            textures: Arc::default(),
            users: Mutex::default(),
            variables: Mutex::default(),
        }
    }

    /// Notes that a module is loaded whose kernels allocate memory, or print. The first one that
    /// allocates maps the heap.
    pub(crate) fn begin_use(
        self: &Arc<Self>,
        allocates: bool,
        prints: bool,
    ) -> Result<SystemUse, String> {
        let mut users = self.users.lock();
        if allocates && users.heap == 0 {
            self.map_heap()?;
        }
        users.heap += usize::from(allocates);
        users.output += usize::from(prints);
        Ok(SystemUse {
            state: Arc::clone(self),
            allocates,
            prints,
        })
    }

    fn map_heap(&self) -> Result<(), String> {
        let charge = self.device.pool.charge(HEAP_BYTES + RECORDS_BYTES);
        let charge = charge.ok_or("the device has less memory left")?;
        let memory =
            HostMemory::allocate(HEAP_BYTES, PageSize::Large).map_err(|e| e.to_string())?;
        let memory = Arc::new(memory.charged(charge));
        let bytes = memory.mapping().bytes();
        let entry = Entry::new(address::HEAP.start, memory, 0, bytes, Access::ReadWrite);
        let mapped = entry.is_some_and(|entry| self.mappings.change(|table| table.with(entry)));
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
