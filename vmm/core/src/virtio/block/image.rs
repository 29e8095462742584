//! Raw image files.
#![allow(unsafe_code)] // Makes the kernel copy between a file and guest memory, and lock files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use vm_memory::{GuestMemoryBackend, GuestMemoryMmap};

use super::SECTOR_BYTES;
use super::holder::Holder;
use crate::virtio::chain::{SEGMENTS_MAX, Segment, Segments};

/// Why an image cannot be a disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// It is not there, or not for us.
    #[error("cannot open the disk image {path}{advice}")]
    Open {
        /// Its path.
        path: PathBuf,
        /// What may help, or nothing.
        advice: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A directory, a device, a pipe.
    #[error("{path} is no disk image: give a regular file")]
    Kind {
        /// Its path.
        path: PathBuf,
    },
    /// No whole sectors.
    #[error("{path} is no disk image: its {bytes} bytes are no multiple of {SECTOR_BYTES}")]
    Size {
        /// Its path.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Nothing in it.
    #[error("{path} is no disk image: it is empty; truncate -s 1G {path} makes one of 1 GiB")]
    Empty {
        /// Its path.
        path: PathBuf,
    },
    /// Somebody has it.
    #[error("the disk image {path} is in use by {holder}: {}", holder.way_out())]
    InUse {
        /// Its path.
        path: PathBuf,
        /// Who.
        holder: Holder,
    },
    /// No locks.
    #[error("cannot lock the disk image {path}")]
    Lock {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// An open image, locked against those who would write to it behind our back.
#[derive(Debug)]
pub struct DiskImage {
    path: PathBuf,
    file: File,
    bytes: u64,
    read_only: bool,
}

impl DiskImage {
    /// Opens and locks an image: for reading by many, or for writing by one. The lock ends with the
    /// process, however that ends.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn open(path: &Path, read_only: bool) -> Result<Self, DiskError> {
        let owned = || path.to_owned();
        let file = OpenOptions::new()
            .read(true)
            .write(!read_only)
            // A pipe without a writer would keep us here.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(|source| open_error(path, read_only, source))?;
        let unreadable = |source| open_error(path, read_only, source);
        let metadata = file.metadata().map_err(unreadable)?;
        let bytes = metadata.len();
        if !metadata.is_file() {
            return Err(DiskError::Kind { path: owned() });
        }
        if bytes == 0 {
            return Err(DiskError::Empty { path: owned() });
        }
        if !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(DiskError::Size {
                path: owned(),
                bytes,
            });
        }
        match lock(&file, read_only) {
            Ok(()) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                let holder = Holder::of(&metadata);
                return Err(DiskError::InUse {
                    path: owned(),
                    holder,
                });
            }
            Err(source) => {
                return Err(DiskError::Lock {
                    path: owned(),
                    source,
                });
            }
        }
        Ok(Self {
            path: owned(),
            file,
            bytes,
            read_only,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size in bytes, a multiple of [`SECTOR_BYTES`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.bytes / SECTOR_BYTES
    }

    /// Whether it cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Its file name as far as it is printable and fits, padded with zeros: a guest shows it as the
    /// disk's serial number.
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

    /// Reads at `offset` into guest memory.
    ///
    /// # Errors
    /// What the kernel said; `UnexpectedEof` for an image that was cut off meanwhile.
    pub fn read(&self, offset: u64, into: &Segments, memory: &GuestMemoryMmap) -> io::Result<()> {
        // SAFETY: see `transfer`.
        self.transfer(offset, into, memory, |fd, vectors, count, at| unsafe {
            libc::preadv(fd, vectors, count, at)
        })
    }

    /// Writes guest memory at `offset`.
    ///
    /// # Errors
    /// What the kernel said: `ENOSPC`, `EIO`.
    pub fn write(&self, offset: u64, from: &Segments, memory: &GuestMemoryMmap) -> io::Result<()> {
        // SAFETY: see `transfer`.
        self.transfer(offset, from, memory, |fd, vectors, count, at| unsafe {
            libc::pwritev(fd, vectors, count, at)
        })
    }

    /// Flushes what was written to the disk, with as much of the file's attributes as reading it
    /// back takes.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Gives the space of a range back, if the file system can. What it reads as then is zero.
    ///
    /// # Errors
    /// What the kernel said: `EOPNOTSUPP` if it cannot.
    pub fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.allocate(libc::FALLOC_FL_PUNCH_HOLE, offset, bytes)
    }

    /// Makes a range read as zero. With `unmap`, its space may be given back.
    ///
    /// # Errors
    /// What the kernel said.
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
            let vectors = Vectors::of(&rest, memory)?;
            let at = libc::off_t::try_from(offset).map_err(io::Error::other)?;
            let count = libc::c_int::try_from(vectors.list.len()).map_err(io::Error::other)?;
            let done = call(self.file.as_raw_fd(), vectors.list.as_ptr(), count, at);
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

/// Guest memory as the kernel wants to have it named.
struct Vectors {
    list: Vec<libc::iovec>,
}

impl Vectors {
    fn of(segments: &Segments, memory: &GuestMemoryMmap) -> io::Result<Self> {
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
        let list: io::Result<_> = segments.iter().take(SEGMENTS_MAX).map(vector).collect();
        Ok(Self { list: list? })
    }
}

fn open_error(path: &Path, read_only: bool, source: io::Error) -> DiskError {
    let advice = match source.kind() {
        io::ErrorKind::NotFound => " (it must exist: truncate -s 1G FILE makes an empty one)",
        io::ErrorKind::IsADirectory => " (give a regular file)",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if !read_only => {
            " for writing (with ,ro behind its name it is only read)"
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
