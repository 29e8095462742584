//! Memory of the command that only its start needs: code, constants, and a heap that is free again.
//!
//! Linux maps 64 KiB around each page of a program that a process touches, so that after a start
//! nearly all of the command's file is mapped: the parser of its options, the loader of guests, the
//! messages of errors. The process gives these pages back once. What it still needs comes back from
//! the page cache, a few pages at a time.
#![allow(unsafe_code)] // The system call has no safe form.

use std::fs;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Gives the free part of the heap back to Linux, and unmaps the code and the constants of the
/// program and of its libraries from this process. Accesses map them again, from the page cache.
/// The call changes only how much memory the process has in use; it leaves the code mapped if
/// `/proc/self/maps` cannot be read.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function has no arguments that could be wrong, and takes the allocator's locks.
    unsafe {
        libc::malloc_trim(0);
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for range in ranges(&maps) {
        let bytes = range.end - range.start;
        // SAFETY: the kernel has listed the range as a private mapping of a file that this process
        // cannot write, below the code of the same file: nothing was relocated there, so that each
        // page equals the file's. Callers may not have written to code, as debuggers do.
        let given = unsafe { madvise(range.start as *mut _, bytes, Advice::LinuxDontNeed) };
        if let Err(error) = given {
            log::debug!("cannot give back the pages at {:#x}: {error}", range.start);
        }
    }
}

/// One line of `/proc/PID/maps` (proc_pid_maps(5)).
struct Mapping<'a> {
    range: Range<usize>,
    permissions: &'a str,
    inode: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(Self {
            range: address(begin)?..address(end)?,
            permissions: fields.next()?,
            inode: fields.nth(2)?,
        })
    }

    fn is_code(&self) -> bool {
        self.inode != "0" && self.permissions == "r-xp"
    }

    /// Returns whether this is a constant part of the file whose code is `code`, in front of it.
    /// Behind the code is what the dynamic linker has relocated, which is not as in the file.
    fn is_constant_before(&self, code: &Self) -> bool {
        self.permissions == "r--p" && self.inode == code.inode && self.range.end <= code.range.start
    }
}

/// Returns the ranges of code, and of constants in front of the code of their file.
fn ranges(maps: &str) -> Vec<Range<usize>> {
    let mappings: Vec<_> = maps.lines().filter_map(Mapping::parse).collect();
    let is_clean = |mapping: &Mapping<'_>| {
        let codes = mappings.iter().filter(|other| other.is_code());
        mapping.is_code()
            || codes
                .into_iter()
                .any(|code| mapping.is_constant_before(code))
    };
    let clean = mappings.iter().filter(|mapping| is_clean(mapping));
    clean.map(|mapping| mapping.range.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_the_constants_before_it_are_given_back_and_nothing_relocated() {
        let maps = "\
1000-2000 r--p 00000000 fe:00 77 /bin/causeway
2000-4000 r-xp 00001000 fe:00 77 /bin/causeway
4000-5000 r--p 00003000 fe:00 77 /bin/causeway
5000-6000 rw-p 00004000 fe:00 77 /bin/causeway
6000-7000 rw-p 00000000 00:00 0 [heap]
7000-8000 r--p 00000000 fe:00 78 /usr/lib/locale/C.utf8
8000-9000 rw-s 00000000 00:01 79 /memfd:ram (deleted)
9000-a000 r-xp 00000000 00:00 0 [vdso]
b000-c000 r-xp 00000000 fe:00 80 /lib/libc.so.6 (deleted)
";
        assert_eq!(
            ranges(maps),
            [0x1000..0x2000, 0x2000..0x4000, 0xb000..0xc000]
        );
    }

    #[test]
    fn a_process_goes_on_after_giving_its_pages_back() {
        let text = || format!("{:?}", [1.5_f64, 2.5]);
        let before = text();
        give_back();
        assert_eq!(text(), before);
    }
}
