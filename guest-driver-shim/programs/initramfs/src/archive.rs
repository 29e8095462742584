//! The archive format of initramfs: "newc" cpio
//! (Documentation/driver-api/early-userspace/buffer-format.rst of Linux).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::guest_path::GuestPath;

// Kinds of file in a mode (inode(7)).
const KIND_MASK: u32 = 0o170_000;
const KIND_DIRECTORY: u32 = 0o040_000;
const KIND_FILE: u32 = 0o100_000;
const KIND_LINK: u32 = 0o120_000;
const KIND_CHARACTER_DEVICE: u32 = 0o020_000;

/// Headers, names and contents each end at a multiple of this.
const ALIGNMENT: usize = 4;
const MAGIC: &str = "070701";
const TRAILER: &[u8] = b"TRAILER!!!";
const RIGHTS_OF_FOLDERS: u32 = 0o755;

/// Why a file cannot be added to an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// The archive has a file at this path already.
    #[error("{path} is already in the guest: give each file another path")]
    Duplicate {
        /// Path in the guest.
        path: GuestPath,
    },
    /// The path is a folder, or a folder on the way to it is a file.
    #[error(
        "{path} would be both a file and a folder in the guest, or lie below a path that is a \
         file: choose another path"
    )]
    NotFolder {
        /// Path in the guest.
        path: GuestPath,
    },
    /// The file is too large for the format.
    #[error("{path} has {bytes} bytes: a file in an initramfs must be smaller than 4 GiB")]
    Large {
        /// Path in the guest.
        path: GuestPath,
        /// Size of the file in bytes.
        bytes: usize,
    },
}

/// Files, folders, links and devices of an initramfs. They are written in the order of their paths.
#[derive(Clone, Debug, Default)]
pub struct Archive<'a> {
    entries: BTreeMap<Vec<u8>, Entry<'a>>,
}

#[derive(Clone, Debug, Default)]
struct Entry<'a> {
    mode: u32,
    device: (u32, u32),
    content: Cow<'a, [u8]>,
}

impl Entry<'_> {
    fn is_folder(&self) -> bool {
        self.mode & KIND_MASK == KIND_DIRECTORY
    }
}

impl<'a> Archive<'a> {
    /// Returns an archive without files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a regular file with the mode bits `rights`, and the folders that it lies in.
    ///
    /// # Errors
    /// [`ArchiveError::Duplicate`] if a file, link or device already has this path; `NotFolder` if
    /// a folder has it, or if one of the folders above it is already something else; `Large` if
    /// `content` has 4 GiB or more.
    pub fn file(
        &mut self,
        path: &GuestPath,
        rights: u32,
        content: impl Into<Cow<'a, [u8]>>,
    ) -> Result<(), ArchiveError> {
        let content = content.into();
        let bytes = content.len();
        if u32::try_from(bytes).is_err() {
            let path = path.clone();
            return Err(ArchiveError::Large { path, bytes });
        }
        self.insert(path, KIND_FILE | rights & 0o7777, (0, 0), content)
    }

    /// Adds a symbolic link to the absolute path `target`, and the folders that the link lies in.
    ///
    /// # Errors
    /// [`ArchiveError::Duplicate`] if a file, link or device already has this path; `NotFolder` if
    /// a folder has it, or if one of the folders above it is already something else.
    pub fn link(&mut self, path: &GuestPath, target: &GuestPath) -> Result<(), ArchiveError> {
        let target = [b"/", target.archived()].concat();
        self.insert(path, KIND_LINK | 0o777, (0, 0), target.into())
    }

    /// Adds a character device with the mode bits `rights` and the device number `major`:`minor`,
    /// and the folders that it lies in.
    ///
    /// # Errors
    /// [`ArchiveError::Duplicate`] if a file, link or device already has this path; `NotFolder` if
    /// a folder has it, or if one of the folders above it is already something else.
    pub fn character_device(
        &mut self,
        path: &GuestPath,
        rights: u32,
        major: u32,
        minor: u32,
    ) -> Result<(), ArchiveError> {
        let mode = KIND_CHARACTER_DEVICE | rights & 0o7777;
        self.insert(path, mode, (major, minor), Cow::default())
    }

    /// Adds a folder with the mode bits `rights`, and the folders that it lies in. If the folder
    /// already exists, only its mode bits change.
    ///
    /// # Errors
    /// [`ArchiveError::NotFolder`] if the path, or one of the folders above it, is already taken by
    /// something other than a folder.
    pub fn folder(&mut self, path: &GuestPath, rights: u32) -> Result<(), ArchiveError> {
        self.make_folders(path.folders().chain([path.archived()]), path)?;
        if let Some(entry) = self.entries.get_mut(path.archived()) {
            entry.mode = KIND_DIRECTORY | rights & 0o7777;
        }
        Ok(())
    }

    /// Returns whether the archive has a file, link, device or folder at this path.
    #[must_use]
    pub fn has(&self, path: &GuestPath) -> bool {
        self.entries.contains_key(path.archived())
    }

    /// Makes those of the folders that are missing. `path` is what they are wanted for.
    fn make_folders<'p>(
        &mut self,
        folders: impl Iterator<Item = &'p [u8]>,
        path: &GuestPath,
    ) -> Result<(), ArchiveError> {
        for folder in folders {
            let entry = self
                .entries
                .entry(folder.to_vec())
                .or_insert_with(|| Entry {
                    mode: KIND_DIRECTORY | RIGHTS_OF_FOLDERS,
                    ..Entry::default()
                });
            if !entry.is_folder() {
                return Err(ArchiveError::NotFolder { path: path.clone() });
            }
        }
        Ok(())
    }

    fn insert(
        &mut self,
        path: &GuestPath,
        mode: u32,
        device: (u32, u32),
        content: Cow<'a, [u8]>,
    ) -> Result<(), ArchiveError> {
        match self.entries.get(path.archived()) {
            Some(entry) if entry.is_folder() => {
                return Err(ArchiveError::NotFolder { path: path.clone() });
            }
            Some(_) => return Err(ArchiveError::Duplicate { path: path.clone() }),
            None => {}
        }
        self.make_folders(path.folders(), path)?;
        let entry = Entry {
            mode,
            device,
            content,
        };
        self.entries.insert(path.archived().to_vec(), entry);
        Ok(())
    }

    /// Returns the size in bytes of what [`Self::write`] writes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let entries = self.entries.iter();
        let sizes = entries.map(|(path, entry)| entry_bytes(path.len(), entry.content.len()));
        sizes.sum::<u64>() + entry_bytes(TRAILER.len(), 0)
    }

    /// Returns the archive in the format that the kernel reads.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.bytes()).unwrap_or(0));
        // A vector takes whatever is written to it.
        let _ = self.write(&mut bytes);
        bytes
    }

    /// Writes the archive to `out` in the format that the kernel reads.
    ///
    /// # Errors
    /// The error of `out`, if it cannot be written to.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        // Two files with one inode would be two names of one file.
        for (inode, (path, entry)) in (1..).zip(&self.entries) {
            write_entry(&mut out, inode, path, entry)?;
        }
        write_entry(&mut out, 0, TRAILER, &Entry::default())
    }
}

/// Header: the magic number, and 13 numbers of 8 hexadecimal digits.
const HEADER_BYTES: usize = 6 + 13 * 8;

fn entry_bytes(name: usize, content: usize) -> u64 {
    ((HEADER_BYTES + name + 1).next_multiple_of(ALIGNMENT) + content.next_multiple_of(ALIGNMENT))
        as u64
}

fn write_entry(out: &mut impl Write, inode: u32, path: &[u8], entry: &Entry) -> io::Result<()> {
    let name_bytes = path.len() + 1;
    let links = if entry.is_folder() { 2 } else { 1 };
    let number = |bytes: usize| u32::try_from(bytes).map_err(io::Error::other);
    let fields = [
        inode,
        entry.mode,
        0, // user
        0, // group
        links,
        0, // time of the last change
        number(entry.content.len())?,
        0, // device that the file was on: major,
        0, // and minor
        entry.device.0,
        entry.device.1,
        number(name_bytes)?,
        0, // checksum, unused
    ];
    out.write_all(MAGIC.as_bytes())?;
    for field in fields {
        write!(out, "{field:08x}")?;
    }
    out.write_all(path)?;
    out.write_all(padded(&[0], HEADER_BYTES + name_bytes))?;
    out.write_all(&entry.content)?;
    out.write_all(padded(&[], entry.content.len()))
}

/// `end` and as many zeros as make a multiple of [`ALIGNMENT`] of `bytes`.
fn padded(end: &'static [u8], bytes: usize) -> &'static [u8] {
    let zeros = bytes.next_multiple_of(ALIGNMENT) - bytes;
    &[0; 2 * ALIGNMENT][..end.len() + zeros]
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
