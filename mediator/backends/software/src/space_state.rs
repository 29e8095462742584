//! State of an address space: its mappings, and the ranges for variables of its modules.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_cpu_queue::Mappings;
use parking_lot::Mutex;

use crate::address;
use crate::device::Device;

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
            variables: Mutex::default(),
        }
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
