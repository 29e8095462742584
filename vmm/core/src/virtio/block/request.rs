//! A request to a disk, decoded (Virtual I/O Device Version 1.2, 5.2.6).

use virtio_bindings::virtio_blk as spec;
use vm_memory::GuestMemoryMmap;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{ID_BYTES, SECTOR_BYTES};
use crate::virtio::chain::{Chain, Segments};
use crate::virtio::device::ServeError;

/// Most ranges that a request discards or zeroes.
pub const RANGES_MAX: usize = 4;

/// What every request begins with.
#[repr(C)]
#[derive(Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Header {
    kind: U32,
    reserved: U32,
    sector: U64,
}

/// A range to be discarded or zeroed, as the driver writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct RangeOnDisk {
    sector: U64,
    sectors: U32,
    flags: U32,
}

const _: () = assert!(size_of::<Header>() == 16 && size_of::<RangeOnDisk>() == 16);

/// A range to be discarded or zeroed. It need not lie within the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Its space may be given back.
    pub unmap: bool,
}

/// What is to be done. Nothing here is checked against the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Disk to guest.
    Read {
        /// Where on the disk, in bytes.
        offset: u64,
        /// Where in the guest.
        into: Segments,
    },
    /// Guest to disk.
    Write {
        /// Where on the disk, in bytes.
        offset: u64,
        /// Where in the guest.
        from: Segments,
    },
    /// What was written before is to be on the disk.
    Flush,
    /// Say who you are.
    Identify {
        /// Where to.
        into: Segments,
    },
    /// The guest does not need these any more.
    Discard(Vec<Range>),
    /// These are to read as zero.
    Zero(Vec<Range>),
}

/// How a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be, or the host failed.
    Io,
    /// The device does not do this.
    Unsupported,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub operation: Operation,
}

impl Request {
    /// Decodes a chain into a request, or its refusal, and the byte that its status goes to.
    ///
    /// # Errors
    /// [`ServeError::Malformed`] for a chain without header or status: there is no way to refuse
    /// it.
    pub fn of(
        chain: &Chain,
        memory: &GuestMemoryMmap,
    ) -> Result<(Result<Self, Refusal>, Segments), ServeError> {
        let header_bytes = size_of::<Header>() as u64;
        let malformed = |rule| ServeError::Malformed { rule };
        let (header_at, sent) = chain
            .readable
            .split(header_bytes)
            .ok_or(malformed("a disk request begins with a header of 16 bytes"))?;
        let answer_bytes = chain.writable.bytes().checked_sub(1);
        let (answer, status) = answer_bytes
            .and_then(|bytes| chain.writable.split(bytes))
            .ok_or(malformed("a disk request has a byte for its status"))?;
        let mut header = Header::new_zeroed();
        header_at.read(memory, header.as_mut_bytes())?;
        let request = match Self::decode(&header, sent, answer, memory)? {
            Ok(operation) => Ok(Self { operation }),
            Err(refusal) => Err(refusal),
        };
        Ok((request, status))
    }

    fn decode(
        header: &Header,
        sent: Segments,
        answer: Segments,
        memory: &GuestMemoryMmap,
    ) -> Result<Result<Operation, Refusal>, ServeError> {
        let offset = header.sector.get().checked_mul(SECTOR_BYTES);
        let at = |operation: fn(u64, Segments) -> Operation, data| match offset {
            Some(offset) => Ok(operation(offset, data)),
            None => Err(Refusal::Io),
        };
        Ok(match header.kind.get() {
            spec::VIRTIO_BLK_T_IN => at(|offset, into| Operation::Read { offset, into }, answer),
            spec::VIRTIO_BLK_T_OUT => at(|offset, from| Operation::Write { offset, from }, sent),
            spec::VIRTIO_BLK_T_FLUSH => Ok(Operation::Flush),
            spec::VIRTIO_BLK_T_GET_ID if answer.bytes() < ID_BYTES as u64 => Err(Refusal::Io),
            spec::VIRTIO_BLK_T_GET_ID => Ok(Operation::Identify { into: answer }),
            spec::VIRTIO_BLK_T_DISCARD => {
                // 5.2.6.2: a discard with a flag is not supported.
                let ranges = ranges(&sent, 0, memory)?;
                ranges.map(Operation::Discard)
            }
            spec::VIRTIO_BLK_T_WRITE_ZEROES => {
                let ranges = ranges(&sent, spec::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP, memory)?;
                ranges.map(Operation::Zero)
            }
            _ => Err(Refusal::Unsupported),
        })
    }
}

/// The ranges of a request to discard or to zero, which has one at least and [`RANGES_MAX`] at
/// most.
fn ranges(
    sent: &Segments,
    flags_known: u32,
    memory: &GuestMemoryMmap,
) -> Result<Result<Vec<Range>, Refusal>, ServeError> {
    let each = size_of::<RangeOnDisk>() as u64;
    let count = sent.bytes() / each;
    if !sent.bytes().is_multiple_of(each) || !(1..=RANGES_MAX as u64).contains(&count) {
        return Ok(Err(Refusal::Io));
    }
    let mut all = [RangeOnDisk::default(); RANGES_MAX];
    let all = &mut all[..count as usize];
    sent.read(memory, all.as_mut_bytes())?;
    Ok(all.iter().map(|range| range.decode(flags_known)).collect())
}

impl RangeOnDisk {
    fn decode(&self, flags_known: u32) -> Result<Range, Refusal> {
        let flags = self.flags.get();
        if flags & !flags_known != 0 {
            return Err(Refusal::Unsupported);
        }
        Ok(Range {
            offset: self
                .sector
                .get()
                .checked_mul(SECTOR_BYTES)
                .ok_or(Refusal::Io)?,
            bytes: u64::from(self.sectors.get()) * SECTOR_BYTES,
            unmap: flags & spec::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0,
        })
    }
}
