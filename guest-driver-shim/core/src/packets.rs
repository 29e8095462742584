//! Packets as units of words: what command buffers and recordings are written with.

use causeway_protocol::packet::{self, LaunchShape, Opcode};
use zerocopy::transmute;

use crate::module::Parameters;
use crate::producer::Unit;

/// First unit of a launch, and how many units follow it. `Err` has the number of a parameter that is not set.
#[inline]
pub(crate) fn launch<const UNITS: usize>(
    shape: LaunchShape,
    parameters: &Parameters<'_, UNITS>,
) -> Result<(Unit, u64), usize> {
    if let Some(index) = parameters.missing() {
        return Err(index);
    }
    let function = parameters.function();
    let parameter_bytes = function.parameter_bytes();
    let units = packet::launch_units(parameter_bytes as usize);
    let head = transmute!(packet::Launch {
        header: header(Opcode::Launch, units),
        function: function.handle(),
        shape,
        parameter_bytes,
        reserved: [0; 5],
    });
    Ok((head, u64::from(units - 1)))
}

#[inline]
pub(crate) fn copy(destination: u64, source: u64, length: u64) -> Unit {
    transmute!(packet::CopyRange {
        header: header(Opcode::Copy, 1),
        destination,
        source,
        length,
        reserved: [0; 4],
    })
}

#[inline]
pub(crate) fn fill(destination: u64, length: u64, pattern: u32, width: u32) -> Unit {
    transmute!(packet::Fill {
        header: header(Opcode::Fill, 1),
        destination,
        length,
        pattern,
        width,
        reserved: [0; 4],
    })
}

/// A fence release or acquire, or a timestamp, as `opcode` says.
#[inline]
pub(crate) fn fence(opcode: Opcode, address: u64, value: u64) -> Unit {
    transmute!(packet::Fence {
        header: header(opcode, 1),
        address,
        value,
        reserved: [0; 5]
    })
}

#[inline]
pub(crate) fn replay(recording: u32) -> Unit {
    transmute!(packet::Replay {
        header: header(Opcode::Replay, 1),
        recording,
        reserved: [0; 13],
    })
}

#[inline]
pub(crate) fn nop() -> Unit {
    let mut unit = Unit::default();
    unit[0] = crate::producer::head(Opcode::Nop, 1);
    unit
}

#[inline]
const fn header(opcode: Opcode, units: u32) -> packet::Header {
    packet::Header {
        opcode: opcode as u16,
        reserved: 0,
        units,
    }
}
