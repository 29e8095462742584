//! Raw image files.
#![allow(unsafe_code)] // Makes the kernel copy between a file and guest memory, and lock files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use vm_memory::{GuestMemoryBackend, GuestMemoryMmap};

use super::holder::Holder;
use crate::virtio::chain::{SEGMENTS_MAX, Segment, Segments};

/// Size of a sector in bytes. Virtio gives the size of a disk, and places on it, in sectors.
pub const SECTOR_BYTES: u64 = 512;

/// Why an image file cannot be a guest's disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file does not exist, or may not be opened.
    #[error("cannot open the disk image {path}{advice}")]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Text that is added to the message and says what may help; may be empty.
        advice: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The path names something other than a file, such as a directory, device or pipe.
    #[error("{path} is not a regular file: give a file that contains a raw disk image")]
    Kind {
        /// Path of the file.
        path: PathBuf,
    },
    /// The size of the file is not a multiple of the sector size.
    #[error(
        "{path} is not a disk image: its size, {bytes} bytes, is not a multiple of {SECTOR_BYTES}"
    )]
    Size {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file in bytes.
        bytes: u64,
    },
    /// The file is empty.
    #[error(
        "{path} is empty, so it is not a disk image: `truncate -s 1G {path}` makes it a blank disk \
         of 1 GiB"
    )]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
    /// Another process, or another VM of this process, has locked the image.
    #[error("the disk image {path} is in use by {holder}: {}", holder.way_out())]
    InUse {
        /// Path of the file.
        path: PathBuf,
        /// The process that has locked the image.
        holder: Holder,
    },
    /// The file system does not support locks, or the kernel refuses one.
    #[error("cannot lock the disk image {path}")]
    Lock {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// An open raw disk image. It is locked, so that no other VM or process writes to it while it is
/// open.
#[derive(Debug)]
pub struct DiskImage {
    path: PathBuf,
    file: File,
    bytes: u64,
    read_only: bool,
}

impl DiskImage {
    /// Opens the disk image at `path` and locks it: if `read_only` is set, others may also read it,
    /// else no one else may use it. The lock ends when this value is dropped, or when the process
    /// ends in any way.
    ///
    /// # Errors
    /// [`DiskError::Open`] if the file cannot be opened, `Kind`, `Size` or `Empty` if it is not a
    /// disk image, `InUse` or `Lock` if it cannot be locked.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, DiskError> {
        let unreadable = |source| open_error(path, read_only, source);
        let file = OpenOptions::new()
            .read(true)
            .write(!read_only)
            // A pipe without a writer would keep us here.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(unreadable)?;
        Self::of(path, file, read_only)
    }

    /// Returns the disk image that is open as `file`, whose path is for messages, and locks it as
    /// [`Self::open`] does. A process that got the open file from one that has locked it has the
    /// same lock.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn of(path: &Path, file: File, read_only: bool) -> Result<Self, DiskError> {
        let metadata = file
            .metadata()
            .map_err(|source| open_error(path, read_only, source))?;
        let bytes = metadata.len();
        let path = path.to_owned();
        if !metadata.is_file() {
            return Err(DiskError::Kind { path });
        }
        if bytes == 0 {
            return Err(DiskError::Empty { path });
        }
        if !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(DiskError::Size { path, bytes });
        }
        match lock(&file, read_only) {
            Ok(()) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                let holder = Holder::of(&metadata);
                return Err(DiskError::InUse { path, holder });
            }
            Err(source) => return Err(DiskError::Lock { path, source }),
        }
        Ok(Self {
            path,
            file,
            bytes,
            read_only,
        })
    }

    /// Returns why the image at `path` cannot be opened, with the way out.
    pub fn open_error(path: &Path, read_only: bool, source: io::Error) -> DiskError {
        open_error(path, read_only, source)
    }

    /// Returns the open file, which stays locked while it is open.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Returns the path of the image file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the image in bytes, a multiple of [`SECTOR_BYTES`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the size of the image in sectors of 512 bytes.
    pub fn sectors(&self) -> u64 {
        self.bytes / SECTOR_BYTES
    }

    /// Returns whether the image was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the disk's serial number as guests see it: the first `N` printable characters of the
    /// image's file name, padded with zeros.
    pub fn id<const N: usize>(&self) -> [u8; N] {
        let mut id = [0; N];
        let name = self.path.file_name().unwrap_or_default();
        let printable = name
            .as_encoded_bytes()
            .iter()
            .filter(|b| b.is_ascii_graphic());
        for (byte, letter) in id.iter_mut().zip(printable) {
            *byte = *letter;
        }
        id
    }

    /// Reads from the image, beginning at byte `offset`, into the ranges `into` of guest memory,
    /// and fills them.
    ///
    /// # Errors
    /// The kernel's error; `UnexpectedEof` if the file has become shorter since it was opened.
    pub fn read(&self, offset: u64, into: &Segments, memory: &GuestMemoryMmap) -> io::Result<()> {
        // SAFETY: see `transfer`.
        self.transfer(offset, into, memory, |fd, vectors, count, at| unsafe {
            libc::preadv(fd, vectors, count, at)
        })
    }

    /// Writes the content of all ranges `from` of guest memory to the image, beginning at byte
    /// `offset`.
    ///
    /// # Errors
    /// The kernel's error, such as `ENOSPC` or `EIO`.
    pub fn write(&self, offset: u64, from: &Segments, memory: &GuestMemoryMmap) -> io::Result<()> {
        // SAFETY: see `transfer`.
        self.transfer(offset, from, memory, |fd, vectors, count, at| unsafe {
            libc::pwritev(fd, vectors, count, at)
        })
    }

    /// Makes all earlier writes durable, as `fdatasync` does.
    ///
    /// # Errors
    /// The kernel's error, such as `EIO`.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Gives the space of the `bytes` bytes at `offset` of the image back to the host's file
    /// system. These bytes read as zero afterwards.
    ///
    /// # Errors
    /// The kernel's error: `EOPNOTSUPP` if the file system cannot punch holes.
    pub fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.allocate(libc::FALLOC_FL_PUNCH_HOLE, offset, bytes)
    }

    /// Makes the `bytes` bytes at `offset` of the image read as zero. With `unmap`, their space may
    /// go back to the host's file system.
    ///
    /// # Errors
    /// The kernel's error, such as `ENOSPC` or `EIO`.
    pub fn zero(&self, offset: u64, bytes: u64, unmap: bool) -> io::Result<()> {
        let mode = match unmap {
            true => libc::FALLOC_FL_PUNCH_HOLE,
            false => libc::FALLOC_FL_ZERO_RANGE,
        };
        match self.allocate(mode, offset, bytes) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => self.write_zeros(offset, bytes),
            done => done,
        }
    }

    fn allocate(&self, mode: libc::c_int, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let signed = |n: u64| i64::try_from(n).map_err(io::Error::other);
        let (offset, bytes) = (signed(offset)?, signed(bytes)?);
        let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: takes numbers and a descriptor that is open.
        match unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, bytes) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn write_zeros(&self, offset: u64, bytes: u64) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let end = offset + bytes;
        for at in (offset..end).step_by(ZEROS.len()) {
            let count = (end - at).min(ZEROS.len() as u64);
            self.file.write_all_at(&ZEROS[..count as usize], at)?;
        }
        Ok(())
    }

    /// Transfers all of `segments`, by as many calls as it takes.
    ///
    /// The vectors handed to `call` point to guest memory that stays mapped while it runs. No Rust
    /// reference to it exists, and the guest may change it meanwhile: the kernel copies.
    fn transfer(
        &self,
        offset: u64,
        segments: &Segments,
        memory: &GuestMemoryMmap,
        call: impl Fn(libc::c_int, *const libc::iovec, libc::c_int, libc::off_t) -> isize,
    ) -> io::Result<()> {
        let (mut offset, mut rest) = (offset, segments.clone());
        while rest.bytes() != 0 {
            let vectors = vectors(&rest, memory)?;
            let at = libc::off_t::try_from(offset).map_err(io::Error::other)?;
            let count = libc::c_int::try_from(vectors.len()).map_err(io::Error::other)?;
            let done = call(self.file.as_raw_fd(), vectors.as_ptr(), count, at);
            let done = match u64::try_from(done) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(done) => done,
                Err(_) => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => continue,
                    e => return Err(e),
                },
            };
            offset += done;
            rest = rest.split(done).map(|(_, rest)| rest).unwrap_or_default();
        }
        Ok(())
    }
}

/// Returns guest memory as a list of vectors for `preadv` and `pwritev`.
fn vectors(segments: &Segments, memory: &GuestMemoryMmap) -> io::Result<Vec<libc::iovec>> {
    let vector = |segment: Segment| {
        let bytes = segment.bytes as usize;
        let slice = GuestMemoryBackend::get_slice(memory, segment.address, bytes)
            .map_err(io::Error::other)?;
        Ok(libc::iovec {
            iov_base: slice.ptr_guard_mut().as_ptr().cast(),
            iov_len: bytes,
        })
    };
    // Far below the kernel's limit of 1024.
    segments.iter().take(SEGMENTS_MAX).map(vector).collect()
}

fn open_error(path: &Path, read_only: bool, source: io::Error) -> DiskError {
    let advice = match source.kind() {
        io::ErrorKind::NotFound => " (it must exist: truncate -s 1G FILE makes an empty image)",
        io::ErrorKind::IsADirectory => " (give a regular file)",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if !read_only => {
            " for writing (give ,ro after its name to open it read-only)"
        }
        _ => "",
    };
    DiskError::Open {
        path: path.to_owned(),
        advice,
        source,
    }
}

/// Locks all of a file for this open description: shared for reading, exclusive for writing.
fn lock(file: &File, read_only: bool) -> io::Result<()> {
    let kind = if read_only {
        libc::F_RDLCK
    } else {
        libc::F_WRLCK
    };
    let request = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the request outlives the call, which reads it; the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
