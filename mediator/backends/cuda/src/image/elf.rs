//! Cubins: ELF files with code for one architecture.
//!
//! Layout: System V ABI, "ELF-64 Object File Format". What CUDA puts into it: LLVM's `BinaryFormat/ELF.h` (machine,
//! flags) and the names of sections as `cuobjdump` shows them.

use causeway_mediator::backend::ModuleError;

use super::{part, refused, u16_at, u32_at, u64_at};

/// How an ELF file begins.
pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// `EM_CUDA`.
const MACHINE: u16 = 190;
/// Sizes of headers of 64-bit files.
const HEADER_BYTES: usize = 64;
const SECTION_BYTES: u16 = 64;
const PROGRAM_BYTES: u16 = 56;
/// Sections without bytes in the file: `SHT_NOBITS`, and what NVIDIA's linker calls its kinds of it (uninitialized
/// variables, local memory, shared memory, reserved shared memory).
const NOBITS: [u32; 5] = [8, 0x7000_0007, 0x7000_0009, 0x7000_000a, 0x7000_0015];
/// `SHF_ALLOC`: a section that takes memory when the image is loaded.
const ALLOC: u64 = 2;
/// Beginnings of names of sections that only say how much each launch needs.
const PER_LAUNCH: [&[u8]; 3] = [b".nv.shared.", b".nv.local.", b".nv.reservedSmem"];
/// `PN_XNUM`: the number of program headers is elsewhere.
const PROGRAMS_ELSEWHERE: u16 = 0xffff;

/// A cubin whose headers point nowhere outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cubin<'a> {
    /// All of it.
    pub(crate) bytes: &'a [u8],
    /// Architecture it is for (80 for sm_80); 0 if it does not say.
    architecture: u32,
    /// Memory that it takes when it is loaded, in bytes.
    loaded_bytes: u64,
}

struct Section<'a> {
    name: &'a [u8],
    kind: u32,
    flags: u64,
    bytes: u64,
}

impl Section<'_> {
    fn has_no_bits(&self) -> bool {
        NOBITS.contains(&self.kind)
    }
}

fn malformed(what: &str) -> ModuleError {
    refused(format!("the cubin is malformed: {what}"))
}

impl<'a> Cubin<'a> {
    /// Checks every header against the length of the image.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ModuleError> {
        let header = bytes
            .get(..HEADER_BYTES)
            .ok_or_else(|| malformed("it is shorter than its header"))?;
        if !header.starts_with(MAGIC) || header[4] != 2 || header[5] != 1 {
            return Err(malformed("it is not a 64-bit little-endian ELF file"));
        }
        if u16_at(header, 18) != Some(MACHINE) {
            return Err(refused("the ELF file is not for NVIDIA GPUs (machine 190)"));
        }
        check_programs(bytes).ok_or_else(|| malformed("a segment lies outside"))?;
        let loaded_bytes =
            loaded_bytes(bytes).ok_or_else(|| malformed("a section, or its name, lies outside"))?;
        Ok(Self {
            bytes,
            architecture: architecture(header),
            loaded_bytes,
        })
    }

    /// Memory that it takes when it is loaded, in bytes: its code and its variables.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes
    }

    /// Whether its code runs on a GPU of this architecture: the same major number, and no greater minor.
    pub(super) fn runs_on(&self, architecture: u32) -> bool {
        runs_on(self.architecture, architecture)
    }

    /// Refuses code for another architecture.
    pub(super) fn check_architecture(&self, architecture: u32) -> Result<(), ModuleError> {
        if self.architecture == 0 || self.runs_on(architecture) {
            return Ok(());
        }
        Err(refused(format!(
            "the cubin is for sm_{}, this GPU is sm_{architecture}: give PTX or a cubin for sm_{architecture}",
            self.architecture
        )))
    }
}

/// Binary compatibility (CUDA programming guide, "Binary Compatibility").
pub(super) fn runs_on(code: u32, gpu: u32) -> bool {
    code / 10 == gpu / 10 && code % 10 <= gpu % 10
}

/// The architecture from the flags: in bits 15:8 since version 8 of the ABI, before in bits 7:0.
fn architecture(header: &[u8]) -> u32 {
    let flags = u32_at(header, 48).unwrap_or(0);
    if header[8] >= 8 {
        flags >> 8 & 0xff
    } else {
        flags & 0xff
    }
}

/// None if a program header or what it points to lies outside.
fn check_programs(bytes: &[u8]) -> Option<()> {
    let (at, entry, count) = (u64_at(bytes, 32)?, u16_at(bytes, 54)?, u16_at(bytes, 56)?);
    if count == 0 {
        return Some(());
    }
    if entry != PROGRAM_BYTES || count == PROGRAMS_ELSEWHERE {
        return None;
    }
    let table = part(bytes, at, u64::from(entry) * u64::from(count))?;
    for program in table.chunks_exact(usize::from(PROGRAM_BYTES)) {
        part(bytes, u64_at(program, 8)?, u64_at(program, 32)?)?;
    }
    Some(())
}

/// The sum of what is loaded; none if a section or its name lies outside.
fn loaded_bytes(bytes: &[u8]) -> Option<u64> {
    let (at, entry, count) = (u64_at(bytes, 40)?, u16_at(bytes, 58)?, u16_at(bytes, 60)?);
    // None at all means that their number is elsewhere (extended numbering): nobody needs as many, and the driver might
    // count other sections than were looked at here.
    if entry != SECTION_BYTES || count == 0 {
        return None;
    }
    let table = part(bytes, at, u64::from(entry) * u64::from(count))?;
    let headers = || table.chunks_exact(usize::from(SECTION_BYTES));
    let names = headers().nth(usize::from(u16_at(bytes, 62)?))?;
    let names = part(bytes, u64_at(names, 24)?, u64_at(names, 32)?)?;
    let mut sum: u64 = 0;
    for header in headers() {
        let section = section(bytes, names, header)?;
        let per_launch = PER_LAUNCH.iter().any(|name| section.name.starts_with(name));
        // What the driver makes of uninitialized variables without the flag is not known.
        let takes_memory = section.flags & ALLOC != 0 || section.has_no_bits();
        if takes_memory && !per_launch {
            sum = sum.checked_add(section.bytes)?;
        }
    }
    Some(sum)
}

fn section<'a>(bytes: &[u8], names: &'a [u8], header: &[u8]) -> Option<Section<'a>> {
    let section = Section {
        name: names.get(usize::try_from(u32_at(header, 0)?).ok()?..)?,
        kind: u32_at(header, 4)?,
        flags: u64_at(header, 8)?,
        bytes: u64_at(header, 32)?,
    };
    if !section.has_no_bits() {
        part(bytes, u64_at(header, 24)?, section.bytes)?;
    }
    Some(section)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A cubin with the sections given: name, kind, flags, size.
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
