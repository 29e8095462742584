//! Which kind of kernel a file is, and whether it can boot here.
//!
//! Offsets and bits of a bzImage's header are those of Documentation/arch/x86/boot.rst in Linux.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use linux_loader::loader::bootparam::setup_header;
use vm_memory::ByteValued;

use super::elf::{self, FileSegment};
use super::payload::{self, Payload};
use super::placement::{self, PlacementError};
use crate::loader::{self, LoadError};

/// Where a bzImage's header begins.
const OFFSET_HEADER: usize = 0x1f1;
const OFFSET_MAGIC: usize = 0x202;
/// The header ends as many bytes behind the magic number as the byte before that says.
const OFFSET_HEADER_BYTES: usize = 0x201;

const MAGIC: &[u8] = b"HdrS";
/// First protocol version that says whether the kernel has a 64-bit entry point.
const VERSION_MIN: u16 = 0x020c;
const LOADED_HIGH: u8 = 1 << 0;
const KERNEL_64: u16 = 1 << 0;
const SECTOR_BYTES: usize = 512;
/// Sectors of real-mode code if the header says none.
const SETUP_SECTORS_DEFAULT: u8 = 4;
/// Offset of the 64-bit entry point in the protected-mode kernel.
const ENTRY_64: u64 = 0x200;
/// Highest address of an initramfs, as far as a kernel is concerned that does not say: below 4 GiB.
const INITRAMFS_MAX_DEFAULT: u64 = u32::MAX as u64;
/// Longest command line of a kernel that does not say (`COMMAND_LINE_SIZE` in
/// arch/x86/include/asm/setup.h, less the terminator).
const COMMAND_LINE_BYTES_DEFAULT: u32 = 2047;

/// Magic number of an arm64 `Image`, and where it is (Documentation/arch/arm64/booting.rst).
const ARM64_MAGIC: (usize, &[u8]) = (0x38, b"ARM\x64");
/// Magic number of a RISC-V `Image`, and its offset.
const RISCV_MAGIC: (usize, &[u8]) = (0x38, b"RSC\x05");

/// How a kernel is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootProtocol {
    /// A bzImage, which decompresses itself, at its 64-bit entry point.
    BzImage,
    /// An ELF kernel at its 64-bit entry point, with Linux's boot parameters.
    Linux64,
    /// An ELF kernel by the PVH protocol.
    Pvh,
}

impl fmt::Display for BootProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BzImage => "bzImage",
            Self::Linux64 => "linux64",
            Self::Pvh => "pvh",
        })
    }
}

/// How files begin that are often taken for kernels, and what to do about them.
const COMPRESSED: &[(&[u8], &str)] = &[
    (b"\x1f\x8b", "gunzip"),
    (b"\xfd7zXZ", "unxz"),
    (b"\x28\xb5\x2f\xfd", "unzstd"),
    (b"BZh", "bunzip2"),
];

/// Why a file is no kernel that can boot here.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// Compressed as a whole.
    #[error("the file is compressed as a whole: decompress it first with {tool}")]
    Compressed {
        /// The tool that decompresses it.
        tool: &'static str,
    },
    /// Something else.
    #[error(
        "the file is neither a Linux kernel (bzImage) nor an ELF image: it has {bytes} bytes and begins with {head:02x?}"
    )]
    Unknown {
        /// Size of the file.
        bytes: usize,
        /// First bytes.
        head: Vec<u8>,
    },
    /// ELF, but not for us.
    #[error(transparent)]
    Elf(#[from] LoadError),
    /// A kernel for another processor.
    #[error("the kernel is for {architecture}: only x86-64 kernels boot here")]
    Architecture {
        /// Which processor.
        architecture: &'static str,
    },
    /// The protocol is too old.
    #[error(
        "boot protocol {}.{:02} is too old: give a kernel of Linux 3.8 (2.12) or later",
        version >> 8, version & 0xff
    )]
    Version {
        /// Version, major in the upper byte.
        version: u16,
    },
    /// No 64-bit entry point.
    #[error("this bzImage has no 64-bit entry point: only x86-64 kernels boot here")]
    Not64Bit,
    /// Parts of the file are missing.
    #[error(
        "the kernel is truncated: {what} ends at byte {end}, but the file at {bytes}; download it again"
    )]
    Truncated {
        /// Which part.
        what: &'static str,
        /// Where it should end.
        end: u64,
        /// Size of the file.
        bytes: u64,
    },
    /// The compressed kernel in a bzImage is damaged.
    #[error("cannot decompress the kernel")]
    Payload(#[from] payload::PayloadError),
    /// The protocol that was asked for is not the kernel's.
    #[error(
        "this kernel cannot be booted as {wanted}: {why}; without --boot, the command chooses the protocol"
    )]
    Protocol {
        /// Protocol.
        wanted: BootProtocol,
        /// The reason.
        why: &'static str,
    },
}

/// The part of a kernel's file that goes into memory.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// An ELF file, or a whole bzImage: linux-loader knows.
    File,
    /// Segments of the ELF file that is compressed in this range of a bzImage.
    Payload {
        range: Range<usize>,
        segments: Vec<FileSegment>,
    },
}

/// A kernel that was recognized, and what is needed to load it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The file.
    pub(super) image: Arc<[u8]>,
    /// Where the file has what goes into memory.
    pub(super) content: Content,
    /// How it is entered.
    pub(super) protocol: BootProtocol,
    /// Where: physical.
    pub(super) entry: u64,
    /// Guest-physical addresses that it needs until it manages memory itself.
    pub(super) range: Range<u64>,
    /// Highest address of the last byte of an initramfs.
    pub(super) initramfs_max: u64,
    /// Longest command line in bytes, without its terminator.
    pub(super) command_line_bytes: u32,
    /// Header of a bzImage, from `setup_sects` on.
    pub(super) header: Option<setup_header>,
}

impl Kernel {
    /// Recognizes a kernel. `None` if the file is an ELF image that does not say that it is one: a
    /// bare guest, or nothing that can run.
    ///
    /// A kernel is booted as it is best: a bzImage whose payload can be decompressed here at the
    /// 64-bit entry point of what it contains, which saves the guest the work; ELF by PVH. `wanted`
    /// overrides that.
    ///
    /// # Errors
    /// [`KernelError`], by what is wrong with the file, or `Protocol` if the kernel cannot be
    /// entered by the `wanted` protocol.
    pub fn recognize(
        image: Arc<[u8]>,
        wanted: Option<BootProtocol>,
    ) -> Result<Option<Self>, KernelError> {
        for ((offset, magic), architecture) in [(ARM64_MAGIC, "arm64"), (RISCV_MAGIC, "RISC-V")] {
            if image.get(offset..offset + magic.len()) == Some(magic) {
                return Err(KernelError::Architecture { architecture });
            }
        }
        if image.get(OFFSET_MAGIC..OFFSET_MAGIC + MAGIC.len()) == Some(MAGIC) {
            return Self::bzimage(image, wanted).map(Some);
        }
        if !image.starts_with(b"\x7fELF") {
            return Err(unknown(&image));
        }
        Self::elf(image, wanted)
    }

    /// Returns the protocol by which the kernel is entered.
    pub fn protocol(&self) -> BootProtocol {
        self.protocol
    }

    /// Checks that the kernel takes a command line.
    ///
    /// # Errors
    /// [`PlacementError::CommandLine`], [`PlacementError::ZeroByte`].
    pub fn check_command_line(&self, text: &str) -> Result<(), PlacementError> {
        placement::command_line(self, text).map(drop)
    }

    fn elf(image: Arc<[u8]>, wanted: Option<BootProtocol>) -> Result<Option<Self>, KernelError> {
        if let Err(e @ (LoadError::Class { .. } | LoadError::Machine { .. })) =
            loader::header(&image)
        {
            // Whatever it is meant to be.
            return Err(e.into());
        }
        let elf = match elf::inspect(&image, image.len() as u64) {
            Ok(elf) => elf,
            // The loader of bare guests says what is wrong, in the terms of bare guests.
            Err(_) if wanted.is_none() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let (protocol, entry) = match (wanted, elf.pvh_entry) {
            (None, None) => return Ok(None),
            (None | Some(BootProtocol::Pvh), Some(entry)) => (BootProtocol::Pvh, entry.into()),
            (Some(BootProtocol::Linux64), _) => (BootProtocol::Linux64, elf.entry),
            (Some(wanted), _) => {
                let why = match wanted {
                    BootProtocol::Pvh => "it is an ELF image without PVH's note",
                    _ => "it is an ELF image",
                };
                return Err(KernelError::Protocol { wanted, why });
            }
        };
        Ok(Some(Self {
            image,
            content: Content::File,
            protocol,
            entry,
            range: elf.range,
            initramfs_max: INITRAMFS_MAX_DEFAULT,
            command_line_bytes: COMMAND_LINE_BYTES_DEFAULT,
            header: None,
        }))
    }

    fn bzimage(image: Arc<[u8]>, wanted: Option<BootProtocol>) -> Result<Self, KernelError> {
        let file = BzImage::check(&image)?;
        let known = payload::is_known(file.payload(&image));
        let refused = |wanted, why| Err(KernelError::Protocol { wanted, why });
        match wanted {
            None | Some(BootProtocol::Linux64) if known => {}
            None | Some(BootProtocol::BzImage) => return Ok(file.as_it_is(image)),
            Some(wanted @ BootProtocol::Pvh) => return refused(wanted, "PVH is for ELF images"),
            Some(wanted @ BootProtocol::Linux64) => {
                let why = "only the kernel itself can decompress its payload";
                return refused(wanted, why);
            }
        }
        let payload = Payload::new(file.payload(&image))?;
        let elf = elf::inspect(&payload.head()?, payload.bytes() as u64)?;
        Ok(Self {
            content: Content::Payload {
                range: file.payload.clone(),
                segments: elf.segments,
            },
            protocol: BootProtocol::Linux64,
            entry: elf.entry,
            range: elf.range,
            ..file.as_it_is(image)
        })
    }
}

/// Returns the error for a file that is neither a bzImage nor ELF.
fn unknown(image: &[u8]) -> KernelError {
    if image.is_empty() {
        return KernelError::Empty;
    }
    let mut kinds = COMPRESSED.iter();
    match kinds.find(|(magic, _)| image.starts_with(magic)) {
        Some((_, tool)) => KernelError::Compressed { tool },
        None => KernelError::Unknown {
            bytes: image.len(),
            head: image.iter().copied().take(4).collect(),
        },
    }
}

/// The parts of a bzImage that matter here, checked to be there.
struct BzImage {
    header: setup_header,
    payload: Range<usize>,
    preferred: u64,
    init_bytes: u64,
    initramfs_max: u64,
    command_line_bytes: u32,
}

impl BzImage {
    fn check(image: &[u8]) -> Result<Self, KernelError> {
        let bytes = image.len() as u64;
        let truncated = |what, end| KernelError::Truncated { what, end, bytes };
        let header = read_header(image)
            .ok_or_else(|| truncated("the setup header", 2 * SECTOR_BYTES as u64))?;
        let version = header.version;
        if version < VERSION_MIN {
            return Err(KernelError::Version { version });
        }
        if header.xloadflags & KERNEL_64 == 0 || header.loadflags & LOADED_HIGH == 0 {
            return Err(KernelError::Not64Bit);
        }
        let sectors = match header.setup_sects {
            0 => SETUP_SECTORS_DEFAULT,
            sectors => sectors,
        };
        let system = (usize::from(sectors) + 1) * SECTOR_BYTES;
        let system_end = system as u64 + u64::from(header.syssize) * 16;
        if system_end > bytes {
            return Err(truncated("the protected-mode kernel", system_end));
        }
        let payload_at = system as u64 + u64::from(header.payload_offset);
        let payload_end = payload_at + u64::from(header.payload_length);
        if payload_end > bytes {
            return Err(truncated("the compressed kernel", payload_end));
        }
        Ok(Self {
            header,
            payload: payload_at as usize..payload_end as usize,
            preferred: header.pref_address,
            init_bytes: header.init_size.into(),
            initramfs_max: header.initrd_addr_max.into(),
            command_line_bytes: header.cmdline_size,
        })
    }

    fn payload<'a>(&self, image: &'a [u8]) -> &'a [u8] {
        &image[self.payload.clone()]
    }

    /// Returns the kernel, if it is to decompress itself.
    fn as_it_is(&self, image: Arc<[u8]>) -> Kernel {
        Kernel {
            image,
            content: Content::File,
            protocol: BootProtocol::BzImage,
            entry: self.preferred.saturating_add(ENTRY_64),
            range: self.preferred..self.preferred.saturating_add(self.init_bytes),
            initramfs_max: self.initramfs_max,
            command_line_bytes: self.command_line_bytes.min(COMMAND_LINE_BYTES_DEFAULT),
            header: Some(self.header),
        }
    }
}

/// Returns the header, with zeros for fields that this version of it does not have.
fn read_header(image: &[u8]) -> Option<setup_header> {
    let mut bytes = [0; size_of::<setup_header>()];
    let end = OFFSET_MAGIC + usize::from(*image.get(OFFSET_HEADER_BYTES)?);
    let file = image.get(OFFSET_HEADER..end)?;
    let shared = file.len().min(bytes.len());
    bytes[..shared].copy_from_slice(&file[..shared]);
    setup_header::from_slice(&bytes).copied()
}

#[cfg(test)]
mod tests;
