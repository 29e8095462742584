//! Symbols of cubins, by which the driver allocates and fills variables.

use causeway_mediator::backend::ModuleError;
use object::elf::{
    SHN_COMMON, SHN_LORESERVE, SHN_UNDEF, SHN_XINDEX, SHT_DYNSYM, SHT_SYMTAB, Sym64,
};
use object::{LittleEndian as LE, ReadRef as _};

use super::{Section, Sections, check_alignment, has_no_bits, malformed};

type Symbol = Sym64<LE>;

/// Bytes that symbols claim. Symbols may overlap, and then each may get memory of its own.
#[derive(Debug)]
pub(super) struct Claims {
    /// Bytes of the symbols of each section.
    pub(super) by_section: Vec<u64>,
    /// Bytes of symbols without a section: those that the driver makes room for
    /// (`SHN_COMMON`), that are defined elsewhere, or that have an absolute value.
    pub(super) elsewhere: u64,
}

impl Claims {
    /// Returns what the symbols of `sections` claim, after each was checked against the length of
    /// its section.
    ///
    /// # Errors
    /// [`ModuleError`]: a symbol lies beyond the end of its section, or in no section, or its
    /// alignment is no power of two or too large.
    pub(super) fn of(sections: &Sections<'_>) -> Result<Self, ModuleError> {
        let mut claims = Self {
            by_section: vec![0; sections.headers.len()],
            elsewhere: 0,
        };
        for table in sections.headers {
            if is_table(sections, table) {
                for (number, symbol) in symbols(sections, table)?.iter().enumerate() {
                    claims.add(sections, number, symbol)?;
                }
            }
        }
        Ok(claims)
    }

    fn add(
        &mut self,
        sections: &Sections<'_>,
        number: usize,
        symbol: &Symbol,
    ) -> Result<(), ModuleError> {
        let bytes = symbol.st_size.get(LE);
        let index = symbol.st_shndx.get(LE);
        let aligned = |value| check_alignment(value, || format!("symbol {number}"));
        if index == SHN_COMMON {
            aligned(symbol.st_value.get(LE))?;
        }
        let claimed = if index == SHN_UNDEF || index.0 >= SHN_LORESERVE && index != SHN_XINDEX {
            &mut self.elsewhere
        } else {
            let index = usize::from(index.0);
            let section = sections.headers.get(index);
            let section = section.ok_or_else(|| {
                malformed(&format!(
                    "symbol {number} is in section {index}, which does not exist"
                ))
            })?;
            if sections.is_relocatable && sections.is_per_launch(section) && bytes != 0 {
                aligned(symbol.st_value.get(LE))?;
            }
            check(sections, section, symbol).ok_or_else(|| {
                malformed(&format!(
                    "symbol {number} has {bytes} bytes at offset {} of section {index}, \
                     which has {} bytes",
                    symbol.st_value.get(LE),
                    section.sh_size.get(LE),
                ))
            })?;
            &mut self.by_section[index]
        };
        *claimed = claimed.saturating_add(bytes);
        Ok(())
    }
}

/// Returns whether `section` is a table of symbols, by its type or its name.
fn is_table(sections: &Sections<'_>, section: &Section) -> bool {
    let kind = section.sh_type.get(LE);
    kind == SHT_SYMTAB || kind == SHT_DYNSYM || sections.name(section).starts_with(b".symtab\0")
}

fn symbols<'a>(sections: &Sections<'a>, table: &Section) -> Result<&'a [Symbol], ModuleError> {
    let (at, bytes) = (table.sh_offset.get(LE), table.sh_size.get(LE));
    let each = size_of::<Symbol>() as u64;
    let count = usize::try_from(bytes / each).ok();
    let has_entries = table.sh_entsize.get(LE) == each && bytes.is_multiple_of(each);
    count
        .filter(|_| has_entries)
        .and_then(|count| sections.bytes.read_slice_at(at, count).ok())
        .ok_or_else(|| malformed("a table of symbols has entries of another size, or is cut"))
}

/// Returns `None` if `symbol` lies beyond the end of its section.
fn check(sections: &Sections<'_>, section: &Section, symbol: &Symbol) -> Option<()> {
    let (at, bytes) = (symbol.st_value.get(LE), symbol.st_size.get(LE));
    // `ptxas -c` writes the alignment of shared variables as their value, and `ptxas -g` places
    // those of no size behind the end. Sections like these have no bytes in the file.
    let has_no_place = sections.is_per_launch(section) || bytes == 0 && has_no_bits(section);
    let at = if has_no_place { 0 } else { at };
    (at.checked_add(bytes)? <= section.sh_size.get(LE)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::cubin;
    use super::super::{Cubin, Header, NOBITS};
    use super::*;
    use crate::image::u64_at;

    const ALLOC: u64 = 2;
    const SYMBOL_BYTES: u64 = size_of::<Symbol>() as u64;
    /// Sections by number: variables, their first values, shared memory.
    const GLOBAL: u16 = 1;
    const INITIAL: u16 = 2;
    const SHARED: u16 = 3;
    const COMMON: u16 = 0xfff2;

    /// Returns a cubin with these symbols: section, offset, bytes. Their table has type `kind`.
    fn with_symbols(name: &str, kind: u32, symbols: &[(u16, u64, u64)]) -> Vec<u8> {
        let bytes = symbols.len() as u64 * SYMBOL_BYTES;
        let mut image = cubin(
            90,
            7,
            &[
                (".nv.global", NOBITS[0], ALLOC, 1000),
                (".nv.global.init", 1, ALLOC, 24),
                (".nv.shared.kernel", NOBITS[0], ALLOC, 4096),
                (name, kind, 0, bytes),
            ],
        );
        let header = header_of_table(&image);
        image[header + 56..header + 64].copy_from_slice(&SYMBOL_BYTES.to_le_bytes());
        let mut at = u64_at(&image, header + 24).unwrap() as usize;
        for (section, value, size) in symbols.iter().copied() {
            image[at + 4] = 0x11;
            image[at + 6..at + 8].copy_from_slice(&section.to_le_bytes());
            image[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
            image[at + 16..at + 24].copy_from_slice(&size.to_le_bytes());
            at += SYMBOL_BYTES as usize;
        }
        image
    }

    fn header_of_table(image: &[u8]) -> usize {
        let sections = u64_at(image, std::mem::offset_of!(Header, e_shoff)).unwrap();
        sections as usize + 4 * size_of::<Section>()
    }

    fn loaded_bytes(symbols: &[(u16, u64, u64)]) -> Result<u64, ModuleError> {
        let image = with_symbols(".symtab", 2, symbols);
        Ok(Cubin::parse(&image)?.loaded_bytes())
    }

    #[test]
    fn symbols_within_their_sections_pass() {
        let symbols = [
            (0, 0, 0),
            (GLOBAL, 0, 900),
            (GLOBAL, 900, 100),
            (GLOBAL, 2000, 0),
            (INITIAL, 8, 16),
            // The value is the alignment.
            (SHARED, 16, 4096),
            (SHARED, 8192, 0),
        ];
        assert_eq!(loaded_bytes(&symbols).unwrap(), 1024);
    }

    #[test]
    fn symbols_beyond_their_sections_are_refused() {
        for (section, value, size) in [
            (GLOBAL, 0, 1001),
            (GLOBAL, 0, 64 << 30),
            (INITIAL, 25, 0),
            (GLOBAL, u64::MAX, 2),
            (INITIAL, 20, 5),
            (INITIAL, 0, u64::MAX),
            (SHARED, 0, 4097),
        ] {
            for (name, kind) in [(".symtab", 2), (".s", 2), (".s", 11), (".symtab", 1)] {
                let image = with_symbols(name, kind, &[(0, 0, 0), (section, value, size)]);
                let refused = Cubin::parse(&image).unwrap_err().reason;
                let text = format!("symbol 1 has {size} bytes at offset {value} of section");
                assert!(refused.contains(&text), "{name} {kind}: {refused}");
            }
        }
        for section in [6, 0xfeff, 0xffff] {
            let refused = loaded_bytes(&[(section, 0, 0)]).unwrap_err().reason;
            assert!(refused.contains("which does not exist"), "{refused}");
        }
    }

    #[test]
    fn bytes_without_a_section_and_those_that_overlap_are_counted() {
        assert_eq!(loaded_bytes(&[(COMMON, 4, 5000), (0, 0, 8)]).unwrap(), 6032);
        let twice = [(GLOBAL, 0, 1000), (GLOBAL, 0, 1000)];
        assert_eq!(loaded_bytes(&twice).unwrap(), 2024);
        loaded_bytes(&[(COMMON, 0, u64::MAX)]).unwrap_err();
    }

    #[test]
    fn alignments_of_symbols_are_checked() {
        let parse = |relocatable: bool, symbol| {
            let mut image = with_symbols(".symtab", 2, &[(0, 0, 0), symbol]);
            image[std::mem::offset_of!(Header, e_type)] = relocatable.into();
            Cubin::parse(&image).map(|cubin| cubin.loaded_bytes())
        };
        for (relocatable, section, value) in [
            (false, COMMON, 0),
            (false, COMMON, 64 << 10),
            (true, COMMON, 16),
            (true, SHARED, 4),
            (true, SHARED, 64 << 10),
            // A place in the section.
            (false, SHARED, 48),
        ] {
            parse(relocatable, (section, value, 40)).unwrap();
        }
        for (relocatable, section, value) in [
            (false, COMMON, 12),
            (true, COMMON, 128 << 10),
            (true, SHARED, 48),
            (true, SHARED, u64::MAX),
        ] {
            let refused = parse(relocatable, (section, value, 40)).unwrap_err().reason;
            let text = format!("symbol 1 is aligned to {value} bytes");
            assert!(refused.contains(&text), "{refused}");
        }
        // The end of the section.
        parse(true, (SHARED, 4100, 0)).unwrap();
    }

    #[test]
    fn tables_with_entries_of_another_size_are_refused() {
        let good = with_symbols(".symtab", 2, &[(GLOBAL, 0, 8); 2]);
        let header = header_of_table(&good);
        for (at, number) in [(56, 0_u64), (56, 16), (56, 48), (32, 47)] {
            let mut image = good.clone();
            image[header + at..header + at + 8].copy_from_slice(&number.to_le_bytes());
            let refused = Cubin::parse(&image).unwrap_err().reason;
            assert!(refused.contains("entries of another size"), "{refused}");
        }
    }

    /// For cubins of NVIDIA's tools: `CUBINS=DIRECTORY cargo test … -- --ignored`.
    #[test]
    #[ignore = "needs a directory of cubins"]
    fn cubins_of_a_directory_pass() {
        let directory = std::env::var("CUBINS").unwrap();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|suffix| suffix == "cubin") {
                let image = std::fs::read(&path).unwrap();
                let cubin = Cubin::parse(&image);
                cubin.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            }
        }
    }
}
