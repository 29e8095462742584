//! The block device (Virtual I/O Device Version 1.2, 5.2), on a raw image file.

use std::io;
use std::sync::{Arc, Weak};

use virtio_bindings::virtio_blk as spec;
use vm_memory::GuestMemoryMmap;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

use super::chain::{Chain, SEGMENTS_MAX};
use super::configuration::Notice;
use super::device::{Kind, ServeError, VirtioDevice};

mod holder;
mod image;
mod request;
mod slot;

pub use holder::Holder;
pub use image::{DiskError, DiskImage, SECTOR_BYTES};
pub use slot::DiskSlot;

use request::{Operation, Range, Refusal};

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
    slot: Arc<DiskSlot>,
    features: u64,
    configuration: Configuration,
    /// The driver does not flush: every write is to be on the disk when it is answered.
    write_through: bool,
    /// The image for which a failure of the host was logged as such.
    reported: Weak<DiskImage>,
}

debug_by_name!(Block);

impl Block {
    /// Returns a disk whose content is `image`. The guest can write to it unless the image was
    /// opened read-only.
    pub fn new(image: Arc<DiskImage>) -> Self {
        let (sectors, read_only) = (image.sectors(), image.is_read_only());
        Self::with(Arc::new(DiskSlot::holding(image)), sectors, read_only)
    }

    /// Returns a disk that has an image only while `slot` has one. The driver chooses its features
    /// before it knows the image: it sees no write protection, and a write to an image that was
    /// opened read-only fails.
    pub fn of_slot(slot: Arc<DiskSlot>) -> Self {
        let sectors = slot.image().map_or(0, |image| image.sectors());
        Self::with(slot, sectors, false)
    }

    fn with(slot: Arc<DiskSlot>, sectors: u64, read_only: bool) -> Self {
        Self {
            features: features(read_only),
            configuration: Configuration {
                capacity_sectors: sectors.into(),
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
            slot,
            write_through: true,
            reported: Weak::new(),
        }
    }

    /// Executes a request, and returns the number of bytes written to the guest before the status.
    fn execute(&mut self, request: &Operation, memory: &GuestMemoryMmap) -> Result<u64, Refusal> {
        // One image for all of the request: what was checked is what is used.
        let image = self.slot.image().ok_or(Refusal::Io)?;
        let done = self.execute_on(&image, request, memory);
        done.map_err(|refused| self.told(&image, refused))
    }

    fn execute_on(
        &self,
        image: &DiskImage,
        request: &Operation,
        memory: &GuestMemoryMmap,
    ) -> Result<u64, Refused> {
        match request {
            Operation::Read { offset, into } => {
                check(image, *offset, into.bytes(), TRANSFER_BYTES_MAX)?;
                image.read(*offset, into, memory)?;
                Ok(into.bytes())
            }
            Operation::Write { offset, from } => {
                check(image, *offset, from.bytes(), TRANSFER_BYTES_MAX)?;
                writable(image)?;
                image.write(*offset, from, memory)?;
                self.settle(image)
            }
            Operation::Flush => Ok(image.flush().map(|()| 0)?),
            Operation::Identify { into } => {
                let written = into.write(memory, &image.id::<ID_BYTES>());
                Ok(written.map_err(|_| Refusal::Io)? as u64)
            }
            Operation::Discard(ranges) => {
                check_ranges(image, ranges)?;
                let mut ranges = ranges.iter();
                ranges.try_for_each(|range| image.discard(range.offset, range.bytes))?;
                Ok(0)
            }
            Operation::Zero(ranges) => {
                check_ranges(image, ranges)?;
                let mut ranges = ranges.iter();
                ranges.try_for_each(|r| image.zero(r.offset, r.bytes, r.unmap))?;
                self.settle(image)
            }
        }
    }

    /// Flushes a write for a driver that never flushes itself. Nothing is written to the guest.
    fn settle(&self, image: &DiskImage) -> Result<u64, Refused> {
        if self.write_through {
            image.flush()?;
        }
        Ok(0)
    }

    /// Returns how a failure appears to the guest. The first one of an image is logged as an error.
    fn told(&mut self, image: &Arc<DiskImage>, refused: Refused) -> Refusal {
        let error = match refused {
            Refused::Guest(refusal) => return refusal,
            Refused::Host(error) => error,
        };
        if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
            return Refusal::Unsupported;
        }
        let path = image.path().display();
        if std::ptr::eq(self.reported.as_ptr(), Arc::as_ptr(image)) {
            log::debug!("disk {path}: {error}");
        } else {
            log::error!(
                "cannot access the disk image {path}, so the guest gets an I/O error: {error} \
                 (later errors of this image are logged only at level debug)"
            );
            self.reported = Arc::downgrade(image);
        }
        Refusal::Io
    }
}

/// Why a request is not executed: the guest's fault, or the host's.
enum Refused {
    Guest(Refusal),
    Host(io::Error),
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::Guest(refusal)
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

/// Checks that an operation is on whole sectors within the disk, and on `most` bytes at most.
fn check(image: &DiskImage, offset: u64, bytes: u64, most: u64) -> Result<(), Refusal> {
    let end = offset.checked_add(bytes).ok_or(Refusal::Io)?;
    let good = bytes.is_multiple_of(SECTOR_BYTES) && bytes <= most && end <= image.bytes();
    good.then_some(()).ok_or(Refusal::Io)
}

fn writable(image: &DiskImage) -> Result<(), Refusal> {
    match image.is_read_only() {
        true => Err(Refusal::Io),
        false => Ok(()),
    }
}

fn check_ranges(image: &DiskImage, ranges: &[Range]) -> Result<(), Refusal> {
    writable(image)?;
    let most = u64::from(ZERO_SECTORS_MAX) * SECTOR_BYTES;
    let mut ranges = ranges.iter();
    ranges.try_for_each(|range| check(image, range.offset, range.bytes, most))
}

/// Returns the features of a disk.
fn features(read_only: bool) -> u64 {
    let always = bit(spec::VIRTIO_BLK_F_SIZE_MAX)
        | bit(spec::VIRTIO_BLK_F_SEG_MAX)
        | bit(spec::VIRTIO_BLK_F_BLK_SIZE)
        | bit(spec::VIRTIO_BLK_F_FLUSH);
    match read_only {
        true => always | bit(spec::VIRTIO_BLK_F_RO),
        false => always | bit(spec::VIRTIO_BLK_F_DISCARD) | bit(spec::VIRTIO_BLK_F_WRITE_ZEROES),
    }
}

impl VirtioDevice for Block {
    fn kind(&self) -> Kind {
        Kind::DISK
    }

    fn features(&self) -> u64 {
        self.features
    }

    fn configuration(&self) -> &[u8] {
        self.configuration.as_bytes()
    }

    fn notice(&self) -> Option<&Notice> {
        Some(self.slot.notice())
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
