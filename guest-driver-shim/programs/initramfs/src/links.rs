//! What an ELF file asks the dynamic linker for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use object::LittleEndian;
use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, Dyn64, FileHeader64, ProgramHeader64,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{Error, StringTable};

type Segment = ProgramHeader64<LittleEndian>;

/// Most libraries that one file may name.
const LIBRARIES_MAX: usize = 256;

/// What an ELF file asks the dynamic linker for. A static program asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Path of the dynamic linker.
    pub interpreter: Option<PathBuf>,
    /// Names of the libraries that the file needs, in order.
    pub needed: Vec<OsString>,
    /// Folders of its libraries, and of those that they need (`DT_RPATH`), with colons between.
    pub(crate) paths_of_all: OsString,
    /// Folders of its own libraries (`DT_RUNPATH`), with colons between.
    pub(crate) paths_of_own: OsString,
}

impl Links {
    /// Returns whether the file needs no dynamic linker.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.interpreter.is_none() && self.needed.is_empty()
    }

    /// Returns whether the program's dynamic linker is glibc's.
    pub(crate) fn are_of_glibc(&self) -> bool {
        let name = self.interpreter.as_ref().and_then(|path| path.file_name());
        name.is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
    }

    /// Reads what a library asks for, or a program, of which nothing else is checked.
    ///
    /// # Errors
    /// What is wrong with the image.
    pub fn of_library(image: &[u8]) -> Result<Self, Error> {
        let header = FileHeader64::<LittleEndian>::parse(image)?;
        let segments = header.program_headers(LittleEndian, image)?;
        let mut links = Self::default();
        for segment in segments {
            links.read(segment, segments, image)?;
        }
        Ok(links)
    }

    /// Adds what a segment asks for, if it is one with the dynamic linker's name or its list.
    pub(crate) fn read(
        &mut self,
        segment: &Segment,
        segments: &[Segment],
        image: &[u8],
    ) -> Result<(), Error> {
        if let Some(path) = segment.interpreter(LittleEndian, image)? {
            // Linux takes the first.
            self.interpreter.get_or_insert_with(|| text(path).into());
        }
        let entries = segment.dynamic(LittleEndian, image)?.unwrap_or_default();
        let value = |tag| {
            let entry = entries.iter().find(|entry| entry.tag(LittleEndian) == tag);
            entry.map_or(0, |entry| entry.val(LittleEndian))
        };
        let (address, bytes) = (value(DT_STRTAB), value(DT_STRSZ));
        let strings = segments.iter().find_map(|segment| {
            let found = segment.data_range(LittleEndian, image, address, bytes);
            found.ok().flatten()
        });
        let strings = strings.unwrap_or_default();
        let strings = StringTable::new(strings, 0, strings.len() as u64);
        let named = |entry: &Dyn64<LittleEndian>| Ok(text(entry.string(LittleEndian, strings)?));
        for entry in entries {
            match entry.tag(LittleEndian) {
                DT_NEEDED if self.needed.len() < LIBRARIES_MAX => self.needed.push(named(entry)?),
                DT_RPATH => self.paths_of_all = named(entry)?,
                DT_RUNPATH => self.paths_of_own = named(entry)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}
