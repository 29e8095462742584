//! Guest images: 64-bit ELF, statically linked, loaded at the addresses in their headers.
//!
//! The headers are checked here first, so that a bad image is refused with a reason and the value
//! that is wrong. linux-loader copies the segments.

use std::io::Cursor;
use std::ops::Range;

use causeway_protocol::boot::IMAGE_BASE;
use linux_loader::loader::{Elf, KernelLoader};
use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, ET_EXEC, FileHeader64, PF_X, PT_INTERP, PT_LOAD,
    ProgramHeader64,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian as LE, ReadRef as _, pod};

use crate::memory::GuestRam;

/// Most program headers of an image.
const HEADERS_MAX: u16 = 64;

/// An ELF header.
pub(crate) type Header = FileHeader64<LE>;
/// A program header.
pub(crate) type Segment = ProgramHeader64<LE>;

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
        "ELF machine {machine}{}: only x86-64 ({}) images run here",
        machine_name(*machine), EM_X86_64.0
    )]
    Machine {
        /// `e_machine`.
        machine: u16,
    },
    /// Not a static executable.
    #[error(
        "ELF type {kind}: only executables ({}) run here; link with -static -no-pie", ET_EXEC.0
    )]
    Type {
        /// `e_type`.
        kind: u16,
    },
    /// Wants a dynamic linker.
    #[error("the image needs a dynamic linker: link it with -static -no-pie")]
    Dynamic,
    /// Parts of the file are missing.
    #[error(
        "the image is truncated: {what} ends at byte {end}, but the file at {bytes}; download or build it again"
    )]
    Truncated {
        /// Which part.
        what: &'static str,
        /// Where it should end.
        end: u64,
        /// Size of the file.
        bytes: u64,
    },
    /// Program headers make no sense.
    #[error(
        "the image has {count} program headers of {size} bytes: it must have 1 to {HEADERS_MAX} of 56 bytes"
    )]
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
    #[error(
        "the segment at {address:#x} has {file_bytes} bytes in the file but only {bytes} in memory"
    )]
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

/// Returns the name of another machine, in parentheses, if it is a common one (System V ABI, "ELF
/// Header").
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
/// [`LoadError`], by what is wrong with the image; `Load` or `View` if guest memory cannot be
/// written.
pub fn load(ram: &GuestRam, image: &[u8], usable_end: u64) -> Result<Image, LoadError> {
    let loaded = check(image, IMAGE_BASE..usable_end)?;
    ram.with_view(|view| Elf::load(view, None, &mut Cursor::new(image), None))
        .map_err(|source| LoadError::View { source })?
        .map_err(|source| LoadError::Load { source })?;
    Ok(loaded)
}

/// Checks an image without loading it; its segments must lie in `usable`.
///
/// # Errors
/// [`LoadError`], by what is wrong with the image.
pub fn check(image: &[u8], usable: Range<u64>) -> Result<Image, LoadError> {
    let header = header(image)?;
    let entry = header.e_entry(LE);
    let mut end = 0;
    let mut entry_found = false;
    for segment in segments(image, header)? {
        match segment.p_type(LE) {
            PT_INTERP => return Err(LoadError::Dynamic),
            PT_LOAD if segment.p_memsz(LE) != 0 => {}
            _ => continue,
        }
        let range = place(segment, image.len() as u64, &usable)?;
        end = end.max(range.end);
        entry_found |= segment.p_flags(LE).0 & PF_X.0 != 0 && range.contains(&entry);
    }
    if !entry_found {
        return Err(LoadError::Entry { entry });
    }
    Ok(Image { entry, end })
}

/// Returns the ELF header of an image for x86-64.
///
/// # Errors
/// `NotElf`, `Truncated`, `Class`, `Machine` or `Type`, by what is wrong with the header.
pub(crate) fn header(image: &[u8]) -> Result<&Header, LoadError> {
    if !image.starts_with(&ELFMAG) {
        return Err(LoadError::NotElf {
            bytes: image.len(),
            head: image.iter().copied().take(4).collect(),
        });
    }
    let (header, _) = pod::from_bytes::<Header>(image).map_err(|()| LoadError::Truncated {
        what: "the ELF header",
        end: size_of::<Header>() as u64,
        bytes: image.len() as u64,
    })?;
    let (class, encoding) = (header.e_ident.class, header.e_ident.data);
    if (class, encoding) != (ELFCLASS64, ELFDATA2LSB) {
        return Err(LoadError::Class {
            class: class.0,
            encoding: encoding.0,
        });
    }
    let (machine, kind) = (header.e_machine(LE), header.e_type(LE));
    if machine != EM_X86_64 {
        return Err(LoadError::Machine { machine: machine.0 });
    }
    if kind != ET_EXEC {
        return Err(LoadError::Type { kind: kind.0 });
    }
    Ok(header)
}

/// Returns all program headers.
///
/// # Errors
/// `Headers` if their number or size is wrong, `Truncated` if they do not lie within the image.
pub(crate) fn segments<'a>(image: &'a [u8], header: &Header) -> Result<&'a [Segment], LoadError> {
    let (count, size) = (header.e_phnum(LE), header.e_phentsize(LE));
    if !(1..=HEADERS_MAX).contains(&count) || usize::from(size) != size_of::<Segment>() {
        return Err(LoadError::Headers { count, size });
    }
    let from = header.e_phoff(LE);
    let table = image.read_slice_at(from, count.into());
    table.map_err(|()| LoadError::Truncated {
        what: "the program header table",
        end: from.saturating_add(u64::from(count) * u64::from(size)),
        bytes: image.len() as u64,
    })
}

/// Checks that the bytes of a segment are in a file of `file_end` bytes, and no more than it has in
/// memory.
///
/// # Errors
/// `Truncated` and `SegmentSize`.
pub(crate) fn check_file(segment: &Segment, file_end: u64) -> Result<(), LoadError> {
    let (file_bytes, bytes) = (segment.p_filesz(LE), segment.p_memsz(LE));
    let end = segment.p_offset(LE).saturating_add(file_bytes);
    if end > file_end {
        return Err(LoadError::Truncated {
            what: "a segment",
            end,
            bytes: file_end,
        });
    }
    if file_bytes > bytes {
        return Err(LoadError::SegmentSize {
            address: segment.p_paddr(LE),
            file_bytes,
            bytes,
        });
    }
    Ok(())
}

fn place(segment: &Segment, file_end: u64, usable: &Range<u64>) -> Result<Range<u64>, LoadError> {
    check_file(segment, file_end)?;
    let (address, bytes) = (segment.p_paddr(LE), segment.p_memsz(LE));
    let virtual_address = segment.p_vaddr(LE);
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
