//! Kernels of modules: what a launch has to know of them.

use causeway_protocol::message::Parameter;

/// A kernel of a loaded module.
pub(crate) struct Kernel {
    handle: u32,
    /// The `CUfunction` that callers know.
    pub(crate) function: usize,
    /// Size of the parameter block in bytes.
    pub(crate) parameter_bytes: usize,
    /// Offset and size of each parameter.
    pub(crate) layout: Box<[Parameter]>,
}

impl Kernel {
    /// Returns the handle that launch packets use.
    pub(crate) const fn handle(&self) -> u32 {
        self.handle
    }
}
