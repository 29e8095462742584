//! Packets as units of words, and the methods by which command buffers and recorders write them.

use causeway_protocol::packet::{
    self, ArrayBox, CopyShape, FillShape, LaunchOptions, LaunchShape, Opcode, UNIT_BYTES,
};
use zerocopy::{IntoBytes, transmute};

use crate::module::Parameters;
use crate::producer::Unit;

/// First unit of a launch, and how many units follow it. `Err` has the number of a parameter that
/// is not set.
#[inline]
pub(crate) fn launch<const UNITS: usize>(
    shape: LaunchShape,
    parameters: &Parameters<'_, UNITS>,
) -> Result<(Unit, u64), usize> {
    if let Some(index) = parameters.missing() {
        return Err(index);
    }
    let kernel = parameters.kernel();
    Ok(launch_packed(
        kernel.handle(),
        (shape, LaunchOptions::PLAIN),
        kernel.parameter_bytes(),
    ))
}

/// First unit of a launch whose parameter block has `parameter_bytes` bytes, and how many units
/// follow it.
#[inline]
pub(crate) fn launch_packed(
    kernel: u32,
    (shape, options): (LaunchShape, LaunchOptions),
    parameter_bytes: u32,
) -> (Unit, u64) {
    let units = packet::launch_units(parameter_bytes as usize);
    let head = transmute!(packet::Launch {
        header: header(Opcode::Launch, units),
        kernel,
        shape,
        parameter_bytes,
        options,
        reserved: 0,
    });
    (head, u64::from(units - 1))
}

/// Unit number `index` of a parameter block; zeros follow its last byte.
#[inline]
pub(crate) fn unit_of(block: &[u8], index: usize) -> Unit {
    let mut unit = Unit::default();
    let rest = block.get(index * UNIT_BYTES..).unwrap_or_default();
    let bytes = rest.len().min(UNIT_BYTES);
    unit.as_mut_bytes()[..bytes].copy_from_slice(&rest[..bytes]);
    unit
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

#[inline]
pub(crate) fn copy_rect(shape: CopyShape) -> Unit {
    transmute!(packet::CopyRect {
        header: header(Opcode::CopyRect, 1),
        shape,
        reserved: 0,
    })
}

#[inline]
pub(crate) fn fill_rect(shape: FillShape) -> Unit {
    transmute!(packet::FillRect {
        header: header(Opcode::FillRect, 1),
        shape,
        reserved: [0; 3],
    })
}

/// `direction` is that of [`crate::ArrayDirection`].
#[inline]
pub(crate) fn copy_array(array: u32, part: ArrayBox, direction: u32) -> Unit {
    transmute!(packet::CopyArray {
        header: header(Opcode::CopyArray, 1),
        array,
        direction,
        part,
        reserved: 0,
    })
}

/// A fence release or acquire, or a timestamp, as `opcode` says.
#[inline]
pub(crate) fn fence(opcode: Opcode, address: u64, value: u64) -> Unit {
    transmute!(packet::Fence {
        header: header(opcode, 1),
        address,
        value,
        flags: 0,
        condition: 0,
        reserved: [0; 4],
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

/// Declares the methods that write packets of one unit for a type that has `push`.
macro_rules! packet_methods {
    ($error:ident) => {
        /// Writes a packet that copies `length` bytes from GPU virtual address `source` to
        /// `destination`. The ranges must not overlap.
        ///
        /// # Errors
        #[doc = concat!("[`", stringify!($error), "`], for the reasons of [`Self::push`].")]
        #[inline]
        pub fn copy(&mut self, destination: u64, source: u64, length: u64) -> Result<(), $error> {
            self.push($crate::packets::copy(destination, source, length))
        }

        /// Writes a packet that fills `length` bytes from GPU virtual address `destination` with
        /// the 32-bit word `word`. Address and length are multiples of 4.
        ///
        /// # Errors
        #[doc = concat!("[`", stringify!($error), "`], for the reasons of [`Self::push`].")]
        #[inline]
        pub fn fill(&mut self, destination: u64, length: u64, word: u32) -> Result<(), $error> {
            self.fill_pattern(destination, length, word, 4)
        }

        /// Writes a packet that fills `length` bytes from GPU virtual address `destination` with
        /// the low `width` (1, 2 or 4) bytes of `pattern`. Address and length are multiples of
        /// `width`.
        ///
        /// # Errors
        #[doc = concat!("[`", stringify!($error), "`], for the reasons of [`Self::push`].")]
        #[inline]
        pub fn fill_pattern(
            &mut self,
            destination: u64,
            length: u64,
            pattern: u32,
            width: u32,
        ) -> Result<(), $error> {
            self.push($crate::packets::fill(destination, length, pattern, width))
        }

        /// Writes a packet that copies rows. Each side lies in one mapping, from its first to its
        /// last byte. Needs the feature
        /// [`RECTANGLES`](causeway_protocol::registers::features::RECTANGLES).
        ///
        /// # Errors
        #[doc = concat!("[`", stringify!($error), "`], for the reasons of [`Self::push`].")]
        #[inline]
        pub fn copy_rect(&mut self, shape: $crate::CopyShape) -> Result<(), $error> {
            self.push($crate::packets::copy_rect(shape))
        }

        /// Writes a packet that fills rows with a pattern. They lie in one mapping, from the first
        /// to the last byte. Needs the feature
        /// [`RECTANGLES`](causeway_protocol::registers::features::RECTANGLES).
        ///
        /// # Errors
        #[doc = concat!("[`", stringify!($error), "`], for the reasons of [`Self::push`].")]
        #[inline]
        pub fn fill_rect(&mut self, shape: $crate::FillShape) -> Result<(), $error> {
            self.push($crate::packets::fill_rect(shape))
        }

        /// Writes a packet that copies a box between memory and `array`. The rows of memory lie in
        /// one mapping, from the first to the last byte. In a recording, the array stays usable
        /// after it is destroyed. Needs the feature
        /// [`ARRAYS`](causeway_protocol::registers::features::ARRAYS).
        ///
        /// # Errors
        #[doc = concat!("[`", stringify!($error), "`], for the reasons of [`Self::push`].")]
        #[inline]
        pub fn copy_array(
            &mut self,
            array: &$crate::Array<'_>,
            part: $crate::ArrayBox,
            direction: $crate::ArrayDirection,
        ) -> Result<(), $error> {
            self.push($crate::packets::copy_array(
                array.handle(),
                part,
                direction as u32,
            ))
        }

        /// Writes a packet that stores `value` to `fence` once all earlier packets are done. In a
        /// recording, each replay stores this same value.
        ///
        /// # Errors
        #[doc = concat!("[`", stringify!($error), "`], for the reasons of [`Self::push`].")]
        #[inline]
        pub fn release(&mut self, fence: &$crate::Fence<'_>, value: u64) -> Result<(), $error> {
            let opcode = causeway_protocol::packet::Opcode::FenceRelease;
            self.push($crate::packets::fence(opcode, fence.address(), value))
        }

        /// Writes a packet that stores the device's time in nanoseconds at GPU virtual address
        /// `address` (a multiple of 8) once all earlier packets are done.
        ///
        /// # Errors
        #[doc = concat!("[`", stringify!($error), "`], for the reasons of [`Self::push`].")]
        #[inline]
        pub fn timestamp(&mut self, address: u64) -> Result<(), $error> {
            let opcode = causeway_protocol::packet::Opcode::Timestamp;
            self.push($crate::packets::fence(opcode, address, 0))
        }

        /// Writes a packet that does nothing.
        ///
        /// # Errors
        #[doc = concat!("[`", stringify!($error), "`], for the reasons of [`Self::push`].")]
        #[inline]
        pub fn nop(&mut self) -> Result<(), $error> {
            self.push($crate::packets::nop())
        }
    };
}
pub(crate) use packet_methods;
