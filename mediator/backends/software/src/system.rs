//! What the functions work on that the back end provides to kernels.

use crate::heap::Heap;
use crate::output::Output;

/// Printed text and allocated memory of an address space.
#[derive(Debug, Default)]
pub(crate) struct System {
    /// Text that kernels have printed.
    pub(crate) output: Output,
    /// Memory that kernels have allocated.
    pub(crate) heap: Heap,
}
