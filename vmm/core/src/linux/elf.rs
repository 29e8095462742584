//! Linux kernels as ELF images: where their segments go, and how they can be entered.

use std::ops::Range;

use object::LittleEndian as LE;
use object::elf::{NoteType, PT_LOAD};
use object::read::elf::{FileHeader as _, NoteIterator, ProgramHeader as _};

use crate::loader::{self, Header, LoadError, Segment};

/// Xen's note with a 32-bit physical entry point for direct boot (`XEN_ELFNOTE_PHYS32_ENTRY` in
/// xen/include/public/elfnote.h).
const NOTE_PHYS32_ENTRY: NoteType = NoteType(18);
const NOTE_NAME: &[u8] = b"Xen";

/// What the headers of an ELF kernel say about loading and entering it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfKernel {
    /// Guest-physical address of the kernel's 64-bit entry point.
    pub entry: u64,
    /// Guest-physical address of the 32-bit entry point of the PVH protocol; `None` if the kernel
    /// has none.
    pub pvh_entry: Option<u32>,
    /// Guest-physical addresses that the kernel takes: from the start of its lowest segment to the
    /// end of its highest.
    pub range: Range<u64>,
    /// The parts of the file that are copied into guest memory, each with its guest-physical
    /// address.
    pub segments: Vec<FileSegment>,
}

/// A part of an ELF file that is copied into guest memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSegment {
    /// Offsets in the file of the part's bytes.
    pub file: Range<u64>,
    /// Guest-physical address of the part's first byte.
    pub address: u64,
}

impl FileSegment {
    /// Returns the part of `bytes` that belongs to this segment, and the guest-physical address of
    /// its first byte. `bytes` is a piece of the ELF file that begins at file offset `offset`.
    /// Returns `None` if no byte belongs to the segment.
    pub fn part<'a>(&self, offset: u64, bytes: &'a [u8]) -> Option<(u64, &'a [u8])> {
        let from = self.file.start.max(offset);
        let to = self.file.end.min(offset + bytes.len() as u64);
        let part = bytes.get((from - offset) as usize..to.checked_sub(offset)? as usize)?;
        (!part.is_empty()).then_some((self.address + (from - self.file.start), part))
    }
}

/// Reads the headers of an ELF kernel. `head` is the beginning of the file, and `file_bytes` the
/// size of the whole file in bytes. If the ELF note with the PVH entry point lies behind `head`,
/// the result has no PVH entry point.
///
/// # Errors
/// [`LoadError::NotElf`], `Class`, `Machine`, `Type` or `Headers` for a wrong header, `Truncated`
/// or `SegmentSize` for a segment that is not in the file, `Segment` for a segment that ends beyond
/// the last address, `Entry` if no segment contains the entry point.
pub fn inspect(head: &[u8], file_bytes: u64) -> Result<ElfKernel, LoadError> {
    let header = loader::header(head)?;
    let entry = header.e_entry(LE);
    let mut segments = Vec::new();
    let mut pvh_entry = None;
    let (mut start, mut end) = (u64::MAX, 0);
    let mut entry_found = false;
    for segment in loader::segments(head, header)? {
        if segment.p_type(LE) == PT_LOAD && segment.p_memsz(LE) != 0 {
            let range = place(segment, file_bytes)?;
            let offset = segment.p_offset(LE);
            segments.push(FileSegment {
                file: offset..offset.saturating_add(segment.p_filesz(LE)),
                address: range.start,
            });
            entry_found |= range.contains(&entry);
            (start, end) = (start.min(range.start), end.max(range.end));
        } else if let Ok(Some(notes)) = segment.notes(LE, head) {
            pvh_entry = pvh_entry.or_else(|| pvh_note(notes));
        }
    }
    if !entry_found {
        return Err(LoadError::Entry { entry });
    }
    Ok(ElfKernel {
        entry,
        pvh_entry,
        range: start..end,
        segments,
    })
}

/// Returns a segment's place in guest memory. Only its physical addresses count, since a kernel
/// maps itself.
fn place(segment: &Segment, file_end: u64) -> Result<Range<u64>, LoadError> {
    loader::check_file(segment, file_end)?;
    let (address, bytes) = (segment.p_paddr(LE), segment.p_memsz(LE));
    let end = address.checked_add(bytes).ok_or(LoadError::Segment {
        address,
        bytes,
        end: u64::MAX,
    })?;
    Ok(address..end)
}

/// Returns the entry point in the first PVH note. A note that is damaged ends the search.
fn pvh_note(mut notes: NoteIterator<'_, Header>) -> Option<u32> {
    while let Ok(Some(note)) = notes.next() {
        if note.n_type(LE) == NOTE_PHYS32_ENTRY && note.name() == NOTE_NAME {
            return note
                .desc()
                .first_chunk()
                .map(|bytes| u32::from_le_bytes(*bytes));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], value: &[u8], kind: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        for part in [name, value] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn parts_of_a_segment_go_where_they_belong() {
        let segment = FileSegment {
            file: 100..200,
            address: 0x1000,
        };
        let bytes = [7; 50];
        assert_eq!(segment.part(0, &bytes), None);
        assert_eq!(segment.part(60, &bytes), Some((0x1000, &bytes[40..])));
        assert_eq!(segment.part(120, &bytes), Some((0x1014, &bytes[..])));
        assert_eq!(segment.part(180, &bytes), Some((0x1050, &bytes[..20])));
        assert_eq!(segment.part(200, &bytes), None);
        assert_eq!(segment.part(300, &bytes), None);
        assert_eq!(
            segment
                .part(0, &[7; 300])
                .map(|(at, part)| (at, part.len())),
            Some((0x1000, 100))
        );
    }

    fn pvh_note(notes: &[u8]) -> Option<u32> {
        super::pvh_note(NoteIterator::new(LE, 4, notes).unwrap())
    }

    #[test]
    fn the_pvh_note_is_found_among_others() {
        let mut notes = note(b"GNU\0", &[7; 20], 3);
        notes.extend(note(b"Linux\0", b"abc", 18));
        assert_eq!(pvh_note(&notes), None);
        notes.extend(note(b"Xen\0", &0x0100_0530u64.to_le_bytes(), 18));
        assert_eq!(pvh_note(&notes), Some(0x0100_0530));
    }

    #[test]
    fn notes_that_lie_about_their_length_end_the_search() {
        for lie in [0, 4] {
            let mut notes = note(b"GNU\0", &[7; 20], 3);
            notes[lie..lie + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert_eq!(pvh_note(&notes), None);
        }
        assert_eq!(pvh_note(&note(b"Xen\0", &[1, 2], 18)), None);
        assert_eq!(pvh_note(&[0; 11]), None);
    }
}
