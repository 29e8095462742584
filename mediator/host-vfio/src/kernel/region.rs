//! What the kernel says about a region (VFIO_DEVICE_GET_REGION_INFO).

use std::io;
use std::os::fd::BorrowedFd;

use vfio_bindings::bindings::vfio::{
    VFIO_REGION_INFO_CAP_MSIX_MAPPABLE, VFIO_REGION_INFO_CAP_SPARSE_MMAP,
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};

use crate::ioctl;
use crate::region::{Area, Region, RegionIndex};

/// Bytes of `vfio_region_info`: argsz, flags, index, cap_offset (32 bits each), size, offset (64
/// bits each).
const INFO_BYTES: usize = 32;
/// No device has capabilities that take more.
const INFO_BYTES_MAX: usize = 64 << 10;

/// Returns the region, if the device has it.
pub(super) fn query(device: BorrowedFd<'_>, index: RegionIndex) -> io::Result<Option<Region>> {
    let mut words = ask(device, index, INFO_BYTES)?;
    // The kernel says how much room it would have liked.
    let wanted = words[0] as u32 as usize;
    if wanted > INFO_BYTES && wanted <= INFO_BYTES_MAX {
        words = ask(device, index, wanted)?;
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let region = parse(index, &bytes);
    region.ok_or_else(|| io::Error::other("VFIO describes a region in a way that makes no sense"))
}

fn ask(device: BorrowedFd<'_>, index: RegionIndex, bytes: usize) -> io::Result<Vec<u64>> {
    let mut words = vec![0; bytes.div_ceil(8)];
    words[1] = u64::from(index.number());
    match ioctl::region_info(device, &mut words) {
        // A device need not know all regions.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(vec![0; INFO_BYTES / 8]),
        Err(e) => Err(e),
        Ok(()) => Ok(words),
    }
}

/// `Some(None)` for an empty region, `None` for what cannot be understood.
fn parse(index: RegionIndex, info: &[u8]) -> Option<Option<Region>> {
    let flags = word(info, 4)?;
    let bytes = double_word(info, 16)?;
    if bytes == 0 {
        return Some(None);
    }
    let has = |flag| flags & flag != 0;
    let mut region = Region {
        index,
        bytes,
        readable: has(VFIO_REGION_INFO_FLAG_READ),
        writable: has(VFIO_REGION_INFO_FLAG_WRITE),
        mappable: Vec::new(),
        msix_mappable: false,
        file_offset: double_word(info, 24)?,
    };
    if has(VFIO_REGION_INFO_FLAG_MMAP) {
        region.mappable.push(Area { offset: 0, bytes });
    }
    // Zero if there are none, or no room for them.
    let mut next = word(info, 12)? as usize;
    while next != 0 {
        let following = capability(&mut region, info, next)?;
        // Each capability lies behind the one before, so that this ends.
        if following != 0 && following <= next {
            return None;
        }
        next = following;
    }
    Some(Some(region))
}

/// Takes over a capability, and returns where the next one is, or 0.
fn capability(region: &mut Region, info: &[u8], at: usize) -> Option<usize> {
    let id = word(info, at)? & 0xffff;
    let next = word(info, at + 4)? as usize;
    match id {
        VFIO_REGION_INFO_CAP_SPARSE_MMAP => {
            let count = word(info, at + 8)? as usize;
            let areas = (0..count).map(|i| area(info, at + 16 + 16 * i, region.bytes));
            let areas: Vec<_> = areas.collect::<Option<_>>()?;
            region.mappable = areas.into_iter().filter(|area| area.bytes != 0).collect();
        }
        VFIO_REGION_INFO_CAP_MSIX_MAPPABLE => region.msix_mappable = true,
        _ => {}
    }
    Some(next)
}

fn area(info: &[u8], at: usize, region_bytes: u64) -> Option<Area> {
    let area = Area {
        offset: double_word(info, at)?,
        bytes: double_word(info, at + 8)?,
    };
    let whole = Area {
        offset: 0,
        bytes: region_bytes,
    };
    whole.contains(area.offset, area.bytes).then_some(area)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

fn double_word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags, and the capabilities that follow.
    fn info(flags: u32, capabilities: &[u32]) -> Vec<u8> {
        let at = if capabilities.is_empty() {
            0
        } else {
            INFO_BYTES as u32
        };
        let head = [0, flags, 2, at, 0x4000, 0, 0, 0x200];
        let words = head.iter().chain(capabilities);
        words.flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn parsed(flags: u32, capabilities: &[u32]) -> Option<Region> {
        parse(RegionIndex::Bar(2), &info(flags, capabilities)).unwrap()
    }

    #[test]
    fn a_region_without_capabilities_is_mapped_whole_or_not_at_all() {
        let region = parsed(7, &[]).unwrap();
        assert_eq!((region.bytes, region.file_offset), (0x4000, 0x200 << 32));
        assert!(region.readable && region.writable);
        assert!(region.can_map(0, 0x4000) && !region.can_map(0x1000, 0x4000));
        let region = parsed(1, &[]).unwrap();
        assert!(region.readable && !region.writable && !region.can_map(0, 0x1000));
        let empty = [0; INFO_BYTES];
        assert_eq!(parse(RegionIndex::Rom, &empty), Some(None));
    }

    #[test]
    fn sparse_areas_are_all_that_can_be_mapped() {
        // MSI-X mappable, then two areas around the page at 0x1000.
        let capabilities = [
            3,
            40, // header; the next one at 40
            1 | 1 << 16,
            0,
            2,
            0, // header, two areas
            0,
            0,
            0x1000,
            0,
            0x2000,
            0,
            0x2000,
            0,
        ];
        let region = parsed(15, &capabilities).unwrap();
        assert!(region.msix_mappable);
        assert_eq!(region.mappable.len(), 2);
        assert!(region.can_map(0, 0x1000) && region.can_map(0x3000, 0x1000));
        assert!(!region.can_map(0x1000, 0x1000) && !region.can_map(0, 0x2000));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let index = RegionIndex::Bar(0);
        let past_the_end = [1, 0, 1, 0, 0x3000, 0, 0x2000, 0];
        assert_eq!(parse(index, &info(15, &past_the_end)), None);
        let more_than_there_are = [1, 0, 0xffff_ffff, 0];
        assert_eq!(parse(index, &info(15, &more_than_there_are)), None);
        let a_loop = [3, 32];
        assert_eq!(parse(index, &info(15, &a_loop)), None);
        let next_outside = [3, 0x1000];
        assert_eq!(parse(index, &info(15, &next_outside)), None);
        assert_eq!(parse(index, &[0; 8]), None);
    }
}
