//! What the file of a kernel module says about itself: section `.modinfo`, a list of `key=value`
//! records, each ended by a zero byte (include/linux/moduleparam.h of Linux).

use std::path::Path;

use object::LittleEndian;
use object::elf::{EM_X86_64, ET_REL, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader};

type Header = FileHeader64<LittleEndian>;

/// Compressions that the kernel undoes itself (`CONFIG_MODULE_DECOMPRESS`), each with the first
/// bytes of such files and the suffix of their names.
const COMPRESSIONS: [(&[u8], &str); 3] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"\x1f\x8b", "gz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
];

/// Why a file is no kernel module that a guest can load.
#[derive(Debug, thiserror::Error)]
pub enum ModuleFileError {
    /// The file is empty.
    #[error("the file is empty: give a kernel module, NAME.ko")]
    Empty,
    /// The file is neither an ELF file nor compressed.
    #[error(
        "it is not a kernel module: it has {bytes} bytes and begins with {head:02x?}, but a module \
         is an ELF file, NAME.ko, or such a file compressed with xz, gzip or zstd"
    )]
    NotElf {
        /// Size of the file in bytes.
        bytes: usize,
        /// First bytes of the file.
        head: Vec<u8>,
    },
    /// The file is an ELF file of another type, or for another kind of processor.
    #[error(
        "it is an ELF file of type {kind} for machine {machine}, but a kernel module for x86-64 \
         has type {} and machine {}",
        ET_REL.0,
        EM_X86_64.0
    )]
    Kind {
        /// Type of the file (`e_type` of its ELF header).
        kind: u16,
        /// Kind of processor (`e_machine` of its ELF header).
        machine: u16,
    },
    /// The file has no `.modinfo`, as an ordinary object file.
    #[error("it is an object file, but not a kernel module: it has no section .modinfo")]
    NoInformation,
    /// A part of the file cannot be read.
    #[error("the file is cut off or damaged")]
    Damaged(#[from] object::read::Error),
    /// The name of a compressed file does not say so, and the kernel goes by the name.
    #[error("it is compressed, so its name must end in .{suffix}: rename the file")]
    Suffix {
        /// The suffix that the name lacks.
        suffix: &'static str,
    },
    /// The name of the file says that it is compressed, but its content is not.
    #[error("its name ends in .{suffix}, but it is not compressed in this way: rename the file")]
    NotCompressed {
        /// The suffix of the name.
        suffix: &'static str,
    },
}

/// Returns whether the name of a module's file says that the file is compressed.
pub(crate) fn is_compressed(path: &Path) -> bool {
    suffix(path).is_some()
}

fn suffix(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?;
    let known = COMPRESSIONS.iter().map(|(_, suffix)| *suffix);
    known.into_iter().find(|suffix| extension == *suffix)
}

/// Checks that a guest can load a module. `path` is the file's name, and `image` its content. What
/// a compressed file contains is not checked.
///
/// # Errors
/// [`ModuleFileError`] says what the file is instead.
pub(crate) fn check_module(path: &Path, image: &[u8]) -> Result<(), ModuleFileError> {
    let compressions = COMPRESSIONS.iter();
    let found = compressions.filter(|(magic, _)| image.starts_with(magic));
    let found = found.map(|(_, suffix)| *suffix).next();
    match (suffix(path), found) {
        (None, None) => depends(image).map(drop),
        (named, Some(suffix)) if named == Some(suffix) => Ok(()),
        (_, Some(suffix)) => Err(ModuleFileError::Suffix { suffix }),
        (Some(_), None) if image.is_empty() => Err(ModuleFileError::Empty),
        (Some(suffix), None) => Err(ModuleFileError::NotCompressed { suffix }),
    }
}

/// Returns the names of the modules that the module in `image`, which is not compressed, needs.
///
/// # Errors
/// [`ModuleFileError`] if the file is no kernel module for x86-64.
pub(crate) fn depends(image: &[u8]) -> Result<Vec<String>, ModuleFileError> {
    if image.is_empty() {
        return Err(ModuleFileError::Empty);
    }
    if !image.starts_with(b"\x7fELF\x02\x01") {
        return Err(ModuleFileError::NotElf {
            bytes: image.len(),
            head: image[..image.len().min(4)].to_vec(),
        });
    }
    let header = Header::parse(image)?;
    let (kind, machine) = (header.e_type(LittleEndian), header.e_machine(LittleEndian));
    if (kind, machine) != (ET_REL, EM_X86_64) {
        let (kind, machine) = (kind.0, machine.0);
        return Err(ModuleFileError::Kind { kind, machine });
    }
    let sections = header.sections(LittleEndian, image)?;
    let section = sections.section_by_name(LittleEndian, b".modinfo");
    let (_, section) = section.ok_or(ModuleFileError::NoInformation)?;
    let records = section.data(LittleEndian, image)?.split(|byte| *byte == 0);
    let depends = records.filter_map(|record| record.strip_prefix(b"depends="));
    let names = depends.flat_map(|names| names.split(|byte| *byte == b','));
    let names = names.filter(|name| !name.is_empty());
    Ok(names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a kernel module that consists of `information`, the content of `.modinfo`.
    pub(crate) fn module(information: &[u8]) -> Vec<u8> {
        const NAMES: &[u8] = b"\0.modinfo\0.shstrtab\0";
        let mut image = vec![0; 64];
        image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        image[16..20].copy_from_slice(&[1, 0, 62, 0]);
        image[20] = 1;
        let mut sections = vec![0; 64];
        // Name, type (program data or strings), and content of each section.
        for (name, kind, content) in [(1_u32, 1_u32, information), (10, 3, NAMES)] {
            let mut section = vec![0; 64];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&(image.len() as u64).to_le_bytes());
            section[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            image.extend(content);
            sections.extend(section);
        }
        image.resize(image.len().next_multiple_of(8), 0);
        let at = (image.len() as u64).to_le_bytes();
        image[40..48].copy_from_slice(&at);
        // Sizes of the headers, number of sections, and the section with their names.
        image[52..64].copy_from_slice(&[64, 0, 0, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
        image.extend(sections);
        image
    }

    #[test]
    fn a_module_names_those_that_it_needs() {
        let none = module(b"license=GPL\0depends=\0name=uio\0");
        assert_eq!(depends(&none).unwrap(), [""; 0]);
        let two = module(b"depends=virtio,virtio_ring\0vermagic=6.1\0");
        assert_eq!(depends(&two).unwrap(), ["virtio", "virtio_ring"]);
    }

    #[test]
    fn what_is_no_module_is_refused_with_what_it_is() {
        let refused = |name: &str, image: &[u8]| {
            check_module(Path::new(name), image)
                .unwrap_err()
                .to_string()
        };
        let good = module(b"depends=\0");
        check_module(Path::new("my.ko"), &good).unwrap();
        check_module(Path::new("my.ko.xz"), b"\xfd7zXZ\0 and more").unwrap();
        assert!(refused("my.ko", b"").contains("is empty"));
        assert!(refused("my.ko.xz", b"").contains("is empty"));
        let message = refused("random.bin", b"\x12\x34\x56\x78\x9a");
        assert!(
            message.contains("5 bytes and begins with [12, 34, 56, 78]"),
            "{message}"
        );
        assert!(refused("my.ko", b"\xfd7zXZ\0").contains("must end in .xz"));
        assert!(refused("my.ko.gz", b"\xfd7zXZ\0").contains("must end in .xz"));
        assert!(refused("my.ko.zst", &good).contains("ends in .zst, but it is not"));
        assert!(refused("app", crate::INIT).contains("for machine 62, but"));
        let mut arm = good.clone();
        arm[18] = 183;
        assert!(refused("my.ko", &arm).contains("machine 183"));
        let mut object = module(b"");
        object[65] = b'x';
        assert!(refused("my.o", &object).contains("no section .modinfo"));
        assert!(refused("my.ko", &good[..70]).contains("cut off or damaged"));
    }

    /// Whatever is in the file, checking it ends with an answer.
    #[test]
    fn damaged_modules_are_survived() {
        let good = module(b"depends=virtio\0");
        for at in 0..good.len() {
            let _ = depends(&good[..at]);
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = good.clone();
                damaged[at] = value;
                let _ = depends(&damaged);
            }
        }
    }
}
