//! Decoding of packets out of the consumer's private copy of a part of the ring.

use causeway_protocol::message::Status;
use causeway_protocol::packet::{
    ArrayBox, Condition, CopyArray, CopyRange, CopyRect, Fence, Fill, FillRect, Header, Launch,
    Opcode, PARAMETER_BYTES_MAX, Replay, UNIT_BYTES, fence_flags, launch_flags, launch_units,
};
use zerocopy::FromBytes;

use crate::backend::MemoryWork;

/// A packet whose structure is right. Handles, sizes that depend on a kernel, and addresses are not
/// checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    Nop,
    Launch(Launch, &'a [u8]),
    Memory(MemoryWork),
    Array(CopyOfArray),
    Acquire(Acquire),
    Replay { recording: u32 },
}

/// A copy between memory and the array with a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopyOfArray {
    pub array: u32,
    pub part: ArrayBox,
    pub is_into_array: bool,
}

/// What a fence acquire waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acquire {
    /// Address of the word: a multiple of its size.
    pub address: u64,
    pub value: u64,
    pub condition: Condition,
    /// Size of the word: 32 or 64.
    pub bits: u32,
}

impl Acquire {
    /// Returns whether the wait is over. `load` loads the 64-bit word at an address that is a
    /// multiple of 8; the result is `None` if it cannot.
    pub fn is_over(&self, load: impl FnOnce(u64) -> Option<u64>) -> Option<bool> {
        // A 32-bit word is one half of a 64-bit word, which lies in the same page.
        let word = load(self.address & !7)? >> (8 * (self.address & 4));
        Some(self.condition.is_met(word, self.value, self.bits))
    }
}

impl Packet<'_> {
    /// Returns whether executing the packet may take long. Before such a packet, the consumer
    /// publishes its position, so that the guest can reuse the ring space of earlier packets.
    pub fn may_take_long(&self) -> bool {
        match self {
            Self::Nop => false,
            Self::Memory(work) => work.moved_bytes() != 0,
            Self::Launch(..) | Self::Array(_) | Self::Acquire(_) | Self::Replay { .. } => true,
        }
    }

    /// Returns how many bytes the packet copies or fills; 0 for a packet that does neither.
    pub fn moved_bytes(&self) -> u64 {
        match self {
            Self::Memory(work) => work.moved_bytes(),
            Self::Array(copy) => copy.part.bytes(),
            _ => 0,
        }
    }
}

/// A packet with its opcode and its length in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded<'a> {
    pub opcode: Opcode,
    pub packet: Packet<'a>,
    pub units: u64,
}

/// Decodes the packet at the beginning of `bytes`, which holds at least one unit. `limit` is the
/// number of units up to the producer's position or the end of the ring. Returns `None` if the
/// packet is longer than `bytes` but not than `limit`.
pub(super) fn decode(bytes: &[u8], limit: u64) -> Result<Option<Decoded<'_>>, Status> {
    let header: Header = read(bytes)?;
    let units = u64::from(header.units);
    let opcode = Opcode::from_wire(header.opcode).ok_or(Status::BadPacket)?;
    if header.reserved != 0 || units == 0 || units > limit {
        return Err(Status::BadPacket);
    }
    check(units == 1 || matches!(opcode, Opcode::Nop | Opcode::Launch))?;
    let packet = match opcode {
        Opcode::Nop => Packet::Nop,
        Opcode::Launch => match launch(bytes)? {
            Some(packet) => packet,
            None => return Ok(None),
        },
        Opcode::Copy => Packet::Memory(copy(read(bytes)?)?),
        Opcode::Fill => Packet::Memory(fill(read(bytes)?)?),
        Opcode::FenceRelease => {
            let fence = fence(read(bytes)?)?;
            check(fence.condition == 0)?;
            Packet::Memory(release(&fence))
        }
        Opcode::FenceAcquire => {
            let fence = fence(read(bytes)?)?;
            let condition = Condition::from_wire(fence.condition).ok_or(Status::BadPacket)?;
            Packet::Acquire(Acquire {
                address: fence.address,
                value: fence.value,
                condition,
                bits: if is_half(&fence) { 32 } else { 64 },
            })
        }
        Opcode::Timestamp => {
            let fence = fence(read(bytes)?)?;
            check(fence.value == 0 && fence.flags == 0 && fence.condition == 0)?;
            let address = fence.address;
            Packet::Memory(MemoryWork::Timestamp { address })
        }
        Opcode::Replay => {
            let Replay {
                recording,
                reserved,
                ..
            } = read(bytes)?;
            check(reserved == [0; 13])?;
            Packet::Replay { recording }
        }
        Opcode::CopyRect => Packet::Memory(copy_rect(read(bytes)?)?),
        Opcode::FillRect => Packet::Memory(fill_rect(read(bytes)?)?),
        Opcode::CopyArray => Packet::Array(copy_array(read(bytes)?)?),
    };
    Ok(Some(Decoded {
        opcode,
        packet,
        units,
    }))
}

fn launch(bytes: &[u8]) -> Result<Option<Packet<'_>>, Status> {
    let launch: Launch = read(bytes)?;
    let size = launch.parameter_bytes as usize;
    check(launch.reserved == 0 && launch.options.flags & !launch_flags::COOPERATIVE == 0)?;
    check(size <= PARAMETER_BYTES_MAX)?;
    check(launch.header.units == launch_units(size))?;
    Ok(bytes
        .get(UNIT_BYTES..UNIT_BYTES + size)
        .map(|parameters| Packet::Launch(launch, parameters)))
}

fn copy(copy: CopyRange) -> Result<MemoryWork, Status> {
    check(copy.reserved == [0; 4])?;
    let destination_end = end(copy.destination, copy.length)?;
    let source_end = end(copy.source, copy.length)?;
    if copy.destination < source_end && copy.source < destination_end {
        return Err(Status::BadRange);
    }
    Ok(MemoryWork::Copy {
        destination: copy.destination,
        source: copy.source,
        bytes: copy.length,
    })
}

fn copy_rect(copy: CopyRect) -> Result<MemoryWork, Status> {
    check(copy.reserved == 0)?;
    copy.shape.extents().ok_or(Status::BadRange)?;
    Ok(MemoryWork::CopyRect(copy.shape))
}

fn fill_rect(fill: FillRect) -> Result<MemoryWork, Status> {
    check(fill.reserved == [0; 3])?;
    let shape = fill.shape;
    let places = [shape.destination, u64::from(shape.pitch), shape.width];
    pattern((shape.pattern, shape.element), &places)?;
    shape.extent().ok_or(Status::BadRange)?;
    Ok(MemoryWork::FillRect(shape))
}

fn copy_array(copy: CopyArray) -> Result<CopyOfArray, Status> {
    check(copy.reserved == 0 && copy.direction <= 1)?;
    copy.part.extent().ok_or(Status::BadRange)?;
    Ok(CopyOfArray {
        array: copy.array,
        part: copy.part,
        is_into_array: copy.direction == 0,
    })
}

/// Checks a pattern of `width` bytes, of which addresses and sizes are multiples.
fn pattern((pattern, width): (u32, u32), places: &[u64]) -> Result<(), Status> {
    check(matches!(width, 1 | 2 | 4))?;
    check(width == 4 || pattern >> (8 * width) == 0)?;
    match places.iter().all(|at| at.is_multiple_of(u64::from(width))) {
        true => Ok(()),
        false => Err(Status::BadAlignment),
    }
}

fn fill(fill: Fill) -> Result<MemoryWork, Status> {
    check(fill.reserved == [0; 4])?;
    pattern((fill.pattern, fill.width), &[fill.destination, fill.length])?;
    end(fill.destination, fill.length)?;
    Ok(MemoryWork::Fill {
        destination: fill.destination,
        bytes: fill.length,
        pattern: fill.pattern,
        width: fill.width,
    })
}

fn fence(fence: Fence) -> Result<Fence, Status> {
    check(fence.reserved == [0; 4] && fence.flags & !fence_flags::HALF == 0)?;
    let bytes = if is_half(&fence) { 4 } else { 8 };
    check(bytes == 8 || u32::try_from(fence.value).is_ok())?;
    if fence.address.is_multiple_of(bytes) {
        Ok(fence)
    } else {
        Err(Status::BadAlignment)
    }
}

const fn is_half(fence: &Fence) -> bool {
    fence.flags & fence_flags::HALF != 0
}

/// The store of a fence that was checked.
fn release(fence: &Fence) -> MemoryWork {
    let (address, value) = (fence.address, fence.value);
    match is_half(fence) {
        true => MemoryWork::ReleaseHalf {
            address,
            value: value as u32,
        },
        false => MemoryWork::Release { address, value },
    }
}

/// The end of a range that is not empty and does not wrap.
fn end(start: u64, bytes: u64) -> Result<u64, Status> {
    match start.checked_add(bytes) {
        Some(end) if bytes != 0 => Ok(end),
        _ => Err(Status::BadRange),
    }
}

fn check(right: bool) -> Result<(), Status> {
    if right {
        Ok(())
    } else {
        Err(Status::BadPacket)
    }
}

fn read<T: FromBytes>(bytes: &[u8]) -> Result<T, Status> {
    match T::read_from_prefix(bytes) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(Status::BadPacket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_protocol::packet::{CopyShape, FillShape, OPCODES, RectSide};
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn header(opcode: Opcode, units: u32) -> Header {
        Header {
            opcode: opcode as u16,
            reserved: 0,
            units,
        }
    }

    fn refused(packet: impl IntoBytes + zerocopy::Immutable) -> Status {
        decode(packet.as_bytes(), 1000).unwrap_err()
    }

    #[test]
    fn a_nop_is_judged_by_its_head_alone() {
        let mut unit = [0xff; UNIT_BYTES];
        unit[..8].copy_from_slice(header(Opcode::Nop, 200).as_bytes());
        let nop = decode(&unit, 200).unwrap().unwrap();
        assert_eq!((nop.packet, nop.units), (Packet::Nop, 200));
        assert_eq!(decode(&unit, 199), Err(Status::BadPacket));
        unit[4..8].fill(0);
        assert_eq!(decode(&unit, 199), Err(Status::BadPacket), "no units");
        unit[..2].copy_from_slice(&99u16.to_le_bytes());
        assert_eq!(decode(&unit, 199), Err(Status::BadPacket), "no such opcode");
    }

    #[test]
    fn a_launch_has_exactly_the_units_of_its_parameters_and_may_be_cut() {
        let mut launch = Launch {
            header: header(Opcode::Launch, 3),
            parameter_bytes: 65,
            ..Launch::default()
        };
        let mut bytes = launch.as_bytes().to_vec();
        bytes.resize(3 * UNIT_BYTES, 7);
        let decoded = decode(&bytes, 3).unwrap().unwrap();
        assert_eq!(decoded.packet, Packet::Launch(launch, &[7; 65]));
        assert_eq!(decoded.units, 3);
        assert_eq!(decode(&bytes[..128], 3), Ok(None));
        assert_eq!(decode(&bytes, 2), Err(Status::BadPacket));
        launch.header.units = 2;
        assert_eq!(refused(launch), Status::BadPacket);
        launch.header.units = 3;
        launch.parameter_bytes = u32::MAX;
        assert_eq!(refused(launch), Status::BadPacket);
        launch.parameter_bytes = 65;
        assert_eq!(decode(launch.as_bytes(), 3), Ok(None));
        launch.reserved = 1;
        assert_eq!(refused(launch), Status::BadPacket);
        launch.reserved = 0;
        launch.options.flags = 2;
        assert_eq!(refused(launch), Status::BadPacket);
    }

    #[test]
    fn copies_must_not_be_empty_wrap_or_overlap() {
        let copy = |destination, source, length| CopyRange {
            header: header(Opcode::Copy, 1),
            destination,
            source,
            length,
            reserved: [0; 4],
        };
        assert!(decode(copy(0x1000, 0x2000, 0x1000).as_bytes(), 1).is_ok());
        assert!(decode(copy(0x3000, 0x2000, 0x1000).as_bytes(), 1).is_ok());
        assert_eq!(refused(copy(0x1000, 0x2000, 0)), Status::BadRange);
        assert_eq!(refused(copy(0x1000, 0x2000, 0x1001)), Status::BadRange);
        assert_eq!(refused(copy(0x2000, 0x2000, 1)), Status::BadRange);
        assert_eq!(refused(copy(u64::MAX, 0, 2)), Status::BadRange);
    }

    #[test]
    fn fills_and_fences_are_aligned_and_have_no_stray_bits() {
        let fill = |destination, length, pattern, width| Fill {
            header: header(Opcode::Fill, 1),
            destination,
            length,
            pattern,
            width,
            reserved: [0; 4],
        };
        assert!(decode(fill(2, 2, 0xffff, 2).as_bytes(), 1).is_ok());
        assert_eq!(refused(fill(2, 2, 0x1_0000, 2)), Status::BadPacket);
        assert_eq!(refused(fill(0, 3, 0, 3)), Status::BadPacket);
        assert_eq!(refused(fill(2, 4, 0, 4)), Status::BadAlignment);
        let mut fence = Fence {
            header: header(Opcode::FenceRelease, 1),
            address: 4,
            ..Fence::default()
        };
        assert_eq!(refused(fence), Status::BadAlignment);
        fence.address = 8;
        fence.header.units = 2;
        assert_eq!(refused(fence), Status::BadPacket);
        fence.header = header(Opcode::Timestamp, 1);
        fence.value = 1;
        assert_eq!(refused(fence), Status::BadPacket);
        fence.value = 0;
        assert!(decode(fence.as_bytes(), 1).is_ok());
        fence.flags = fence_flags::HALF;
        assert_eq!(refused(fence), Status::BadPacket);
        let mut replay = Replay {
            header: header(Opcode::Replay, 1),
            recording: 7,
            ..Replay::default()
        };
        assert!(decode(replay.as_bytes(), 1).is_ok());
        replay.reserved[12] = 1;
        assert_eq!(refused(replay), Status::BadPacket);
    }

    #[test]
    fn fences_of_32_bits_have_an_address_a_value_and_conditions_of_their_own() {
        let fence = |opcode, address, value, condition| Fence {
            header: header(opcode, 1),
            address,
            value,
            flags: fence_flags::HALF,
            condition,
            ..Fence::default()
        };
        let check = |fence: Fence, wanted: Packet<'_>| {
            let decoded = decode(fence.as_bytes(), 1).unwrap().unwrap();
            assert_eq!(decoded.packet, wanted);
        };
        let (release, acquire) = (Opcode::FenceRelease, Opcode::FenceAcquire);
        let (address, value) = (0x1004, 7);
        let stored = MemoryWork::ReleaseHalf { address, value };
        check(fence(release, address, 7, 0), Packet::Memory(stored));
        for condition in Condition::ALL.iter().copied() {
            let waiting = Acquire {
                address,
                value: 7,
                condition,
                bits: 32,
            };
            check(
                fence(acquire, address, 7, condition as u32),
                Packet::Acquire(waiting),
            );
        }
        for (opcode, address, value, condition, status) in [
            (release, 0x1002, 7, 0, Status::BadAlignment),
            (release, 0x1004, 1 << 32, 0, Status::BadPacket),
            (acquire, 0x1004, 1 << 32, 0, Status::BadPacket),
            (release, 0x1004, 7, 1, Status::BadPacket),
            (acquire, 0x1004, 7, 5, Status::BadPacket),
        ] {
            assert_eq!(refused(fence(opcode, address, value, condition)), status);
        }
        let mut stray = fence(release, 0x1004, 7, 0);
        stray.flags = 3;
        assert_eq!(refused(stray), Status::BadPacket);
        stray.flags = 0;
        assert_eq!(refused(stray), Status::BadAlignment);
    }

    #[test]
    fn a_short_word_is_its_half_of_the_long_one() {
        let waits = |address, bits, value| Acquire {
            address,
            value,
            condition: Condition::Equal,
            bits,
        };
        let load = |at| (at == 0x1000).then_some(0x0000_0002_0000_0001);
        assert_eq!(waits(0x1000, 32, 1).is_over(load), Some(true));
        assert_eq!(waits(0x1004, 32, 2).is_over(load), Some(true));
        assert_eq!(waits(0x1004, 32, 1).is_over(load), Some(false));
        assert_eq!(waits(0x1000, 64, 0x2_0000_0001).is_over(load), Some(true));
        assert_eq!(waits(0x1008, 32, 1).is_over(load), None);
    }

    fn copied_rows(to: u64, from: u64, (width, height, depth): (u64, u32, u32)) -> CopyRect {
        let side = |address| RectSide {
            address,
            pitch: 64,
            rows: 8,
        };
        CopyRect {
            header: header(Opcode::CopyRect, 1),
            shape: CopyShape {
                destination: side(to),
                source: side(from),
                width,
                height,
                depth,
            },
            reserved: 0,
        }
    }

    fn copied_box(
        array: u32,
        direction: u32,
        (width, height, depth): (u32, u32, u32),
    ) -> CopyArray {
        CopyArray {
            header: header(Opcode::CopyArray, 1),
            array,
            direction,
            part: ArrayBox {
                memory: RectSide {
                    address: 0x1000,
                    pitch: 64,
                    rows: 8,
                },
                origin: [1, 2, 3],
                width,
                height,
                depth,
            },
            reserved: 0,
        }
    }

    #[test]
    fn a_copy_of_an_array_has_a_direction_and_rows() {
        let copy = copied_box(7, 1, (32, 8, 2));
        let decoded = decode(copy.as_bytes(), 1).unwrap().unwrap();
        let wanted = CopyOfArray {
            array: 7,
            part: copy.part,
            is_into_array: false,
        };
        assert_eq!(decoded.packet, Packet::Array(wanted));
        assert_eq!(decoded.packet.moved_bytes(), 32 * 8 * 2);
        assert!(decoded.packet.may_take_long());
        let mut stray = copied_box(7, 2, (32, 8, 2));
        assert_eq!(refused(stray), Status::BadPacket);
        stray.direction = 0;
        stray.reserved = 1;
        assert_eq!(refused(stray), Status::BadPacket);
        for size in [(0, 8, 2), (32, 0, 2), (32, 8, 0), (65, 8, 2), (32, 9, 2)] {
            assert_eq!(
                refused(copied_box(7, 0, size)),
                Status::BadRange,
                "{size:?}"
            );
        }
    }

    fn filled_rows(shape: (u64, u32, u64), pattern: u32, element: u32) -> FillRect {
        let (destination, pitch, width) = shape;
        FillRect {
            header: header(Opcode::FillRect, 1),
            shape: FillShape {
                destination,
                pitch,
                height: 3,
                width,
                pattern,
                element,
            },
            reserved: [0; 3],
        }
    }

    #[test]
    fn rows_must_have_a_shape_that_a_packet_may_have() {
        let copy = copied_rows(0x1000, 0x9000, (32, 8, 2));
        let work = Packet::Memory(MemoryWork::CopyRect(copy.shape));
        let decoded = decode(copy.as_bytes(), 1).unwrap().unwrap();
        assert_eq!((decoded.packet, work.moved_bytes()), (work, 512));
        assert!(work.may_take_long());
        let written = MemoryWork::CopyRect(copy.shape).written();
        assert_eq!(written, (0x1000, 15 * 64 + 32));
        let beside = copied_rows(0x1000, 0x1020, (32, 8, 2));
        assert!(decode(beside.as_bytes(), 1).is_ok());
        for (to, from, size) in [
            (0x1000, 0x1020, (33, 8, 2)),
            (0x1000, 0x9000, (65, 1, 1)),
            (0x1000, 0x9000, (u64::MAX, 1, 1)),
            (0x1000, 0x9000, (8, 9, 1)),
            (0x1000, 0x9000, (8, 0, 1)),
            (0x1000, 0x9000, (8, u32::MAX, u32::MAX)),
            (u64::MAX - 8, 0x9000, (32, 8, 2)),
            (0x1000, u64::MAX - 8, (32, 8, 2)),
        ] {
            assert_eq!(
                refused(copied_rows(to, from, size)),
                Status::BadRange,
                "{size:?}"
            );
        }
        let stray = CopyRect {
            reserved: 1,
            ..copy
        };
        assert_eq!(refused(stray), Status::BadPacket);
        assert!(decode(filled_rows((0x1000, 64, 32), 0x1234, 2).as_bytes(), 1).is_ok());
        for (shape, pattern, element, status) in [
            ((0x1000, 64, 65), 0, 1, Status::BadRange),
            ((0x1000, 64, 0), 0, 1, Status::BadRange),
            ((u64::MAX - 7, 64, 8), 0, 1, Status::BadRange),
            ((0x1001, 64, 32), 0, 2, Status::BadAlignment),
            ((0x1000, 65, 32), 0, 2, Status::BadAlignment),
            ((0x1000, 64, 30), 0, 4, Status::BadAlignment),
            ((0x1000, 64, 32), 0x100, 1, Status::BadPacket),
            ((0x1000, 64, 32), 0, 3, Status::BadPacket),
            ((0x1000, 64, 32), 0, 0, Status::BadPacket),
        ] {
            assert_eq!(
                refused(filled_rows(shape, pattern, element)),
                status,
                "{shape:?}"
            );
        }
        let stray = FillRect {
            reserved: [0, 0, 1],
            ..filled_rows((0x1000, 64, 32), 0, 1)
        };
        assert_eq!(refused(stray), Status::BadPacket);
    }

    proptest! {
        /// Whatever the bytes, a decoded packet stays within what it may be read from.
        #[test]
        fn arbitrary_units_never_reach_beyond_their_limit(
            opcode in 0..Opcode::SLOTS as u16 + 2,
            units in prop_oneof![0..70_u32, 0..600_u32],
            mut bytes in prop::collection::vec(any::<u8>(), UNIT_BYTES..8 * UNIT_BYTES),
            limit in prop_oneof![1..80_u64, 1..600_u64],
            clear in any::<bool>(),
        ) {
            if clear {
                bytes[24..UNIT_BYTES].fill(0);
            }
            bytes[..2].copy_from_slice(&opcode.to_le_bytes());
            bytes[2..4].fill(0);
            bytes[4..8].copy_from_slice(&units.to_le_bytes());
            if let Ok(Some(Decoded { units: used, .. })) = decode(&bytes, limit) {
                prop_assert!(used >= 1 && used <= limit && used == u64::from(units));
            }
        }
    }

    /// A packet that decodes, of the kind that `kind` picks.
    fn valid_packet(kind: u64, parameters: u64) -> [u8; 3 * UNIT_BYTES] {
        let opcode = OPCODES[kind as usize % OPCODES.len()];
        let header = header(opcode, 1);
        let mut bytes = [0; 3 * UNIT_BYTES];
        let unit: &mut [u8] = &mut bytes[..UNIT_BYTES];
        match opcode {
            Opcode::Nop => unit[..8].copy_from_slice(header.as_bytes()),
            Opcode::Launch => {
                let mut launch = Launch {
                    header,
                    parameter_bytes: parameters as u32,
                    ..Launch::default()
                };
                launch.header.units = launch_units(parameters as usize);
                unit.copy_from_slice(launch.as_bytes());
            }
            Opcode::Copy => {
                let (destination, source, length) = (0x1000, 0x3000, 0x2000);
                let reserved = [0; 4];
                let copy = CopyRange {
                    header,
                    destination,
                    source,
                    length,
                    reserved,
                };
                unit.copy_from_slice(copy.as_bytes());
            }
            Opcode::Fill => {
                let (destination, length, pattern, width) = (0x1000, 64, 0x7f, 1 << (kind % 3));
                let reserved = [0; 4];
                let fill = Fill {
                    header,
                    destination,
                    length,
                    pattern,
                    width,
                    reserved,
                };
                unit.copy_from_slice(fill.as_bytes());
            }
            Opcode::FenceRelease | Opcode::FenceAcquire | Opcode::Timestamp => {
                let address = 0x1000;
                let is_half = kind & 1 != 0 && opcode != Opcode::Timestamp;
                let fence = Fence {
                    header,
                    address,
                    flags: u32::from(is_half) * fence_flags::HALF,
                    ..Fence::default()
                };
                unit.copy_from_slice(fence.as_bytes());
            }
            Opcode::Replay => {
                let replay = Replay {
                    header,
                    recording: 1,
                    ..Replay::default()
                };
                unit.copy_from_slice(replay.as_bytes());
            }
            Opcode::CopyRect => {
                let copy = copied_rows(0x1000, 0x1020 + (kind & 1) * 0x4000, (32, 8, 2));
                unit.copy_from_slice(copy.as_bytes());
            }
            Opcode::FillRect => {
                let fill = filled_rows((0x1000, 64, 32), 0x7f, 1 << (kind % 3));
                unit.copy_from_slice(fill.as_bytes());
            }
            Opcode::CopyArray => {
                let copy = copied_box(1, (kind & 1) as u32, (32, 8, 2));
                unit.copy_from_slice(copy.as_bytes());
            }
        }
        bytes
    }

    /// Packets that are right but for a few spoilt bytes: the decoder must not read past what it is
    /// given (it would panic), and what it lets through is what the executor relies on.
    #[test]
    fn spoilt_packets_are_refused_or_still_right() {
        let inputs = std::env::var("CAUSEWAY_FUZZ_INPUTS").ok();
        let inputs: u64 = inputs.and_then(|n| n.parse().ok()).unwrap_or(20_000);
        let mut seed = 88_172_645_463_325_252_u64;
        // Xorshift64 (Marsaglia: "Xorshift RNGs", 2003).
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let mut decoded = 0;
        for _ in 0..inputs {
            let mut bytes = valid_packet(random(), random() % 129);
            for _ in 0..random() % 3 {
                bytes[random() as usize % UNIT_BYTES] = random() as u8;
            }
            let shown = 1 + random() as usize % 3;
            let limit = shown as u64 + random() % 3;
            let Ok(Some(Decoded { packet, units, .. })) =
                decode(&bytes[..shown * UNIT_BYTES], limit)
            else {
                continue;
            };
            match packet {
                Packet::Launch(launch, parameters) => {
                    assert!(units <= shown as u64 && units <= limit);
                    assert_eq!(parameters.len(), launch.parameter_bytes as usize);
                }
                Packet::Memory(MemoryWork::Copy {
                    destination,
                    source,
                    bytes,
                }) => assert!(units == 1 && destination.abs_diff(source) >= bytes),
                Packet::Memory(MemoryWork::Fill {
                    destination,
                    bytes,
                    width,
                    ..
                }) => assert!(units == 1 && (destination | bytes) % u64::from(width) == 0),
                Packet::Memory(work @ (MemoryWork::CopyRect(_) | MemoryWork::FillRect(_))) => {
                    let ranges = [Some(work.written()), work.read()];
                    assert!(units == 1 && work.moved_bytes() != 0);
                    for (start, bytes) in ranges.into_iter().flatten() {
                        assert!(bytes != 0 && start.checked_add(bytes).is_some());
                    }
                }
                Packet::Array(copy) => {
                    let bytes = copy.part.extent();
                    let end = bytes.and_then(|it| copy.part.memory.address.checked_add(it));
                    assert!(units == 1 && copy.part.bytes() != 0 && end.is_some());
                }
                packet => assert!(units <= limit && (units == 1 || packet == Packet::Nop)),
            }
            decoded += 1;
        }
        assert!(
            decoded > inputs / 4,
            "only {decoded} of {inputs} were right"
        );
    }
}
