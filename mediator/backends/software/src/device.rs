//! The device: what all address spaces of a back end share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::counts::Counts;
use crate::isa::Isa;
use crate::pool::Pool;
use crate::workers::Workers;

/// The device of a back end, which all address spaces share.
#[derive(Debug)]
pub(crate) struct Device {
    /// Memory that allocations and modules may take.
    pub(crate) pool: Arc<Pool>,
    /// Threads that execute kernels.
    pub(crate) workers: Workers,
    /// What the launches of each kernel have done.
    pub(crate) counts: Counts,
    /// Instruction set for which loops over lanes are compiled.
    pub(crate) isa: Isa,
    /// Whether runs of operations are compiled. No longer once the process has been refused code.
    pub(crate) compiles: AtomicBool,
}
