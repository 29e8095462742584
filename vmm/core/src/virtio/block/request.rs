//! A request to a disk, decoded (Virtual I/O Device Version 1.2, 5.2.6).

use virtio_bindings::virtio_blk as spec;
use vm_memory::GuestMemoryMmap;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{ID_BYTES, SECTOR_BYTES};
use crate::virtio::chain::{Chain, Segments};
use crate::virtio::device::ServeError;

/// Maximum number of ranges of the disk that one request can discard or zero.
pub const RANGES_MAX: usize = 4;

/// The header of every request (5.2.6).
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

/// A range of the disk that a request discards or zeroes. A guest chooses it, so it may lie beyond
/// the end of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Offset in bytes at which the range begins on the disk.
    pub offset: u64,
    /// Length of the range in bytes.
    pub bytes: u64,
    /// Whether the host's file system may take the space of a zeroed range back.
    pub unmap: bool,
}

/// The operation that a guest's request asks of a disk. Its offsets and lengths have not been
/// checked against the disk's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Copies from the disk to guest memory.
    Read {
        /// Offset in bytes on the disk from which to read.
        offset: u64,
        /// Guest memory to write to.
        into: Segments,
    },
    /// Copies from guest memory to the disk.
    Write {
        /// Offset in bytes on the disk to which to write.
        offset: u64,
        /// Guest memory to read from.
        from: Segments,
    },
    /// Makes all earlier writes durable.
    Flush,
    /// Copies the disk's serial number to guest memory.
    Identify {
        /// Guest memory to write to.
        into: Segments,
    },
    /// Discards ranges, whose content the guest does not need any more.
    Discard(Vec<Range>),
    /// Makes ranges read as zero.
    Zero(Vec<Range>),
}

/// Status of a request that the disk refuses or that fails, as the guest reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `VIRTIO_BLK_S_IOERR`: the request is invalid, or the host failed.
    Io,
    /// `VIRTIO_BLK_S_UNSUPP`: the device does not have this operation.
    Unsupported,
}

impl Operation {
    /// Decodes `chain`, a guest's request to its disk. Returns the operation, or the status with
    /// which to refuse the request; and the byte of guest memory to which the device writes its
    /// status.
    ///
    /// # Errors
    /// [`ServeError::Malformed`] if the chain has no header or no byte for the status,
    /// [`ServeError::Memory`] if guest memory cannot be read.
    pub fn of(
        chain: &Chain,
        memory: &GuestMemoryMmap,
    ) -> Result<(Result<Self, Refusal>, Segments), ServeError> {
        let header_bytes = size_of::<Header>() as u64;
        let malformed = |rule| ServeError::Malformed { rule };
        let (header_at, sent) = chain.readable.split(header_bytes).ok_or(malformed(
            "a disk request must begin with a header of 16 bytes",
        ))?;
        let answer_bytes = chain.writable.bytes().checked_sub(1);
        let (answer, status) = answer_bytes
            .and_then(|bytes| chain.writable.split(bytes))
            .ok_or(malformed(
                "a disk request must have a writable byte for its status",
            ))?;
        let mut header = Header::new_zeroed();
        header_at.read(memory, header.as_mut_bytes())?;
        Ok((Self::decode(&header, sent, answer, memory)?, status))
    }

    fn decode(
        header: &Header,
        sent: Segments,
        answer: Segments,
        memory: &GuestMemoryMmap,
    ) -> Result<Result<Self, Refusal>, ServeError> {
        let offset = header.sector.get().checked_mul(SECTOR_BYTES);
        let offset = offset.ok_or(Refusal::Io);
        Ok(match header.kind.get() {
            spec::VIRTIO_BLK_T_IN => offset.map(|offset| Self::Read {
                offset,
                into: answer,
            }),
            spec::VIRTIO_BLK_T_OUT => offset.map(|offset| Self::Write { offset, from: sent }),
            spec::VIRTIO_BLK_T_FLUSH => Ok(Self::Flush),
            spec::VIRTIO_BLK_T_GET_ID if answer.bytes() < ID_BYTES as u64 => Err(Refusal::Io),
            spec::VIRTIO_BLK_T_GET_ID => Ok(Self::Identify { into: answer }),
            // 5.2.6.2: a discard with a flag is not supported.
            spec::VIRTIO_BLK_T_DISCARD => ranges(&sent, 0, memory)?.map(Self::Discard),
            spec::VIRTIO_BLK_T_WRITE_ZEROES => {
                ranges(&sent, spec::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP, memory)?.map(Self::Zero)
            }
            _ => Err(Refusal::Unsupported),
        })
    }
}

/// Reads the ranges of a request to discard or to zero: 1 to [`RANGES_MAX`].
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
        let offset = self.sector.get().checked_mul(SECTOR_BYTES);
        Ok(Range {
            offset: offset.ok_or(Refusal::Io)?,
            bytes: u64::from(self.sectors.get()) * SECTOR_BYTES,
            unmap: flags & spec::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0,
        })
    }
}
