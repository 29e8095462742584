//! Libraries and object files of a host compiler with device code in them: inputs of
//! `cuLinkAddData` and `cuLinkAddFile` of the kinds "object" and "library".
//!
//! A library is an archive (`ar`, System V format) of object files. An object file for the host has
//! fat binaries in the sections `.nv_fatbin` and `__nv_relfatbin`; one for the device is a cubin.

use super::{Part, elf, fatbin, u16_at};

const ARCHIVE_MAGIC: &[u8] = b"!<arch>\n";
const MEMBER_HEADER_BYTES: usize = 60;
/// Sections with fat binaries.
const SECTIONS: [&str; 2] = [".nv_fatbin", "__nv_relfatbin"];

/// Returns the cubins and fat binaries in an archive or an object file; `None` if it is neither, or
/// malformed.
pub(crate) fn containers(file: &[u8]) -> Option<Vec<&[u8]>> {
    let Some(mut rest) = file.strip_prefix(ARCHIVE_MAGIC) else {
        return of_object(file);
    };
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (header, behind) = rest.split_at_checked(MEMBER_HEADER_BYTES)?;
        let size = str::from_utf8(header.get(48..58)?).ok()?;
        let size: usize = size.trim_end().parse().ok()?;
        let member = behind.get(..size)?;
        // Members without device code, and the archive's own tables, have nothing to offer.
        found.extend(of_object(member).unwrap_or_default());
        rest = behind.get(size.next_multiple_of(2)..).unwrap_or_default();
    }
    Some(found)
}

fn of_object(file: &[u8]) -> Option<Vec<&[u8]>> {
    if !file.starts_with(elf::MAGIC) {
        return None;
    }
    if u16_at(&file, 18)? == elf::MACHINE {
        return Some(vec![file]);
    }
    let mut found = Vec::new();
    for (name, section) in elf::named_sections(file)? {
        if SECTIONS.contains(&name) {
            let start = usize::try_from(section.offset).ok()?;
            let end = start.checked_add(usize::try_from(section.bytes).ok()?)?;
            of_section(file.get(start..end)?, &mut found);
        }
    }
    Some(found)
}

/// Adds the fat binaries of a section, which follow each other.
fn of_section<'f>(section: &'f [u8], found: &mut Vec<&'f [u8]>) {
    let mut at = 0;
    while let Some(bytes) = fatbin::bytes(&Part(&section, at as u64)) {
        let end = at + bytes as usize;
        let Some(container) = section.get(at..end) else {
            return;
        };
        found.push(container);
        at = end.next_multiple_of(8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::elf::tests::{cubin, file};
    use crate::image::fatbin::tests::{Built, fatbin};
    use crate::image::tests::PTX;

    fn archive(members: &[&[u8]]) -> Vec<u8> {
        let mut image = ARCHIVE_MAGIC.to_vec();
        for member in members {
            let header = format!("{:<48}{:<10}`\n", "name.o/", member.len());
            image.extend_from_slice(header.as_bytes());
            image.extend_from_slice(member);
            image.resize(image.len().next_multiple_of(2), b'\n');
        }
        image
    }

    #[test]
    fn device_code_is_found_in_archives_and_objects() {
        let (first, second) = (fatbin(&[Built::ptx(80, PTX)]), fatbin(&[]));
        let both = [&first[..], &second].concat();
        let host = file(62, 0, &[(".text", 1, b"code"), (".nv_fatbin", 1, &both)]);
        assert_eq!(containers(&host), Some(vec![&first[..], &second]));
        let device = cubin(90);
        let library = archive(&[b"symbols", &host, &device, b"odd"]);
        let wanted = vec![&first[..], &second, &device];
        assert_eq!(containers(&library), Some(wanted));
    }

    #[test]
    fn what_is_cut_or_no_library_is_refused() {
        let library = archive(&[b"some", b"more"]);
        assert_eq!(containers(&library[..library.len() - 1]), None);
        assert_eq!(containers(b"text"), None);
        assert_eq!(containers(b"!<arch>\n"), Some(Vec::new()));
    }
}
