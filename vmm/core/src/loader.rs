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

/// The header of a 64-bit little-endian ELF file.
pub(crate) type Header = FileHeader64<LE>;
/// A program header of a 64-bit little-endian ELF file, which describes one segment.
pub(crate) type Segment = ProgramHeader64<LE>;

/// Why an ELF image cannot be loaded into guest memory.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file does not begin with an ELF header.
    #[error("the file is not an ELF image: it has {bytes} bytes and begins with {head:02x?}")]
    NotElf {
        /// Size of the file in bytes.
        bytes: usize,
        /// First four bytes of the file, or all if it has fewer.
        head: Vec<u8>,
    },
    /// The image is 32-bit or big-endian.
    #[error(
        "the image has ELF class {class} and data encoding {encoding}: only 64-bit (class 2) \
         little-endian (encoding 1) images run here"
    )]
    Class {
        /// The ELF header's `EI_CLASS`: 1 for 32-bit, 2 for 64-bit.
        class: u8,
        /// The ELF header's `EI_DATA`: 1 for little-endian, 2 for big-endian.
        encoding: u8,
    },
    /// The image is for another processor.
    #[error(
        "the image is for ELF machine {machine}{}: only x86-64 (machine {}) images run here",
        machine_name(*machine), EM_X86_64.0
    )]
    Machine {
        /// The ELF header's `e_machine`: the number of the processor architecture.
        machine: u16,
    },
    /// The image is not a static executable.
    #[error(
        "the image has ELF type {kind}: only static executables (type {}) run here; link it with \
         -static -no-pie, or give a program for Linux with --program",
        ET_EXEC.0
    )]
    Type {
        /// The ELF header's `e_type`: 1 for an object file, 2 for an executable, 3 for a shared
        /// object.
        kind: u16,
    },
    /// The image needs a dynamic linker.
    #[error(
        "the image needs a dynamic linker: link it with -static -no-pie, and give a program for \
         Linux with --program"
    )]
    Dynamic,
    /// The file ends before a part of the image does.
    #[error(
        "the ELF image is truncated: {what} should end at byte {end}, but the file has only \
         {bytes} bytes; download or build it again"
    )]
    Truncated {
        /// Name of the part of the image that is cut off.
        what: &'static str,
        /// Offset in the file at which the cut-off part would end.
        end: u64,
        /// Size of the file in bytes.
        bytes: u64,
    },
    /// The number or the size of the program headers is wrong.
    #[error(
        "the image has {count} program headers of {size} bytes each: it must have 1 to \
         {HEADERS_MAX} of 56 bytes each"
    )]
    Headers {
        /// The ELF header's `e_phnum`: the number of program headers.
        count: u16,
        /// The ELF header's `e_phentsize`: the size of one program header in bytes.
        size: u16,
    },
    /// A segment does not fit into guest memory.
    #[error(
        "the image's segment of {bytes:#x} bytes at {address:#x} does not fit into guest memory \
         [{IMAGE_BASE:#x}, {end:#x}): give the guest more memory with --memory, or \
         link the image elsewhere"
    )]
    Segment {
        /// Guest-physical address at which the segment is loaded.
        address: u64,
        /// The segment's size in memory, in bytes.
        bytes: u64,
        /// End of the guest-physical addresses that images may use.
        end: u64,
    },
    /// A segment has more bytes in the file than in memory.
    #[error(
        "the image's segment at {address:#x} has {file_bytes} bytes in the file but only {bytes} \
         in memory: build the image again"
    )]
    SegmentSize {
        /// Guest-physical address at which the segment is loaded.
        address: u64,
        /// The segment's size in the file, in bytes.
        file_bytes: u64,
        /// The segment's size in memory, in bytes.
        bytes: u64,
    },
    /// A segment is linked at another address than that at which it is loaded.
    #[error(
        "a segment of the image is linked at {virtual_address:#x} but loaded at {address:#x}: bare \
         guests run with memory mapped one to one, so link it where it is loaded"
    )]
    Moved {
        /// The program header's `p_vaddr`: where the segment is linked.
        virtual_address: u64,
        /// The program header's `p_paddr`: where the segment is loaded.
        address: u64,
    },
    /// The entry point is in no executable segment.
    #[error("the image's entry point {entry:#x} is not in an executable segment: link it again")]
    Entry {
        /// The ELF header's `e_entry`: the address of the first instruction.
        entry: u64,
    },
    /// The crate `linux-loader` does not accept the image, or cannot write guest memory.
    #[error("cannot copy the bare guest's program into guest memory")]
    Load(#[from] linux_loader::loader::Error),
    /// The crate `vm-memory`, through which guest memory is written, does not accept the guest's
    /// RAM.
    #[error("cannot access guest memory to load the image")]
    View(#[from] vm_memory::mmap::FromRangesError),
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

/// Guest-physical addresses of an ELF image that has been loaded into guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Guest-physical address of the first instruction.
    pub entry: u64,
    /// Guest-physical address of the first byte behind the image.
    pub end: u64,
}

/// Checks the ELF file `image` and copies its segments into `ram`. The segments must lie in the
/// guest-physical addresses from [`IMAGE_BASE`] to `usable_end`.
///
/// # Errors
/// The variant of [`LoadError`] that names what is wrong with the image; `Load` or `View` if guest
/// memory cannot be written.
pub fn load(ram: &GuestRam, image: &[u8], usable_end: u64) -> Result<Image, LoadError> {
    let loaded = check(image, IMAGE_BASE..usable_end)?;
    ram.with_view(|view| Elf::load(view, None, &mut Cursor::new(image), None))??;
    Ok(loaded)
}

/// Checks the ELF file `image` without loading it. Its segments must lie in the range `usable` of
/// guest-physical addresses. Returns where they would lie.
///
/// # Errors
/// The variant of [`LoadError`] that names what is wrong with the image.
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

/// Returns the ELF header of `image`, after checking that the image is a static executable for
/// x86-64.
///
/// # Errors
/// [`LoadError::NotElf`], `Truncated`, `Class`, `Machine` or `Type`, which name what is wrong with
/// the header.
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

/// Returns the program headers of `image`, whose ELF header is `header`.
///
/// # Errors
/// [`LoadError::Headers`] if the number or the size of the program headers is wrong, `Truncated` if
/// the image ends before they do.
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

/// Checks that a file of `file_end` bytes contains a segment's bytes, and that the segment has no
/// more bytes in the file than in memory.
///
/// # Errors
/// [`LoadError::Truncated`] if the file ends before the segment does, `SegmentSize` if the segment
/// has more bytes in the file than in memory.
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
