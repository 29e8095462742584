//! The cache in which glibc's dynamic linker looks for libraries (ldconfig(8)), of this host.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::read::read_file;

/// Where the cache is.
const FILE: &str = "/etc/ld.so.cache";
/// Largest cache in bytes.
const BYTES_MAX: u64 = 64 << 20;

// The format (glibc, sysdeps/generic/dl-cache.h): a header with the number of entries at byte 20,
// then the entries. Names are at offsets from the header, and end with a zero byte.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const COUNT_OFFSET: usize = 20;
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;
const NAME_OFFSET: usize = 4;
const PATH_OFFSET: usize = 8;
const CAPABILITIES_OFFSET: usize = 16;
/// Flags of an entry: a library of glibc's ABI for x86-64 with 64-bit addresses.
const X86_64: u32 = 0x303;

/// Paths of this host's libraries by their names.
#[derive(Debug, Default)]
pub(crate) struct LoaderCache(HashMap<OsString, PathBuf>);

impl LoaderCache {
    /// Reads the cache of this host, which is empty if there is none.
    pub(crate) fn of_this_host() -> Self {
        let file = read_file(Path::new(FILE), BYTES_MAX);
        file.map_or_else(|_| Self::default(), |file| Self::parse(&file.content))
    }

    pub(crate) fn path_of(&self, name: &OsStr) -> Option<&Path> {
        self.0.get(name).map(PathBuf::as_path)
    }

    /// Reads a cache. What is damaged is left out.
    fn parse(bytes: &[u8]) -> Self {
        // An older format may come first.
        let begin = bytes.windows(MAGIC.len()).position(|part| part == MAGIC);
        let bytes = begin.map_or(&[][..], |begin| &bytes[begin..]);
        let count = word(bytes, COUNT_OFFSET).unwrap_or(0) as usize;
        let entries = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let mut paths = HashMap::new();
        for entry in entries.chunks_exact(ENTRY_BYTES).take(count) {
            let text = |offset| string(bytes, word(entry, offset)? as usize);
            // Those for some processors only are elsewhere, too.
            let is_for_all = entry[CAPABILITIES_OFFSET..] == [0; 8];
            if word(entry, 0) == Some(X86_64)
                && is_for_all
                && let (Some(name), Some(path)) = (text(NAME_OFFSET), text(PATH_OFFSET))
            {
                // The dynamic linker takes the first.
                paths.entry(name.to_owned()).or_insert_with(|| path.into());
            }
        }
        Self(paths)
    }
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn string(bytes: &[u8], offset: usize) -> Option<&OsStr> {
    let text = bytes.get(offset..)?.split(|byte| *byte == 0).next()?;
    Some(OsStr::from_bytes(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with these entries: flags, capabilities, name and path.
    fn cache(entries: &[(u32, u64, &str, &str)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((entries.len() as u32).to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        let mut strings = Vec::new();
        for (flags, capabilities, name, path) in entries {
            bytes.extend(flags.to_le_bytes());
            for text in [name, path] {
                let offset = HEADER_BYTES + entries.len() * ENTRY_BYTES + strings.len();
                bytes.extend((offset as u32).to_le_bytes());
                strings.extend(text.bytes().chain([0]));
            }
            bytes.extend([0; 4]);
            bytes.extend(capabilities.to_le_bytes());
        }
        [bytes, strings].concat()
    }

    fn path(cache: &LoaderCache, name: &str) -> Option<String> {
        let path = cache.path_of(OsStr::new(name));
        path.map(|path| path.display().to_string())
    }

    #[test]
    fn the_first_library_for_this_kind_of_machine_is_found() {
        let bytes = cache(&[
            (X86_64, 1 << 62, "liba.so.1", "/fast/liba.so.1"),
            (0x803, 0, "liba.so.1", "/32/liba.so.1"),
            (X86_64, 0, "liba.so.1", "/lib/liba.so.1"),
            (X86_64, 0, "liba.so.1", "/other/liba.so.1"),
        ]);
        for bytes in [bytes.clone(), [&[7; 33][..], &bytes].concat()] {
            let cache = LoaderCache::parse(&bytes);
            assert_eq!(path(&cache, "liba.so.1").as_deref(), Some("/lib/liba.so.1"));
            assert_eq!(path(&cache, "libb.so.1"), None);
        }
        for bytes_left in 0..bytes.len() {
            let _ = LoaderCache::parse(&bytes[..bytes_left]);
        }
    }
}
