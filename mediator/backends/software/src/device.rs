//! The device: what all address spaces of a back end share.

use std::sync::Arc;

use crate::counts::Counts;
use crate::isa::Isa;
use crate::pool::Pool;
use crate::workers::Workers;

/// What all address spaces share.
#[derive(Debug)]
pub(crate) struct Device {
    /// Memory to give out.
    pub(crate) pool: Arc<Pool>,
    /// Threads for kernels.
    pub(crate) workers: Workers,
    /// What kernels have done.
    pub(crate) counts: Counts,
    /// Instruction set of the host.
    pub(crate) isa: Isa,
}
