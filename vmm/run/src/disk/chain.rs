//! The files of a disk in QEMU's format qcow2: an image, its backing file, that one's, and so on.
//!
//! Headers are read here so that nobody guesses what a file contains, and so that the process that
//! serves the disk can be confined to its files. The format is that of QEMU's documentation,
//! `docs/interop/qcow2.rst`.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use causeway_terminal::shown_path;
use causeway_vmm::virtio::{DiskError, DiskImage};
use rustix::fs::OFlags;

/// First bytes of an image in this format.
pub const MAGIC: &[u8; 4] = b"QFI\xfb";
/// Most backing files of a disk.
const BACKING_MAX: usize = 16;
/// Most bytes of the name of a backing file, and of that of its format (QEMU's limits).
const NAME_BYTES_MAX: usize = 1023;
const FORMAT_BYTES_MAX: usize = 15;
/// Bytes of a header of version 2; those of version 3 say how many they have.
const HEADER_BYTES: usize = 72;
/// Sizes of clusters, as powers of two (QEMU's limits). The first cluster contains the header and
/// all that belongs to it.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// The extension of a header that names the format of the backing file.
const BACKING_FORMAT: u32 = 0xe279_2aca;
/// Feature of images whose data is in another file.
const EXTERNAL_DATA: u64 = 1 << 2;

/// A file of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// Its path, absolute and without links.
    pub path: PathBuf,
    /// It is in format qcow2, not raw.
    pub is_qcow2: bool,
}

/// Why an image in format qcow2 cannot be a guest's disk.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A file cannot be opened.
    #[error(transparent)]
    File(#[from] DiskError),
    /// A file is in another format, or damaged.
    #[error(
        "{} is not an image in format qcow2 ({what}): `qemu-img check` may say more",
        shown_path(path)
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A file needs what disks of guests cannot have.
    #[error(
        "{} {what}: `qemu-img convert -O qcow2` makes an image of it that can be used",
        shown_path(path)
    )]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it needs.
        what: &'static str,
    },
    /// The image has a backing file, and `,backing` was not given.
    #[error(
        "{} has the backing file {}, which the guest could read: if you trust the image to name \
         it, add ,backing",
        shown_path(path),
        shown_path(backing)
    )]
    Backed {
        /// The image.
        path: PathBuf,
        /// The backing file, as the image names it.
        backing: PathBuf,
    },
    /// The format of a backing file is not stated.
    #[error(
        "{0} does not say which format its backing file {1} has: `qemu-img rebase -u -b {1} -F \
         FORMAT {0}` states it, where FORMAT is raw or qcow2",
        shown_path(path),
        shown_path(backing)
    )]
    Unstated {
        /// The image.
        path: PathBuf,
        /// The backing file, as the image names it.
        backing: PathBuf,
    },
    /// The format of a backing file is neither raw nor qcow2.
    #[error(
        "{} has a backing file in format `{format}`: `qemu-img convert -O qcow2` makes one image \
         of both",
        shown_path(path)
    )]
    Format {
        /// The image.
        path: PathBuf,
        /// The stated format.
        format: String,
    },
    /// The path cannot be given to the process that serves the disk.
    #[error("the path {} is not UTF-8: give a disk image another name", shown_path(.0))]
    Name(PathBuf),
    /// There are too many files.
    #[error(
        "{} has more than {BACKING_MAX} backing files: `qemu-img convert` makes one image of them",
        shown_path(.0)
    )]
    Deep(PathBuf),
}

/// Returns the files of the disk that the image at `path` is, that image first.
///
/// # Errors
/// [`ChainError`].
pub fn files(
    path: &Path,
    read_only: bool,
    may_have_backing: bool,
) -> Result<Vec<ImageFile>, ChainError> {
    let mut files: Vec<ImageFile> = Vec::new();
    let mut next = Some((path.to_owned(), true));
    while let Some((path, is_qcow2)) = next.take() {
        if files.len() > BACKING_MAX {
            return Err(ChainError::Deep(files.swap_remove(0).path));
        }
        let read_only = read_only || !files.is_empty();
        let (file, real) = open(&path, read_only)?;
        let found = if is_qcow2 {
            backing_file(file, &real)?
        } else {
            None
        };
        match found {
            Some((backing, _)) if !may_have_backing => {
                return Err(ChainError::Backed { path, backing });
            }
            // As QEMU has it: beside the name of the image, which may be a link.
            Some((name, is_qcow2)) => next = Some((path.with_file_name(name), is_qcow2)),
            None => {}
        }
        let path = real;
        files.push(ImageFile { path, is_qcow2 });
    }
    Ok(files)
}

/// Returns whether a file begins as an image in this format does. What cannot be read does not.
pub fn begins_as_qcow2(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let opened = open(path, true).ok();
    let read = opened.and_then(|(file, _)| file.take(4).read_to_end(&mut beginning).ok());
    read.is_some() && beginning == MAGIC
}

/// Opens a file of a disk, and returns its path without links.
fn open(path: &Path, read_only: bool) -> Result<(File, PathBuf), ChainError> {
    let unreadable = |source| DiskImage::open_error(path, read_only, source);
    let file = OpenOptions::new()
        .read(true)
        .write(!read_only)
        // A pipe without a writer would keep us here.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        let path = path.to_owned();
        return Err(DiskError::Kind { path }.into());
    }
    let path = path.canonicalize().map_err(unreadable)?;
    match path.to_str() {
        Some(_) => Ok((file, path)),
        None => Err(ChainError::Name(path)),
    }
}

/// Returns the name of an image's backing file, and whether that is in format qcow2.
fn backing_file(file: File, path: &Path) -> Result<Option<(PathBuf, bool)>, ChainError> {
    let malformed = |what| ChainError::Malformed {
        path: path.to_owned(),
        what,
    };
    let header = Header::read(file).map_err(|source| DiskImage::open_error(path, true, source))?;
    let found = header.check().map_err(malformed)?;
    if let Some(what) = header.unsupported() {
        let path = path.to_owned();
        return Err(ChainError::Unsupported { path, what });
    }
    let Some(name) = found.backing else {
        return Ok(None);
    };
    let (path, backing) = (path.to_owned(), PathBuf::from(OsStr::from_bytes(name)));
    match found.format {
        b"qcow2" => Ok(Some((backing, true))),
        b"raw" => Ok(Some((backing, false))),
        b"" => Err(ChainError::Unstated { path, backing }),
        other => {
            let format = String::from_utf8_lossy(other).into_owned();
            Err(ChainError::Format { path, format })
        }
    }
}

/// The first cluster of an image, or less if the file ends before.
struct Header(Vec<u8>);

/// What a header says of a backing file.
struct Backing<'a> {
    backing: Option<&'a [u8]>,
    format: &'a [u8],
}

impl Header {
    fn read(file: File) -> io::Result<Self> {
        let mut bytes = Vec::new();
        file.take(1 << CLUSTER_BITS.end()).read_to_end(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Returns the 32-bit number at `at`; 0 behind the end.
    fn u32(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    /// Checks the header as far as it says which files there are.
    fn check(&self) -> Result<Backing<'_>, &'static str> {
        if !self.0.starts_with(MAGIC) {
            return Err("it does not begin with QFI\\xfb");
        }
        let bytes = match self.u32(4) {
            2 => HEADER_BYTES,
            3 => self.u32(100) as usize,
            _ => return Err("its version is neither 2 nor 3"),
        };
        let bits = self.u32(20);
        if !CLUSTER_BITS.contains(&bits) {
            return Err("its clusters have no valid size");
        }
        // What lies behind the first cluster is content, which a guest can write.
        let first = &self.0[..self.0.len().min(1 << bits)];
        let (name_at, name_bytes) = (self.u64(8), self.u32(16) as usize);
        let name_at = usize::try_from(name_at).map_err(|_| "its backing file has no name")?;
        let end = if name_at == 0 { first.len() } else { name_at };
        let extensions = first.get(bytes..end).filter(|_| bytes >= HEADER_BYTES);
        let extensions = extensions.ok_or("its header does not fit its first cluster")?;
        let format = backing_format(extensions).ok_or("its header's extensions do not end")?;
        let backing = match name_at {
            _ if name_bytes == 0 => None,
            0 => None,
            at => {
                let name = first[at..].get(..name_bytes);
                let is_name = |name: &&[u8]| name.len() <= NAME_BYTES_MAX && !name.contains(&0);
                Some(name.filter(is_name).ok_or("its backing file has no name")?)
            }
        };
        Ok(Backing { backing, format })
    }

    /// Returns what the image needs that disks of guests cannot have.
    fn unsupported(&self) -> Option<&'static str> {
        if self.u32(32) != 0 {
            return Some("is encrypted");
        }
        let features = if self.u32(4) < 3 { 0 } else { self.u64(72) };
        (features & EXTERNAL_DATA != 0).then_some("has its data in another file")
    }
}

/// Returns the format of the backing file in a header's extensions; empty without one. `None` if
/// one is longer than there is room.
fn backing_format(mut rest: &[u8]) -> Option<&[u8]> {
    let mut format: &[u8] = &[];
    while !rest.is_empty() {
        let (kind, behind) = rest.split_first_chunk()?;
        let (length, behind) = behind.split_first_chunk()?;
        let length = u32::from_be_bytes(*length) as usize;
        match u32::from_be_bytes(*kind) {
            0 => return Some(format),
            BACKING_FORMAT if length > FORMAT_BYTES_MAX => return None,
            BACKING_FORMAT => format = behind.get(..length)?,
            _ => {}
        }
        rest = behind.get(length.checked_next_multiple_of(8)?..)?;
    }
    Some(format)
}

#[cfg(test)]
pub(super) mod tests;
