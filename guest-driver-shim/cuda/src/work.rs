//! Pieces of work of streams, as they are when they are submitted, and the packets that they are.

use std::sync::Arc;

use causeway_protocol::packet::{
    ArrayBox, Condition, CopyShape, Fence, FillShape, Header, LaunchOptions, LaunchShape, Opcode,
    fence_flags,
};
use causeway_shim_linux::shim::{ArrayDirection, SubmitError};

use crate::array::Array;
use crate::host_function::HostCall;
use crate::kernel::Kernel;
use crate::ring::Writing;

/// One piece of work. Addresses are those of the device.
#[derive(Clone)]
pub(crate) enum Work {
    /// Nothing: marks a position.
    Nothing,
    /// Runs a kernel.
    Launch {
        kernel: Arc<Kernel>,
        shape: LaunchShape,
        options: LaunchOptions,
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
    /// Copies rows, each side of which lies in one mapping of the device.
    CopyRect(CopyShape),
    /// Copies a box between an array and rows that lie in one mapping of the device.
    CopyArray {
        array: Arc<Array>,
        part: ArrayBox,
        direction: ArrayDirection,
    },
    /// Fills rows that lie in one mapping of the device.
    FillRect(FillShape),
    /// Stores a word of 4 or 8 bytes once all work before is done.
    Store {
        address: u64,
        value: u64,
        bytes: u64,
    },
    /// Waits until a word of 4 or 8 bytes meets a condition.
    Await {
        address: u64,
        value: u64,
        bytes: u64,
        condition: Condition,
    },
    /// The library's thread calls a function of the program, or polls memory, between a store and a
    /// wait of the ring.
    Host(HostCall),
    /// Several, in this order.
    Sequence(Vec<Self>),
}

impl Work {
    /// Writes the packets of this work.
    pub(crate) fn write(&self, writing: &mut Writing) -> Result<(), SubmitError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Launch {
                kernel,
                shape,
                options,
                parameters,
            } => writing
                .commands
                .launch_with(kernel.handle(), *shape, *options, parameters),
            Self::Copy {
                destination,
                source,
                bytes,
            } => writing.commands.copy(*destination, *source, *bytes),
            Self::Fill {
                destination,
                bytes,
                pattern,
                width,
            } => writing
                .commands
                .fill_pattern(*destination, *bytes, *pattern, *width),
            Self::CopyRect(shape) => writing.commands.copy_rect(*shape),
            Self::CopyArray {
                array,
                part,
                direction,
            } => writing
                .commands
                .copy_array(&array.object, *part, *direction),
            Self::FillRect(shape) => writing.commands.fill_rect(*shape),
            Self::Store {
                address,
                value,
                bytes,
            } => {
                let fence = fence(Opcode::FenceRelease, *address, (*value, *bytes));
                writing.commands.push(zerocopy::transmute!(fence))
            }
            Self::Await {
                address,
                value,
                bytes,
                condition,
            } => {
                let fence = Fence {
                    condition: *condition as u32,
                    ..fence(Opcode::FenceAcquire, *address, (*value, *bytes))
                };
                writing.commands.push(zerocopy::transmute!(fence))
            }
            Self::Host(call) => call.write(writing),
            Self::Sequence(parts) => parts.iter().try_for_each(|part| part.write(writing)),
        }
    }
}

/// Returns the packet that stores or awaits the low `bytes` bytes of a value at an address that is
/// no fence of the library.
fn fence(opcode: Opcode, address: u64, (value, bytes): (u64, u64)) -> Fence {
    let header = Header {
        opcode: opcode as u16,
        reserved: 0,
        units: 1,
    };
    let (flags, value) = match bytes {
        4 => (fence_flags::HALF, value & u64::from(u32::MAX)),
        _ => (0, value),
    };
    Fence {
        header,
        address,
        value,
        flags,
        ..Fence::default()
    }
}
