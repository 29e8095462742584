//! Cubins: ELF files with code for one architecture.
//!
//! The layout is that of the System V ABI, "ELF-64 Object File Format". Machine and flags of CUDA
//! are in LLVM's `BinaryFormat/ELF.h`; `cuobjdump` shows the names of the sections.

mod symbols;

use causeway_mediator::backend::ModuleError;
use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_CUDA, ET_REL, FileHeader64, PN_XNUM, ProgramHeader64,
    SHF_ALLOC, SHT_NOBITS, SectionHeader64,
};
use object::{LittleEndian as LE, ReadRef as _};

use super::refusal::refused;
use symbols::Claims;

/// The first bytes of an ELF file.
pub(super) const MAGIC: &[u8] = &ELFMAG;
/// Types of sections without bytes in the file: `SHT_NOBITS`, and those of NVIDIA's linker
/// (uninitialized variables, local memory, shared memory, reserved shared memory).
const NOBITS: [u32; 5] = [
    SHT_NOBITS.0,
    0x7000_0007,
    0x7000_0009,
    0x7000_000a,
    0x7000_0015,
];
/// Prefixes of the names of sections that only say how much memory each launch needs.
const PER_LAUNCH: [&[u8]; 3] = [b".nv.shared.", b".nv.local.", b".nv.reservedSmem"];

/// The largest alignment in bytes. NVIDIA's tools align code to 128 bytes, and variables to as much
/// as a program asks for; its linker is not known to check what it reads.
const ALIGNMENT_BYTES_MAX: u64 = 64 << 10;

type Header = FileHeader64<LE>;
type Program = ProgramHeader64<LE>;
type Section = SectionHeader64<LE>;

/// A cubin of which every header and symbol was checked: all sections and segments lie inside the
/// file, and all symbols inside their sections; all alignments are powers of two and not large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cubin<'a> {
    /// The whole file.
    pub(crate) bytes: &'a [u8],
    /// The architecture of its code (80 for sm_80), or 0 if the file has none.
    architecture: u32,
    /// Memory that it takes when it is loaded, in bytes.
    loaded_bytes: u64,
}

fn malformed(what: &str) -> ModuleError {
    refused(format!("the cubin is malformed: {what}"))
}

/// Refuses the alignment of `what` in bytes, unless it is 0 (none) or a power of two up to
/// [`ALIGNMENT_BYTES_MAX`].
fn check_alignment(alignment: u64, what: impl FnOnce() -> String) -> Result<(), ModuleError> {
    if alignment == 0 || alignment.is_power_of_two() && alignment <= ALIGNMENT_BYTES_MAX {
        return Ok(());
    }
    Err(malformed(&format!(
        "{} is aligned to {alignment} bytes, not to a power of two up to {ALIGNMENT_BYTES_MAX}",
        what()
    )))
}

impl<'a> Cubin<'a> {
    /// Returns the cubin in `bytes`, after every header and symbol was checked against the length
    /// of the image.
    ///
    /// # Errors
    /// [`ModuleError`]: the file is no cubin, or a header or a symbol of it points beyond an end.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ModuleError> {
        let header: &Header = bytes
            .read_at(0)
            .map_err(|()| malformed("it is shorter than its header"))?;
        let ident = &header.e_ident;
        if ident.magic != ELFMAG || ident.class != ELFCLASS64 || ident.data != ELFDATA2LSB {
            return Err(malformed("it is not a 64-bit little-endian ELF file"));
        }
        if header.e_machine.get(LE) != EM_CUDA {
            return Err(refused("the ELF file is not for NVIDIA GPUs (machine 190)"));
        }
        let programs = programs(bytes, header);
        let programs = programs.ok_or_else(|| malformed("a segment lies beyond its end"))?;
        for (number, program) in programs.iter().enumerate() {
            check_alignment(program.p_align.get(LE), || format!("segment {number}"))?;
        }
        let sections = Sections::parse(bytes, header)
            .ok_or_else(|| malformed("a section, or the name of a section, lies beyond its end"))?;
        for (number, section) in sections.headers.iter().enumerate() {
            check_alignment(section.sh_addralign.get(LE), || format!("section {number}"))?;
        }
        let loaded_bytes = sections
            .loaded_bytes(&Claims::of(&sections)?)
            .ok_or_else(|| malformed("its sections and symbols have more than 2^64 bytes"))?;
        Ok(Self {
            bytes,
            architecture: architecture(header),
            loaded_bytes,
        })
    }

    /// Returns the memory that its code and variables take when it is loaded, in bytes.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes
    }

    /// Returns whether a GPU of `architecture` executes this cubin's code.
    pub(super) fn runs_on(&self, architecture: u32) -> bool {
        runs_on(self.architecture, architecture)
    }

    /// Refuses the cubin if a GPU of `architecture` does not execute its code.
    ///
    /// # Errors
    /// [`ModuleError`], which names both architectures.
    pub(super) fn check_architecture(&self, architecture: u32) -> Result<(), ModuleError> {
        if self.architecture == 0 || self.runs_on(architecture) {
            return Ok(());
        }
        Err(refused(format!(
            "the cubin is for sm_{}, this GPU is sm_{architecture}: \
             give PTX or a cubin for sm_{architecture}",
            self.architecture
        )))
    }
}

/// Returns whether a GPU of architecture `gpu` executes code for the architecture `code`: with the
/// same major number, and no smaller a minor (CUDA programming guide, "Binary Compatibility").
pub(super) fn runs_on(code: u32, gpu: u32) -> bool {
    code / 10 == gpu / 10 && code % 10 <= gpu % 10
}

/// Returns the architecture from the flags: bits 15:8 since version 8 of the ABI, before that bits
/// 7:0.
fn architecture(header: &Header) -> u32 {
    let flags = header.e_flags.get(LE).0;
    if header.e_ident.abi_version >= 8 {
        flags >> 8 & 0xff
    } else {
        flags & 0xff
    }
}

/// Returns `None` if a program header, or the segment that it describes, lies outside.
fn programs<'a>(bytes: &'a [u8], header: &Header) -> Option<&'a [Program]> {
    let count = header.e_phnum.get(LE);
    if count == 0 {
        return Some(&[]);
    }
    // `PN_XNUM`: the number of program headers is elsewhere.
    if usize::from(header.e_phentsize.get(LE)) != size_of::<Program>() || count == PN_XNUM {
        return None;
    }
    let at = header.e_phoff.get(LE);
    let programs: &[Program] = bytes.read_slice_at(at, count.into()).ok()?;
    let is_inside = |program: &Program| {
        let (at, size) = (program.p_offset.get(LE), program.p_filesz.get(LE));
        bytes.read_bytes_at(at, size).is_ok()
    };
    programs.iter().all(is_inside).then_some(programs)
}

/// The sections of a cubin, all of which lie inside the file.
#[derive(Clone, Copy)]
struct Sections<'a> {
    /// The whole file.
    bytes: &'a [u8],
    headers: &'a [Section],
    names: &'a [u8],
    /// Whether the file is an input of the linker.
    is_relocatable: bool,
}

impl<'a> Sections<'a> {
    /// Returns `None` if a section or its name lies outside.
    fn parse(bytes: &'a [u8], header: &Header) -> Option<Self> {
        let count = header.e_shnum.get(LE);
        // A count of 0 means that the number is elsewhere (extended numbering): no cubin has as
        // many sections, and the driver might count other sections than were checked here.
        if usize::from(header.e_shentsize.get(LE)) != size_of::<Section>() || count == 0 {
            return None;
        }
        let at = header.e_shoff.get(LE);
        let headers: &[Section] = bytes.read_slice_at(at, count.into()).ok()?;
        let names = headers.get(usize::from(header.e_shstrndx.get(LE).0))?;
        let (at, size) = (names.sh_offset.get(LE), names.sh_size.get(LE));
        let names = bytes.read_bytes_at(at, size).ok()?;
        for section in headers {
            names.get(section.sh_name.get(LE) as usize..)?;
            if !has_no_bits(section) {
                let (at, size) = (section.sh_offset.get(LE), section.sh_size.get(LE));
                bytes.read_bytes_at(at, size).ok()?;
            }
        }
        Some(Self {
            bytes,
            headers,
            names,
            is_relocatable: header.e_type.get(LE) == ET_REL,
        })
    }

    /// Returns all bytes from the beginning of the name of `section` on.
    fn name(&self, section: &Section) -> &'a [u8] {
        let at = section.sh_name.get(LE) as usize;
        self.names.get(at..).unwrap_or_default()
    }

    /// Returns whether `section` only says how much memory each launch needs.
    fn is_per_launch(&self, section: &Section) -> bool {
        let name = self.name(section);
        has_no_bits(section) && PER_LAUNCH.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Returns the bytes of all sections that are loaded, or of their symbols if these are more;
    /// `None` if they are more than a number holds.
    fn loaded_bytes(&self, claims: &Claims) -> Option<u64> {
        let mut sum = claims.elsewhere;
        for (section, claimed) in self.headers.iter().zip(&claims.by_section) {
            // The driver may load uninitialized variables even without the flag.
            let takes_memory =
                section.sh_flags.get(LE).0 & SHF_ALLOC.0 != 0 || has_no_bits(section);
            let size = if takes_memory {
                section.sh_size.get(LE)
            } else {
                0
            };
            if !self.is_per_launch(section) {
                sum = sum.checked_add(size.max(*claimed))?;
            }
        }
        Some(sum)
    }
}

/// Returns whether `section` has no bytes in the file.
fn has_no_bits(section: &Section) -> bool {
    NOBITS.contains(&section.sh_type.get(LE).0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::u64_at;
    use super::*;

    const MACHINE: u16 = EM_CUDA.0;
    const ALLOC: u64 = SHF_ALLOC.0;
    const HEADER_BYTES: usize = size_of::<Header>();
    const SECTION_BYTES: u16 = size_of::<Section>() as u16;

    /// Returns a cubin with the sections given: name, kind, flags, size.
    pub(in crate::image) fn cubin(
        flags: u32,
        abi: u8,
        sections: &[(&str, u32, u64, u64)],
    ) -> Vec<u8> {
        let mut names = vec![0];
        let mut headers: Vec<(u32, u32, u64, u64)> = vec![(0, 0, 0, 0)];
        for (name, kind, flags, bytes) in sections.iter().copied() {
            headers.push((names.len() as u32, kind, flags, bytes));
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        headers.push((0, 3, 0, names.len() as u64));
        let names_at = HEADER_BYTES as u64;
        let data_at = names_at + names.len() as u64;
        let in_file = sections
            .iter()
            .filter(|section| !NOBITS.contains(&section.1));
        let data: u64 = in_file.map(|section| section.3).sum();
        let table_at = data_at + data;
        let mut image = vec![0; HEADER_BYTES];
        image[..4].copy_from_slice(MAGIC);
        image[4..9].copy_from_slice(&[2, 1, 1, 0x33, abi]);
        image[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        image[40..48].copy_from_slice(&table_at.to_le_bytes());
        image[48..52].copy_from_slice(&flags.to_le_bytes());
        image[58..60].copy_from_slice(&SECTION_BYTES.to_le_bytes());
        image[60..62].copy_from_slice(&(headers.len() as u16).to_le_bytes());
        image[62..64].copy_from_slice(&(headers.len() as u16 - 1).to_le_bytes());
        image.extend_from_slice(&names);
        image.resize(table_at as usize, 0);
        let mut at = data_at;
        let last = headers.len() - 1;
        for (index, (name, kind, flags, bytes)) in headers.into_iter().enumerate() {
            let mut header = [0; SECTION_BYTES as usize];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&flags.to_le_bytes());
            let offset = if index == last { names_at } else { at };
            header[24..32].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&bytes.to_le_bytes());
            image.extend_from_slice(&header);
            if !NOBITS.contains(&kind) && index != last {
                at += bytes;
            }
        }
        image
    }

    const SECTIONS: &[(&str, u32, u64, u64)] = &[
        (".text.kernel", 1, ALLOC, 100),
        (".nv.global", NOBITS[0], ALLOC | 1, 1 << 40),
        (".nv.global.init", 1, ALLOC | 1, 24),
        (".nv.constant0.kernel", 1, ALLOC, 8),
        (".nv.shared.kernel", NOBITS[0], ALLOC | 1, 4096),
        (".nv.local.kernel", NOBITS[0], ALLOC | 1, 4096),
        (".debug_line", 1, 0, 50),
    ];

    #[test]
    fn memory_is_that_of_code_and_variables() {
        let image = cubin(90, 7, SECTIONS);
        let cubin = Cubin::parse(&image).unwrap();
        assert_eq!(cubin.loaded_bytes(), 100 + (1 << 40) + 24 + 8);
    }

    #[test]
    fn variables_are_counted_whatever_the_section_is_called() {
        for (name, kind, flags) in [
            (".nv.global", NOBITS[0], 0),
            (".nv.global", NOBITS[1], ALLOC),
            (".nv.global", NOBITS[1], 0),
            (".nv.sharedx", NOBITS[0], ALLOC),
            (".nv.localglobal", NOBITS[3], ALLOC),
        ] {
            let image = cubin(90, 7, &[(name, kind, flags, 1 << 40)]);
            let cubin = Cubin::parse(&image).unwrap();
            assert_eq!(cubin.loaded_bytes(), 1 << 40, "{name} {kind:#x} {flags}");
        }
        let shared = [(".nv.shared.kernel", NOBITS[3], ALLOC, 1 << 40)];
        let image = cubin(90, 7, &shared);
        assert_eq!(Cubin::parse(&image).unwrap().loaded_bytes(), 0);
    }

    #[test]
    fn architectures_are_compared_as_hardware_does() {
        for (flags, abi, gpu, runs) in [
            (90, 7, 90, true),
            (0x55a, 7, 90, true),
            (90 << 8, 8, 90, true),
            (80, 7, 86, true),
            (86, 7, 80, false),
            (80, 7, 90, false),
            (100 << 8, 8, 90, false),
        ] {
            let image = cubin(flags, abi, SECTIONS);
            let checked = Cubin::parse(&image).unwrap().check_architecture(gpu);
            assert_eq!(checked.is_ok(), runs, "{flags:#x} on sm_{gpu}");
            if let Err(refused) = checked {
                let text = refused.reason;
                assert!(text.contains(&format!("this GPU is sm_{gpu}")), "{text}");
                assert!(text.contains("give PTX"), "{text}");
            }
        }
    }

    #[test]
    fn alignments_that_no_tool_writes_are_refused() {
        let mut good = cubin(90, 7, SECTIONS);
        // One segment of no bytes, behind all.
        let segment = good.len() as u64;
        good[32..40].copy_from_slice(&segment.to_le_bytes());
        good[54..58].copy_from_slice(&[size_of::<Program>() as u8, 0, 1, 0]);
        good.resize(good.len() + size_of::<Program>(), 0);
        let sections = u64_at(&good, 40).unwrap();
        let section = sections + 2 * u64::from(SECTION_BYTES);
        for (at, what) in [(section + 48, "section 2"), (segment + 48, "segment 0")] {
            let aligned = |alignment: u64| {
                let mut image = good.clone();
                image[at as usize..][..8].copy_from_slice(&alignment.to_le_bytes());
                Cubin::parse(&image).map(|cubin| cubin.loaded_bytes())
            };
            for fine in [0, 1, 128, 64 << 10] {
                aligned(fine).unwrap();
            }
            for wrong in [3, 96, (64 << 10) + 1, 128 << 10, 1 << 31, 1 << 63, u64::MAX] {
                let refused = aligned(wrong).unwrap_err().reason;
                let text = format!("{what} is aligned to {wrong} bytes");
                assert!(refused.contains(&text), "{refused}");
            }
        }
    }

    #[test]
    fn headers_that_point_outside_are_refused() {
        let good = cubin(90, 7, SECTIONS);
        let spoiled = |at: usize, bytes: &[u8]| {
            let mut image = good.clone();
            image[at..at + bytes.len()].copy_from_slice(bytes);
            Cubin::parse(&image).is_err()
        };
        assert!(!spoiled(0, MAGIC), "unchanged");
        for (at, bytes) in [
            (4, &[1][..]),                 // 32 bits
            (18, &[62, 0]),                // x86-64
            (40, &u64::MAX.to_le_bytes()), // section table
            (58, &[63, 0]),                // size of a section header
            (60, &[0xff, 0xff]),           // number of sections
            (60, &[0, 0]),                 // number of sections elsewhere
            (62, &[0xff, 0xff]),           // section of names
            (56, &[1, 0]),                 // a program header of no size
        ] {
            assert!(spoiled(at, bytes), "offset {at}");
        }
        for length in 0..good.len() {
            assert!(Cubin::parse(&good[..length]).is_err(), "cut at {length}");
        }
        let table = u64_at(&good, 40).unwrap() as usize;
        let first = table + usize::from(SECTION_BYTES);
        assert!(spoiled(first, &u32::MAX.to_le_bytes()), "name");
        assert!(spoiled(first + 24, &(u64::MAX - 4).to_le_bytes()), "offset");
        assert!(spoiled(first + 32, &(1_u64 << 20).to_le_bytes()), "size");
    }
}
