//! Kernels of modules: what a launch has to know of them. Merge: the part "modules and launches"
//! replaces this file.

use std::sync::Arc;

use causeway_protocol::message::Parameter;
use causeway_protocol::packet::LaunchShape;

use crate::boundary::In;
use crate::driver::Driver;
use crate::error::{Answer, Code};

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

/// Returns the kernel of a handle. There are no modules yet, hence no kernels.
pub(crate) fn find(_: &Driver, _handle: usize) -> Answer<Arc<Kernel>> {
    Err(Code::INVALID_HANDLE)
}

impl Kernel {
    /// Returns the handle that launch packets use.
    pub(crate) const fn handle(&self) -> u32 {
        self.handle
    }

    /// Refuses a grid and blocks that cannot be launched.
    pub(crate) fn check_shape(&self, shape: LaunchShape) -> Answer {
        match shape.grid.contains(&0) || shape.block.contains(&0) {
            true => Err(Code::INVALID_VALUE),
            false => Ok(()),
        }
    }

    /// Returns the parameter block of a launch.
    pub(crate) fn gather(&self, parameters: In<usize>, _extra: In<usize>) -> Answer<Box<[u8]>> {
        let mut block = vec![0; self.parameter_bytes];
        for (index, parameter) in self.layout.iter().enumerate() {
            let (start, bytes) = (parameter.offset.into(), parameter.size.into());
            let value = In::<u8>::at(parameters.get_at(index)?).list(bytes)?;
            block[start..start + bytes].copy_from_slice(&value);
        }
        Ok(block.into())
    }
}
