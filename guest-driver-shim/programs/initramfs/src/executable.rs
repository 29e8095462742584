//! Which programs a guest can run: ELF executables for x86-64.

use object::elf::{
    ELF_NOTE_GNU, ELFOSABI_GNU, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, NT_GNU_ABI_TAG, PT_LOAD,
    PT_TLS,
};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, elf};

use crate::links::Links;

type Header = FileHeader64<LittleEndian>;
type Segment = elf::ProgramHeader64<LittleEndian>;

/// Longest first line of a script that is quoted.
const SCRIPT_LINE_BYTES_MAX: usize = 120;

/// Why a file cannot be the program of a guest.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The file is a script.
    #[error(
        "the program is a script for `{interpreter}`: give the interpreter as --program, copy the \
         script into the guest with --file, and name the script behind --"
    )]
    Script {
        /// Interpreter that its first line names.
        interpreter: String,
    },
    /// The file does not begin with an ELF header.
    #[error(
        "the program is not an ELF executable: it has {bytes} bytes and begins with {head:02x?}"
    )]
    NotElf {
        /// Size of the file in bytes.
        bytes: usize,
        /// First bytes of the file.
        head: Vec<u8>,
    },
    /// The file is for another kind of processor.
    #[error("the program is for {found}: guests are x86-64 machines, so build it for x86-64")]
    Architecture {
        /// Kind of processor that it is for.
        found: String,
    },
    /// The file is another type of ELF file, such as an object file or a core dump.
    #[error(
        "the program's ELF type is {kind}: give an executable (type 2, or 3 if it is \
         position-independent)"
    )]
    Type {
        /// Type of the file (`e_type` of its ELF header).
        kind: u16,
    },
    /// A part of the file cannot be read.
    #[error("cannot read the program's {what}: the file is cut off or damaged")]
    Damaged {
        /// Name of the part.
        what: &'static str,
        /// What is wrong with the part.
        source: object::read::Error,
    },
    /// The file ends before its last segment does.
    #[error(
        "the program is cut off: its segments end at byte {end}, but the file ends at byte {bytes}"
    )]
    Truncated {
        /// Offset at which the file should end.
        end: u64,
        /// Size of the file in bytes.
        bytes: usize,
    },
    /// The file has no segment to load into memory.
    #[error("the program is not an executable: it has no segment to load into memory")]
    Empty,
    /// The file needs libraries, but names no dynamic linker that would load them.
    #[error(
        "the program needs {wanted}, but names no dynamic linker to load them: it may be a \
         library; give an executable"
    )]
    NoLinker {
        /// Names of the libraries that it needs.
        wanted: String,
    },
}

/// Checks that a guest can run a program, and returns which dynamic linker and libraries the guest
/// needs for it. `image` is the content of the program's file.
///
/// # Errors
/// * [`ProgramError::Script`], [`ProgramError::NotElf`]: the file is not an ELF file.
/// * [`ProgramError::Architecture`]: the program is not for x86-64.
/// * [`ProgramError::Type`]: the ELF file is not an executable.
/// * [`ProgramError::Damaged`], [`ProgramError::Truncated`], [`ProgramError::Empty`]: a part of the
///   file cannot be read, is cut off, or is missing.
/// * [`ProgramError::NoLinker`]: the program needs libraries, but names no dynamic linker.
pub fn check_program(image: &[u8]) -> Result<Links, ProgramError> {
    if let Some(interpreter) = interpreter_of_script(image) {
        return Err(ProgramError::Script { interpreter });
    }
    if !image.starts_with(b"\x7fELF") {
        return Err(ProgramError::NotElf {
            bytes: image.len(),
            head: image[..image.len().min(4)].to_vec(),
        });
    }
    check_architecture(image)?;
    let header = Header::parse(image).map_err(damaged("ELF header"))?;
    let kind = header.e_type(LittleEndian);
    if kind != ET_EXEC && kind != ET_DYN {
        return Err(ProgramError::Type { kind: kind.0 });
    }
    let segments = header
        .program_headers(LittleEndian, image)
        .map_err(damaged("program headers"))?;
    if !segments.iter().any(|s| s.p_type(LittleEndian) == PT_LOAD) {
        return Err(ProgramError::Empty);
    }
    let mut links = Links::default();
    for segment in segments {
        segment
            .data(LittleEndian, image)
            .map_err(|()| ProgramError::Truncated {
                end: segment
                    .p_offset(LittleEndian)
                    .saturating_add(segment.p_filesz(LittleEndian)),
                bytes: image.len(),
            })?;
        let read = links.read(segment, segments, image);
        read.map_err(damaged("list of libraries"))?;
    }
    if links.interpreter.is_none() && !links.needed.is_empty() {
        let wanted: Vec<_> = links
            .needed
            .iter()
            .map(|name| name.to_string_lossy())
            .collect();
        let wanted = wanted.join(", ");
        return Err(ProgramError::NoLinker { wanted });
    }
    Ok(links)
}

/// Returns whether a file begins as an ELF file with code for x86-64 does: dynamic linkers pass
/// over others. A core dump, which has data of the host, is none.
pub(crate) fn is_for_guests(image: &[u8]) -> bool {
    let has_code = matches!(image.get(16..18), Some([2 | 3, 0]));
    image.starts_with(b"\x7fELF")
        && image.len() >= 64
        && has_code
        && check_architecture(image).is_ok()
}

/// Returns whether the ELF file `image` is a program for Linux, by what such programs alone have: a
/// note about the kernel that they need (`NT_GNU_ABI_TAG`), GNU's ABI, or thread-local storage,
/// which an operating system has to set up. Programs that have none of these are not detected.
#[must_use]
pub fn is_linux_program(image: &[u8]) -> bool {
    let Ok(header) = Header::parse(image) else {
        return false;
    };
    let segments = header.program_headers(LittleEndian, image);
    let mut segments = segments.unwrap_or_default().iter();
    header.e_ident().os_abi == ELFOSABI_GNU
        || segments.any(|s| s.p_type(LittleEndian) == PT_TLS || has_linux_note(s, image))
}

/// Returns whether a segment contains the note about the kernel that a program needs.
fn has_linux_note(segment: &Segment, image: &[u8]) -> bool {
    let notes = segment.notes(LittleEndian, image).ok().flatten();
    let Some(mut notes) = notes else { return false };
    while let Ok(Some(note)) = notes.next() {
        if note.name() == ELF_NOTE_GNU && note.n_type(LittleEndian) == NT_GNU_ABI_TAG {
            return true;
        }
    }
    false
}

fn damaged(what: &'static str) -> impl Fn(object::read::Error) -> ProgramError {
    move |source| ProgramError::Damaged { what, source }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the interpreter in the first line of a script.
fn interpreter_of_script(image: &[u8]) -> Option<String> {
    let line = image
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = &line[..line.len().min(SCRIPT_LINE_BYTES_MAX)];
    Some(text(line.trim_ascii()))
}

/// Class, byte order and machine must be those of an x86-64 executable.
fn check_architecture(image: &[u8]) -> Result<(), ProgramError> {
    // The same place in the headers of all classes; the byte order is that of the file.
    let [.., class, order] = image.get(..6).unwrap_or_default() else {
        return Ok(());
    };
    let machine = match (image.get(18..20), order) {
        (Some([high, low]), 2) => u16::from_be_bytes([*high, *low]),
        (Some([low, high]), _) => u16::from_le_bytes([*low, *high]),
        // Too short for a header, which is said elsewhere.
        _ => return Ok(()),
    };
    if (*class, *order, machine) == (2, 1, EM_X86_64.0) {
        return Ok(());
    }
    let name = match machine {
        3 => "x86, 32-bit".to_owned(),
        40 => "Arm, 32-bit".to_owned(),
        62 => "x86-64 with 32-bit addresses (x32)".to_owned(),
        183 => "AArch64".to_owned(),
        243 => "RISC-V".to_owned(),
        _ => format!("ELF machine {machine}"),
    };
    Err(ProgramError::Architecture { found: name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(image: &[u8]) -> String {
        check_program(image).unwrap_err().to_string()
    }

    #[test]
    fn our_own_init_is_static() {
        assert!(check_program(crate::INIT).unwrap().is_static());
    }

    #[test]
    fn programs_for_linux_are_told_from_bare_guests() {
        assert!(is_linux_program(crate::INIT));
        assert!(is_linux_program(&std::fs::read("/proc/self/exe").unwrap()));
        for name in causeway_embedded::NAMES {
            let image = causeway_embedded::image(name).unwrap();
            assert!(!is_linux_program(image), "{name}");
        }
        assert!(!is_linux_program(b"") && !is_linux_program(b"\x7fELF"));
        assert!(!is_linux_program(&crate::INIT[..64]));
    }

    /// The test itself is linked dynamically, as programs are unless somebody cares.
    #[test]
    fn a_dynamic_program_names_its_linker_and_libraries_and_a_library_is_refused() {
        let image = std::fs::read("/proc/self/exe").unwrap();
        let links = check_program(&image).unwrap();
        assert!(!links.is_static());
        let linker = links.interpreter.unwrap();
        assert!(linker.ends_with("ld-linux-x86-64.so.2"), "{linker:?}");
        assert!(links.needed.iter().any(|name| name == "libc.so.6"));
        let message = refused(causeway_embedded_libraries::LIBRARIES[0].image);
        assert!(
            message.contains("needs libgcc_s.so.1, libc.so.6"),
            "{message}"
        );
    }

    /// Linux starts the first linker that a program names. Another file of the host must not come
    /// with the program because a further header names it.
    #[test]
    fn the_first_linker_counts_and_core_dumps_are_not_for_guests() {
        let mut image = std::fs::read("/proc/self/exe").unwrap();
        let linker = check_program(&image).unwrap().interpreter;
        let headers =
            usize::try_from(u64::from_le_bytes(image[32..40].try_into().unwrap())).unwrap();
        let count = usize::from(u16::from_le_bytes([image[56], image[57]]));
        let types: Vec<_> = (0..count).map(|index| headers + 56 * index).collect();
        let is = |image: &[u8], at: usize, kind: u32| image[at..at + 4] == kind.to_le_bytes();
        let notes = object::elf::PT_GNU_STACK.0;
        let spare = *types.iter().find(|at| is(&image, **at, notes)).unwrap();
        // The second one names the end of the first one's path.
        let first = types
            .iter()
            .find(|at| is(&image, **at, object::elf::PT_INTERP.0));
        let mut second = image[*first.unwrap()..][..56].to_vec();
        second[8] += 1;
        second[32] -= 1;
        image[spare..spare + 56].copy_from_slice(&second);
        assert_eq!(check_program(&image).unwrap().interpreter, linker);

        assert!(is_for_guests(&image));
        image[16] = 4;
        assert!(!is_for_guests(&image));
    }

    #[test]
    fn what_is_no_executable_is_refused_with_what_it_is() {
        assert!(refused(b"").contains("0 bytes"));
        assert!(refused(b"GIF89a").contains("47, 49, 46, 38"));
        assert!(refused(b"#! /usr/bin/env python3\nprint()\n").contains("`/usr/bin/env python3`"));
        assert!(refused(b"\x7fELF").contains("cut off"));
        assert!(refused(&crate::INIT[..40]).contains("cut off"));
        assert!(refused(&crate::INIT[..crate::INIT.len() / 2]).contains("ends at byte"));
    }

    #[test]
    fn other_machines_and_kinds_are_refused_by_name() {
        let changed = |at: usize, value: &[u8]| {
            let mut image = crate::INIT.to_vec();
            image[at..at + value.len()].copy_from_slice(value);
            refused(&image)
        };
        assert!(changed(18, &[183, 0]).contains("AArch64"));
        assert!(changed(4, &[1]).contains("x32"));
        assert!(changed(18, &[0xab, 0xcd]).contains("machine 52651"));
        assert!(changed(16, &[1, 0]).contains("type is 1"));
        // No program headers at all.
        assert!(changed(56, &[0, 0]).contains("no segment to load"));
    }

    /// Whatever is in the file, checking it ends with an answer.
    #[test]
    fn damaged_headers_are_survived() {
        let image = std::fs::read("/proc/self/exe").unwrap();
        for at in 0..64 + 56 * 16 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = image[..8192].to_vec();
                damaged[at] = value;
                let _ = check_program(&damaged);
                let mut damaged = crate::INIT.to_vec();
                damaged[at] = value;
                let _ = check_program(&damaged);
            }
        }
    }
}
