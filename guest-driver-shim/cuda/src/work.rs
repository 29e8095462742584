//! Pieces of work of streams, as they are when they are submitted, and the packets that they are.

use std::sync::Arc;

use causeway_protocol::packet::LaunchShape;
use causeway_shim_linux::shim::{CommandBuffer, SubmitError};

use crate::kernel::Kernel;

/// One piece of work. Addresses are those of the device.
#[derive(Clone)]
pub(crate) enum Work {
    /// Nothing: marks a position.
    Nothing,
    /// Runs a kernel.
    Launch {
        kernel: Arc<Kernel>,
        shape: LaunchShape,
        /// The whole parameter block.
        parameters: Box<[u8]>,
    },
    /// Copies bytes; the ranges do not overlap.
    Copy {
        destination: u64,
        source: u64,
        bytes: u64,
    },
    /// Fills bytes with a pattern of 1, 2 or 4 bytes.
    Fill {
        destination: u64,
        bytes: u64,
        pattern: u32,
        width: u32,
    },
    /// Stores the device's time in nanoseconds.
    Timestamp { address: u64 },
    /// Several, in this order.
    Sequence(Vec<Self>),
}

impl Work {
    /// Writes the packets of this work.
    pub(crate) fn write(&self, commands: &mut CommandBuffer<'static>) -> Result<(), SubmitError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Launch {
                kernel,
                shape,
                parameters,
            } => commands.launch_packed(kernel.handle(), *shape, parameters),
            Self::Copy {
                destination,
                source,
                bytes,
            } => commands.copy(*destination, *source, *bytes),
            Self::Fill {
                destination,
                bytes,
                pattern,
                width,
            } => commands.fill_pattern(*destination, *bytes, *pattern, *width),
            Self::Timestamp { address } => commands.timestamp(*address),
            Self::Sequence(parts) => parts.iter().try_for_each(|part| part.write(commands)),
        }
    }
}
