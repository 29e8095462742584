//! Cubins: ELF files with code for one architecture.
//!
//! The layout is that of the System V ABI, "ELF-64 Object File Format". Machine and flags of CUDA
//! are in LLVM's `BinaryFormat/ELF.h`; `cuobjdump -elf` shows the names of the sections.

use super::{Entry, Source, u16_at, u32_at, u64_at};

pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// `EM_CUDA`
pub(super) const MACHINE: u16 = 190;
/// Types of sections without bytes in the file: `SHT_NOBITS`, and those of NVIDIA's linker
/// (uninitialized variables, local memory, shared memory, reserved shared memory).
const NOBITS: [u32; 5] = [8, 0x7000_0007, 0x7000_0009, 0x7000_000a, 0x7000_0015];
const HEADER_BYTES: u64 = 64;
const SECTION_BYTES: u16 = 64;
const PROGRAM_BYTES: u16 = 56;
const SYMBOL_BYTES: usize = 24;
/// `STT_OBJECT`, the type of variables.
const OBJECT: u8 = 1;
/// The bit of a symbol's `st_other` that nvcc sets for managed variables (`readelf -s` shows it).
const MANAGED: u8 = 4;
/// Every kernel has a section of constants, with its parameters.
const CONSTANTS: &str = ".nv.constant0.";

/// A section of an ELF file.
pub(super) struct Section {
    pub(super) name: u32,
    kind: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Returns the architecture of a cubin's code: 90 for sm_90. `None` if the file is none for GPUs.
pub(super) fn architecture(source: &impl Source) -> Option<u32> {
    let is_gpu = u16_at(source, 18)? == MACHINE;
    let ident = source.read(4, 5)?;
    if !is_gpu || ident[..2] != [2, 1] {
        return None;
    }
    let flags = u32_at(source, 48)?;
    // The newer layout, told by the ABI version, has the architecture one byte further up.
    let newer = ident[4] >= 8;
    Some(if newer { flags >> 8 } else { flags } & 0xff)
}

/// Returns whether a GPU of architecture `gpu` executes code for the architecture `code`: with the
/// same major number, and no smaller a minor (CUDA programming guide, "Binary Compatibility").
pub(super) const fn runs_on(code: u32, gpu: u32) -> bool {
    code / 10 == gpu / 10 && code % 10 <= gpu % 10
}

/// Returns the sections of an ELF file; `None` if a header is malformed or lies outside.
pub(super) fn sections(source: &impl Source) -> Option<Vec<Section>> {
    let (table, count) = (u64_at(source, 40)?, u16_at(source, 60)?);
    // A count of 0 means that the number is elsewhere: no cubin has as many sections.
    if count == 0 || u16_at(source, 58)? != SECTION_BYTES {
        return None;
    }
    let headers = source.read(table, u64::from(count) * u64::from(SECTION_BYTES))?;
    let header = |header: &[u8]| {
        Some(Section {
            name: u32_at(&header, 0)?,
            kind: u32_at(&header, 4)?,
            offset: u64_at(&header, 24)?,
            bytes: u64_at(&header, 32)?,
        })
    };
    headers
        .chunks_exact(SECTION_BYTES.into())
        .map(header)
        .collect()
}

impl Section {
    /// Returns the offset behind the last byte that this section has in the file.
    fn end(&self) -> Option<u64> {
        match NOBITS.contains(&self.kind) {
            true => Some(0),
            false => self.offset.checked_add(self.bytes),
        }
    }
}

/// Returns the length of an ELF file, which is where its last header, section or segment ends.
pub(super) fn bytes(source: &impl Source) -> Option<u64> {
    let sections = sections(source)?;
    let mut end = u64_at(source, 40)?
        .checked_add(sections.len() as u64 * u64::from(SECTION_BYTES))?
        .max(HEADER_BYTES);
    for section in &sections {
        end = end.max(section.end()?);
    }
    let (programs, count) = (u64_at(source, 32)?, u16_at(source, 56)?);
    if count != 0 && u16_at(source, 54)? != PROGRAM_BYTES {
        return None;
    }
    for index in 0..u64::from(count) {
        let at = programs.checked_add(index * u64::from(PROGRAM_BYTES))?;
        let (offset, size) = (
            u64_at(source, at.checked_add(8)?)?,
            u64_at(source, at.checked_add(32)?)?,
        );
        end = end.max(offset.checked_add(size)?);
        end = end.max(at + u64::from(PROGRAM_BYTES));
    }
    Some(end)
}

/// Returns the sections of a whole ELF file with their names.
pub(super) fn named_sections(file: &[u8]) -> Option<Vec<(&str, Section)>> {
    let sections = sections(&file)?;
    let names = sections.get(usize::from(u16_at(&file, 62)?))?;
    let start = usize::try_from(names.offset).ok()?;
    let names = file.get(start..)?;
    let name = |at: u32| {
        let bytes = names.get(at as usize..)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        str::from_utf8(&bytes[..end]).ok()
    };
    sections
        .into_iter()
        .map(|section| Some((name(section.name)?, section)))
        .collect()
}

/// Returns whether a whole ELF file names a symbol, which it has or wants from elsewhere.
pub(super) fn names_symbol(file: &[u8], symbol: &str) -> bool {
    let sections = named_sections(file).unwrap_or_default();
    let named = sections.iter().find(|(name, _)| *name == ".strtab");
    let names = named.and_then(|(_, names)| {
        let start = usize::try_from(names.offset).ok()?;
        let bytes = usize::try_from(names.bytes).ok()?;
        file.get(start..)?.get(..bytes)
    });
    let mut names = names.unwrap_or_default().split(|byte| *byte == 0);
    names.any(|name| name == symbol.as_bytes())
}

/// Returns whether a cubin has a managed variable, or uses one of another.
pub(super) fn has_managed_variables(cubin: &[u8]) -> bool {
    let sections = named_sections(cubin).unwrap_or_default();
    let symbols = sections.iter().find(|(name, _)| *name == ".symtab");
    let symbols = symbols.and_then(|(_, symbols)| {
        let start = usize::try_from(symbols.offset).ok()?;
        let bytes = usize::try_from(symbols.bytes).ok()?;
        cubin.get(start..)?.get(..bytes)
    });
    let mut symbols = symbols.unwrap_or_default().chunks_exact(SYMBOL_BYTES);
    symbols.any(|symbol| symbol[4] & 0xf == OBJECT && symbol[5] & MANAGED != 0)
}

/// Returns the kernels of a cubin.
pub(super) fn kernels(cubin: &[u8]) -> Option<Vec<Entry>> {
    let sections = named_sections(cubin)?;
    let names = sections
        .iter()
        .filter_map(|(name, _)| name.strip_prefix(CONSTANTS));
    let entry = |name: &str| Entry {
        name: name.to_owned(),
        required_threads: None,
    };
    Some(names.map(entry).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::error::Code;
    use crate::image::tests::{GPU, SOFTWARE};
    use crate::image::{Image, at, of};

    /// Returns an ELF file for `machine` with sections: name, type and content.
    pub(crate) fn file(machine: u16, flags: u32, sections: &[(&str, u32, &[u8])]) -> Vec<u8> {
        let mut image = vec![0; HEADER_BYTES as usize];
        image[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x33\x07");
        image[18..20].copy_from_slice(&machine.to_le_bytes());
        image[48..52].copy_from_slice(&flags.to_le_bytes());
        let mut names = vec![0];
        let mut headers = vec![[0_u64; 8]];
        let with_names = [sections, &[(".shstrtab", 3, b"")]].concat();
        for (name, kind, content) in &with_names {
            let mut header = [0; 8];
            header[0] = names.len() as u64 | u64::from(*kind) << 32;
            names.extend_from_slice(name.as_bytes());
            names.push(0);
            header[3] = image.len() as u64;
            header[4] = content.len() as u64;
            if *kind != 8 {
                image.extend_from_slice(content);
            }
            headers.push(header);
        }
        let last = headers.len() - 1;
        headers[last][3] = image.len() as u64;
        headers[last][4] = names.len() as u64;
        image.extend_from_slice(&names);
        image.resize(image.len().next_multiple_of(8), 0);
        let table = image.len() as u64;
        image[40..48].copy_from_slice(&table.to_le_bytes());
        image[58..60].copy_from_slice(&SECTION_BYTES.to_le_bytes());
        image[60..62].copy_from_slice(&(headers.len() as u16).to_le_bytes());
        image[62..64].copy_from_slice(&(last as u16).to_le_bytes());
        for word in headers.concat() {
            image.extend_from_slice(&word.to_le_bytes());
        }
        image
    }

    pub(crate) fn cubin(architecture: u32) -> Vec<u8> {
        let sections: &[(&str, u32, &[u8])] = &[
            (".text.add", 1, b"code"),
            (".nv.constant0.add", 1, &[0; 8]),
            (".nv.shared.add", 8, &[0; 4096]),
            (".text.called", 1, b"code"),
        ];
        file(MACHINE, architecture, sections)
    }

    #[test]
    fn the_length_is_where_the_last_part_ends() {
        let image = cubin(90);
        let mut longer = image.clone();
        longer.extend_from_slice(&[0xee; 100]);
        assert_eq!(bytes(&&longer[..]), Some(image.len() as u64));
        let found = at(longer.as_ptr() as usize, &GPU);
        assert_eq!(found, Ok(Image::Machine(image)));
    }

    #[test]
    fn kernels_are_the_code_that_has_parameters() {
        let entries = kernels(&cubin(90)).unwrap();
        let names: Vec<&str> = entries.iter().map(|entry| &entry.name[..]).collect();
        assert_eq!(names, ["add"]);
    }

    #[test]
    fn cubins_run_on_their_own_major_architecture() {
        for (architecture, code) in [(80, Some(Code::NO_BINARY_FOR_GPU)), (90, None)] {
            let image = cubin(architecture);
            assert_eq!(of(&&image[..], &GPU).err(), code);
            let refused = of(&&image[..], &SOFTWARE);
            assert_eq!(refused, Err(Code::NO_BINARY_FOR_GPU));
        }
        let newer = cubin(91);
        assert_eq!(of(&&newer[..], &GPU), Err(Code::NO_BINARY_FOR_GPU));
        let host = file(62, 90, &[]);
        assert_eq!(of(&&host[..], &GPU), Err(Code::INVALID_IMAGE));
    }

    #[test]
    fn the_newer_abi_has_its_architecture_elsewhere() {
        let mut image = file(MACHINE, 90 << 8 | 2, &[]);
        image[8] = 8;
        assert_eq!(architecture(&&image[..]), Some(90));
    }

    #[test]
    fn cut_files_are_refused() {
        let image = cubin(90);
        for end in MAGIC.len()..image.len() {
            assert_eq!(of(&&image[..end], &GPU), Err(Code::INVALID_IMAGE), "{end}");
        }
        let mut huge = image;
        huge[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(of(&&huge[..], &GPU), Err(Code::INVALID_IMAGE));
    }
}
