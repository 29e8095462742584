//! Guest images: 64-bit ELF, statically linked, loaded where it says.
//!
//! The headers are checked here first, so that a bad image is refused with a reason and the value that is
//! wrong; the copying is linux-loader's.

use std::io::Cursor;
use std::ops::Range;

use causeway_protocol::boot::IMAGE_BASE;
use linux_loader::loader::{Elf, KernelLoader};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::memory::GuestRam;

/// Most program headers of an image.
const HEADERS_MAX: u16 = 64;

// Values of ELF header fields: System V ABI, "ELF Header" and "Program Header".
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const TYPE_EXECUTABLE: u16 = 2;
const MACHINE_X86_64: u16 = 62;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_INTERPRETER: u32 = 3;
const FLAG_EXECUTE: u32 = 1;

/// Why an image cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No ELF header.
    #[error("not an ELF image: it has {bytes} bytes and begins with {head:02x?}")]
    NotElf {
        /// Size of the file.
        bytes: usize,
        /// First bytes.
        head: Vec<u8>,
    },
    /// 32-bit, or big-endian.
    #[error(
        "ELF class {class} and data encoding {encoding}: only 64-bit (2) little-endian (1) images run here"
    )]
    Class {
        /// `EI_CLASS`.
        class: u8,
        /// `EI_DATA`.
        encoding: u8,
    },
    /// For another processor.
    #[error(
        "ELF machine {machine}{}: only x86-64 ({MACHINE_X86_64}) images run here",
        machine_name(*machine)
    )]
    Machine {
        /// `e_machine`.
        machine: u16,
    },
    /// Not a static executable.
    #[error(
        "ELF type {kind}: only executables ({TYPE_EXECUTABLE}) run here; link with -static -no-pie"
    )]
    Type {
        /// `e_type`.
        kind: u16,
    },
    /// Wants a dynamic linker.
    #[error("the image asks for a dynamic linker: link with -static -no-pie")]
    Dynamic,
    /// Parts of the file are missing.
    #[error("the image is truncated: {what} ends at byte {end}, the file at {bytes}; get it anew")]
    Truncated {
        /// Which part.
        what: &'static str,
        /// Where it should end.
        end: u64,
        /// Size of the file.
        bytes: u64,
    },
    /// Program headers make no sense.
    #[error("{count} program headers of {size} bytes: there must be 1 to {HEADERS_MAX} of 56")]
    Headers {
        /// `e_phnum`.
        count: u16,
        /// `e_phentsize`.
        size: u16,
    },
    /// A segment that does not fit into guest memory.
    #[error(
        "segment {address:#x}+{bytes:#x} does not fit into guest memory [{IMAGE_BASE:#x}, {end:#x}): give the guest more memory, or link the image elsewhere"
    )]
    Segment {
        /// Where it is to be loaded.
        address: u64,
        /// Size in memory.
        bytes: u64,
        /// End of usable RAM.
        end: u64,
    },
    /// File part larger than memory part.
    #[error("segment at {address:#x} has {file_bytes} bytes in the file but {bytes} in memory")]
    SegmentSize {
        /// Where it is to be loaded.
        address: u64,
        /// Size in the file.
        file_bytes: u64,
        /// Size in memory.
        bytes: u64,
    },
    /// Linked at an address at which it is not loaded.
    #[error(
        "segment is linked at {virtual_address:#x} but loaded at {address:#x}: bare guests run with memory mapped one to one"
    )]
    Moved {
        /// `p_vaddr`.
        virtual_address: u64,
        /// `p_paddr`.
        address: u64,
    },
    /// The entry point is nowhere.
    #[error("entry point {entry:#x} is not in an executable segment")]
    Entry {
        /// `e_entry`.
        entry: u64,
    },
    /// linux-loader refused it, or guest memory could not be written.
    #[error("cannot load the image")]
    Load {
        /// Why.
        source: linux_loader::loader::Error,
    },
    /// vm-memory refused our RAM.
    #[error("cannot load the image into guest memory")]
    View {
        /// Why.
        source: vm_memory::mmap::FromRangesError,
    },
}

/// The name of another machine, in parentheses, if it is a common one (System V ABI, "ELF Header").
fn machine_name(machine: u16) -> &'static str {
    match machine {
        3 => " (x86, 32-bit)",
        40 => " (Arm, 32-bit)",
        183 => " (AArch64)",
        243 => " (RISC-V)",
        258 => " (LoongArch)",
        _ => "",
    }
}

/// ELF header: `Elf64_Ehdr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Header {
    magic: [u8; 4],
    class: u8,
    encoding: u8,
    ident: [u8; 10],
    kind: u16,
    machine: u16,
    version: u32,
    pub entry: u64,
    program_offset: u64,
    section_offset: u64,
    flags: u32,
    bytes: u16,
    program_bytes: u16,
    program_count: u16,
    section_bytes: u16,
    section_count: u16,
    section_names: u16,
}

/// Program header: `Elf64_Phdr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Segment {
    pub kind: u32,
    flags: u32,
    offset: u64,
    virtual_address: u64,
    pub address: u64,
    file_bytes: u64,
    pub bytes: u64,
    align: u64,
}

impl Segment {
    /// Whether it is to be in memory.
    pub fn is_load(&self) -> bool {
        self.kind == SEGMENT_LOAD
    }

    /// Where its bytes are in the file, once [`Self::check_file`] has found them there.
    pub fn file_range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.file_bytes)
    }

    /// Its bytes in the file; none if they are not all there.
    pub fn contents<'a>(&self, image: &'a [u8]) -> &'a [u8] {
        let range = |from: u64, bytes: u64| {
            let from = usize::try_from(from).ok()?;
            image.get(from..from.checked_add(usize::try_from(bytes).ok()?)?)
        };
        range(self.offset, self.file_bytes).unwrap_or_default()
    }

    /// Checks that its bytes are in a file of `file_end` bytes, and no more than it has in memory.
    pub fn check_file(&self, file_end: u64) -> Result<(), LoadError> {
        let end = self.offset.saturating_add(self.file_bytes);
        if end > file_end {
            return Err(LoadError::Truncated {
                what: "a segment",
                end,
                bytes: file_end,
            });
        }
        if self.file_bytes > self.bytes {
            return Err(LoadError::SegmentSize {
                address: self.address,
                file_bytes: self.file_bytes,
                bytes: self.bytes,
            });
        }
        Ok(())
    }
}

const _: () = assert!(size_of::<Header>() == 64 && size_of::<Segment>() == 56);

/// A loaded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Where execution begins.
    pub entry: u64,
    /// First byte behind the image.
    pub end: u64,
}

/// Checks `image` and copies it into RAM, of which [[`IMAGE_BASE`], `usable_end`) is for images.
///
/// # Errors
/// [`LoadError`].
pub fn load(ram: &GuestRam, image: &[u8], usable_end: u64) -> Result<Image, LoadError> {
    let loaded = check(image, IMAGE_BASE..usable_end)?;
    ram.with_view(|view| Elf::load(view, None, &mut Cursor::new(image), None))
        .map_err(|source| LoadError::View { source })?
        .map_err(|source| LoadError::Load { source })?;
    Ok(loaded)
}

/// Checks an image without loading it.
///
/// # Errors
/// [`LoadError`].
pub fn check(image: &[u8], usable: Range<u64>) -> Result<Image, LoadError> {
    let header = header(image)?;
    let mut end = 0;
    let mut entry_found = false;
    for segment in segments(image, &header)? {
        if segment.kind == SEGMENT_INTERPRETER {
            return Err(LoadError::Dynamic);
        }
        if segment.kind != SEGMENT_LOAD || segment.bytes == 0 {
            continue;
        }
        let range = place(&segment, image.len() as u64, &usable)?;
        end = end.max(range.end);
        entry_found |= segment.flags & FLAG_EXECUTE != 0 && range.contains(&header.entry);
    }
    if !entry_found {
        return Err(LoadError::Entry {
            entry: header.entry,
        });
    }
    Ok(Image {
        entry: header.entry,
        end,
    })
}

/// The ELF header of an image for this processor.
pub(crate) fn header(image: &[u8]) -> Result<Header, LoadError> {
    let not_elf = || LoadError::NotElf {
        bytes: image.len(),
        head: image.iter().copied().take(4).collect(),
    };
    if !image.starts_with(b"\x7fELF") {
        return Err(not_elf());
    }
    let (header, _) = Header::read_from_prefix(image).map_err(|_| LoadError::Truncated {
        what: "the ELF header",
        end: size_of::<Header>() as u64,
        bytes: image.len() as u64,
    })?;
    if header.class != CLASS_64 || header.encoding != LITTLE_ENDIAN {
        return Err(LoadError::Class {
            class: header.class,
            encoding: header.encoding,
        });
    }
    if header.machine != MACHINE_X86_64 {
        return Err(LoadError::Machine {
            machine: header.machine,
        });
    }
    if header.kind != TYPE_EXECUTABLE {
        return Err(LoadError::Type { kind: header.kind });
    }
    Ok(header)
}

/// All program headers, which lie within the image.
pub(crate) fn segments(image: &[u8], header: &Header) -> Result<Vec<Segment>, LoadError> {
    let (count, size) = (header.program_count, header.program_bytes);
    if !(1..=HEADERS_MAX).contains(&count) || usize::from(size) != size_of::<Segment>() {
        return Err(LoadError::Headers { count, size });
    }
    let bytes = usize::from(count) * size_of::<Segment>();
    let end = header.program_offset.saturating_add(bytes as u64);
    let table = usize::try_from(header.program_offset)
        .ok()
        .and_then(|from| image.get(from..from.checked_add(bytes)?))
        .ok_or(LoadError::Truncated {
            what: "the program header table",
            end,
            bytes: image.len() as u64,
        })?;
    let read = |chunk| Segment::read_from_bytes(chunk).ok();
    Ok(table
        .chunks_exact(size_of::<Segment>())
        .filter_map(read)
        .collect())
}

fn place(segment: &Segment, file_end: u64, usable: &Range<u64>) -> Result<Range<u64>, LoadError> {
    let &Segment {
        address,
        virtual_address,
        bytes,
        ..
    } = segment;
    segment.check_file(file_end)?;
    if virtual_address != address {
        return Err(LoadError::Moved {
            virtual_address,
            address,
        });
    }
    match address.checked_add(bytes) {
        Some(end) if address >= usable.start && end <= usable.end => Ok(address..end),
        _ => Err(LoadError::Segment {
            address,
            bytes,
            end: usable.end,
        }),
    }
}

#[cfg(test)]
mod tests;
