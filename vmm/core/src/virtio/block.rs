//! The block device (Virtual I/O Device Version 1.2, 5.2), on a raw image file.

use std::io;
use std::sync::Arc;

use virtio_bindings::virtio_blk as spec;
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use vm_memory::GuestMemoryMmap;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

use super::chain::{Chain, SEGMENTS_MAX, Segments};
use super::device::{Kind, ServeError, VirtioDevice};

mod holder;
mod image;
mod request;

pub use holder::Holder;
pub use image::{DiskError, DiskImage};

use request::{Operation, Range, Refusal};

/// Size of a sector in bytes. Virtio gives the size of a disk, and places on it, in sectors.
pub const SECTOR_BYTES: u64 = 512;
/// Most bytes of one range of guest memory in a request.
const SEGMENT_BYTES_MAX: u32 = 1 << 20;
/// Most ranges of guest memory in a request: a chain has two more, for its header and its status.
const DATA_SEGMENTS_MAX: u32 = SEGMENTS_MAX as u32 - 2;
/// Most bytes that a request transfers.
const TRANSFER_BYTES_MAX: u64 = SEGMENT_BYTES_MAX as u64 * DATA_SEGMENTS_MAX as u64;
/// Most sectors that a request discards or zeroes: where the file system cannot, they are written.
const ZERO_SECTORS_MAX: u32 = (64 << 20) / SECTOR_BYTES as u32;
/// Length of the device ID that a driver can ask for (`VIRTIO_BLK_T_GET_ID`).
const ID_BYTES: usize = spec::VIRTIO_BLK_ID_BYTES as usize;

const fn bit(feature: u32) -> u64 {
    1 << feature
}

/// `struct virtio_blk_config` (5.2.4), as far as the features offered give it a meaning.
#[repr(C)]
#[derive(Default, IntoBytes, Immutable)]
struct Configuration {
    capacity_sectors: U64,
    segment_bytes_max: U32,
    segments_max: U32,
    geometry: [u8; 4],
    block_bytes: U32,
    topology: [u8; 8],
    write_back: u8,
    unused: u8,
    queues: U16,
    discard_sectors_max: U32,
    discard_segments_max: U32,
    discard_alignment_sectors: U32,
    zero_sectors_max: U32,
    zero_segments_max: U32,
    zero_may_unmap: u8,
    unused_1: [u8; 3],
}

const _: () = assert!(size_of::<Configuration>() == 60);

/// A virtio disk of a guest, whose content is a raw image file of the host.
pub struct Block {
    image: Arc<DiskImage>,
    configuration: Configuration,
    /// The driver does not flush: every write is to be on the disk when it is answered.
    write_through: bool,
    /// A failure of the host was logged as such.
    reported: bool,
}

debug_by_name!(Block);

impl Block {
    /// Returns a disk whose content is `image`. The guest can write to it unless the image was
    /// opened read-only.
    pub fn new(image: Arc<DiskImage>) -> Self {
        Self {
            configuration: Configuration {
                capacity_sectors: image.sectors().into(),
                segment_bytes_max: SEGMENT_BYTES_MAX.into(),
                segments_max: DATA_SEGMENTS_MAX.into(),
                block_bytes: (SECTOR_BYTES as u32).into(),
                queues: 1.into(),
                discard_sectors_max: ZERO_SECTORS_MAX.into(),
                discard_segments_max: (request::RANGES_MAX as u32).into(),
                discard_alignment_sectors: 1.into(),
                zero_sectors_max: ZERO_SECTORS_MAX.into(),
                zero_segments_max: (request::RANGES_MAX as u32).into(),
                zero_may_unmap: 1,
                ..Configuration::default()
            },
            image,
            write_through: true,
            reported: false,
        }
    }

    /// Executes a request, and returns the number of bytes written to the guest before the status.
    fn execute(&mut self, request: &Operation, memory: &GuestMemoryMmap) -> Result<u64, Refusal> {
        match request {
            Operation::Read { offset, into } => {
                self.check(*offset, into.bytes(), TRANSFER_BYTES_MAX)?;
                let read = self.image.read(*offset, into, memory);
                read.map(|()| into.bytes())
            }
            Operation::Write { offset, from } => {
                self.check(*offset, from.bytes(), TRANSFER_BYTES_MAX)?;
                self.writable()?;
                let written = self.image.write(*offset, from, memory);
                written.and_then(|()| self.settle()).map(|()| 0)
            }
            Operation::Flush => self.image.flush().map(|()| 0),
            Operation::Identify { into } => return self.identify(into, memory),
            Operation::Discard(ranges) => {
                self.check_ranges(ranges)?;
                let mut ranges = ranges.iter();
                let discarded = ranges.try_for_each(|r| self.image.discard(r.offset, r.bytes));
                discarded.map(|()| 0)
            }
            Operation::Zero(ranges) => {
                self.check_ranges(ranges)?;
                let mut ranges = ranges.iter();
                let zeroed = ranges.try_for_each(|r| self.image.zero(r.offset, r.bytes, r.unmap));
                zeroed.and_then(|()| self.settle()).map(|()| 0)
            }
        }
        .map_err(|e| self.failed(&e))
    }

    /// Flushes a write for a driver that never flushes itself.
    fn settle(&self) -> io::Result<()> {
        if self.write_through {
            self.image.flush()?;
        }
        Ok(())
    }

    fn identify(&self, into: &Segments, memory: &GuestMemoryMmap) -> Result<u64, Refusal> {
        let written = into.write(memory, &self.image.id::<ID_BYTES>());
        written.map(|bytes| bytes as u64).map_err(|_| Refusal::Io)
    }

    /// Checks that an operation is on whole sectors within the disk, and on `most` bytes at most.
    fn check(&self, offset: u64, bytes: u64, most: u64) -> Result<(), Refusal> {
        let end = offset.checked_add(bytes).ok_or(Refusal::Io)?;
        let good = bytes.is_multiple_of(SECTOR_BYTES) && bytes <= most && end <= self.image.bytes();
        good.then_some(()).ok_or(Refusal::Io)
    }

    fn writable(&self) -> Result<(), Refusal> {
        match self.image.is_read_only() {
            true => Err(Refusal::Io),
            false => Ok(()),
        }
    }

    fn check_ranges(&self, ranges: &[Range]) -> Result<(), Refusal> {
        self.writable()?;
        let most = u64::from(ZERO_SECTORS_MAX) * SECTOR_BYTES;
        let mut ranges = ranges.iter();
        ranges.try_for_each(|range| self.check(range.offset, range.bytes, most))
    }

    /// Returns how a failure of the host appears to the guest. The first one is logged as an error.
    fn failed(&mut self, error: &io::Error) -> Refusal {
        if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
            return Refusal::Unsupported;
        }
        let path = self.image.path().display();
        if self.reported {
            log::debug!("disk {path}: {error}");
        } else {
            log::error!(
                "cannot access the disk image {path}, so the guest gets an I/O error: {error} \
                 (later errors of this disk are logged only at level debug)"
            );
            self.reported = true;
        }
        Refusal::Io
    }
}

impl VirtioDevice for Block {
    fn kind(&self) -> Kind {
        Kind {
            id: VIRTIO_ID_BLOCK as u16,
            class: (0x01, 0x80),
            name: "virtio-blk",
        }
    }

    fn features(&self) -> u64 {
        let always = bit(spec::VIRTIO_BLK_F_SIZE_MAX)
            | bit(spec::VIRTIO_BLK_F_SEG_MAX)
            | bit(spec::VIRTIO_BLK_F_BLK_SIZE)
            | bit(spec::VIRTIO_BLK_F_FLUSH);
        match self.image.is_read_only() {
            true => always | bit(spec::VIRTIO_BLK_F_RO),
            false => {
                always | bit(spec::VIRTIO_BLK_F_DISCARD) | bit(spec::VIRTIO_BLK_F_WRITE_ZEROES)
            }
        }
    }

    fn configuration(&self) -> &[u8] {
        self.configuration.as_bytes()
    }

    fn begin(&mut self, features: u64) {
        self.write_through = features & bit(spec::VIRTIO_BLK_F_FLUSH) == 0;
    }

    fn serve(
        &mut self,
        _: u16,
        chain: &Chain,
        memory: &GuestMemoryMmap,
    ) -> Result<u32, ServeError> {
        let (request, status) = Operation::of(chain, memory)?;
        let executed = request.and_then(|request| self.execute(&request, memory));
        let (code, written) = match executed {
            Ok(bytes) => (spec::VIRTIO_BLK_S_OK, bytes),
            Err(Refusal::Io) => (spec::VIRTIO_BLK_S_IOERR, 0),
            Err(Refusal::Unsupported) => (spec::VIRTIO_BLK_S_UNSUPP, 0),
        };
        status.write(memory, &[code as u8])?;
        // Only what was written from the beginning on counts, so a status behind data that was not
        // written does not.
        let all = written + 1 == chain.writable.bytes();
        Ok(if all { written + 1 } else { written } as u32)
    }
}

#[cfg(test)]
mod tests;
