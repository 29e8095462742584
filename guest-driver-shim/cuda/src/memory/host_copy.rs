//! Copies that the library's thread makes for nodes of graphs.

use causeway_shim_linux::shim::Buffer;

use super::segments::Shape;
use crate::boundary;

/// A copy between places that the processor reaches.
pub(crate) struct HostCopy {
    shape: Shape,
    /// Stays as long as a ring may come to the copy.
    _staging: Option<Buffer<'static>>,
}

impl HostCopy {
    /// A copy with the staging memory that is one side of it, if one is.
    pub(super) const fn new(shape: Shape, staging: Option<Buffer<'static>>) -> Self {
        Self {
            shape,
            _staging: staging,
        }
    }

    /// Copies. The program has promised that its memory is there while a graph runs.
    pub(crate) fn perform(&self) {
        for row in self.shape.rows() {
            boundary::copy_bytes(row.to, row.from, row.bytes as usize);
        }
    }
}
