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

/// A boot protocol: where the VMM starts a Linux kernel, and in which form it passes boot
/// parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootProtocol {
    /// The kernel is a bzImage. It is entered at its 64-bit entry point, and decompresses itself.
    BzImage,
    /// The kernel is an ELF file. It is entered at its 64-bit entry point, with Linux's boot
    /// parameters.
    Linux64,
    /// The kernel is an ELF file. It is entered at its 32-bit entry point by Xen's PVH protocol.
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

/// Why a file is not a Linux kernel that can boot in a VM of this program.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The file is empty.
    #[error("the file given with --kernel is empty: give a Linux kernel (bzImage) or an ELF image")]
    Empty,
    /// The whole file is compressed.
    #[error("the whole file of --kernel is compressed: decompress it first with {tool}")]
    Compressed {
        /// Name of the command that decompresses the file.
        tool: &'static str,
    },
    /// The file is neither a bzImage nor an ELF image.
    #[error(
        "the file given with --kernel is neither a Linux kernel (bzImage) nor an ELF image: it has \
         {bytes} bytes and begins with {head:02x?}"
    )]
    Unknown {
        /// Size of the file in bytes.
        bytes: usize,
        /// First four bytes of the file, or all if it has fewer.
        head: Vec<u8>,
    },
    /// The file is an ELF image that cannot boot in a VM.
    #[error(transparent)]
    Elf(#[from] LoadError),
    /// The kernel is for another processor.
    #[error("the kernel is for {architecture}: only x86-64 kernels boot here")]
    Architecture {
        /// Name of the processor architecture.
        architecture: &'static str,
    },
    /// The kernel's boot protocol is too old.
    #[error(
        "the kernel has boot protocol {}.{:02}, which is too old: give a kernel of Linux 3.8 (boot \
         protocol 2.12) or later",
        version >> 8, version & 0xff
    )]
    Version {
        /// The kernel's version of the boot protocol, with the major version in the upper byte.
        version: u16,
    },
    /// The bzImage has no 64-bit entry point.
    #[error("this bzImage has no 64-bit entry point: only x86-64 kernels boot here")]
    Not64Bit,
    /// The file ends before a part of the kernel does.
    #[error(
        "the Linux kernel's file is truncated: {what} should end at byte {end}, but the file has \
         only {bytes} bytes; download it again"
    )]
    Truncated {
        /// Name of the part of the kernel that is cut off.
        what: &'static str,
        /// Offset in the file at which the cut-off part would end.
        end: u64,
        /// Size of the file in bytes.
        bytes: u64,
    },
    /// The compressed kernel in a bzImage is damaged.
    #[error("cannot decompress the Linux kernel given with --kernel")]
    Payload(#[from] payload::PayloadError),
    /// The kernel cannot be entered by the protocol that the user wants.
    #[error(
        "this kernel cannot be booted as {wanted}: {why}; leave out --boot, and Causeway chooses \
         the boot protocol"
    )]
    Protocol {
        /// The boot protocol that the user wants.
        wanted: BootProtocol,
        /// Why the kernel cannot be entered by this protocol.
        why: &'static str,
    },
}

/// The part of a kernel's file that is copied into guest memory.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// An ELF file or a whole bzImage, which linux-loader takes apart.
    File,
    /// Segments of the ELF file that this range of a bzImage contains in compressed form.
    Payload {
        range: Range<usize>,
        segments: Vec<FileSegment>,
    },
}

/// A file that was recognized as a Linux kernel, with what its headers say about loading it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Content of the file.
    pub(super) image: Arc<[u8]>,
    /// The part of the file that is copied into guest memory.
    pub(super) content: Content,
    /// The protocol by which the kernel is entered.
    pub(super) protocol: BootProtocol,
    /// Guest-physical address at which the kernel is entered.
    pub(super) entry: u64,
    /// Guest-physical addresses that the kernel needs until it manages memory itself.
    pub(super) range: Range<u64>,
    /// Highest guest-physical address that the last byte of an initramfs may have.
    pub(super) initramfs_max: u64,
    /// Length in bytes of the longest command line that the kernel takes, without its zero byte.
    pub(super) command_line_bytes: u32,
    /// Header of a bzImage, from `setup_sects` on.
    pub(super) header: Option<setup_header>,
}

impl Kernel {
    /// Recognizes the Linux kernel in the file whose content is `image`, and chooses its boot
    /// protocol.
    ///
    /// `wanted` is the boot protocol to use. With `None`, an ELF kernel is booted by PVH, and a
    /// bzImage, which contains a compressed ELF kernel, by [`BootProtocol::Linux64`] if the host
    /// can decompress it. Otherwise the bzImage decompresses itself in the guest
    /// ([`BootProtocol::BzImage`]).
    ///
    /// Returns `None` for a file that may be a bare guest instead. That is an ELF file that has no
    /// PVH entry point or cannot be loaded as a kernel, provided that `wanted` is `None`.
    ///
    /// # Errors
    /// The variant of [`KernelError`] that names what is wrong with the file; `Protocol` if the
    /// kernel cannot be booted by the `wanted` protocol.
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

    /// Returns the protocol by which the kernel will be booted.
    pub fn protocol(&self) -> BootProtocol {
        self.protocol
    }

    /// Checks that the kernel accepts `text` as its command line.
    ///
    /// # Errors
    /// [`PlacementError::CommandLine`] if `text` is longer than the kernel allows,
    /// [`PlacementError::ZeroByte`] if it contains a zero byte.
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
                    BootProtocol::Pvh => "it is an ELF image without the PVH entry point",
                    _ => "it is an ELF image, not a bzImage",
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
                let why = "its compression is not LZ4, so only the kernel can decompress itself";
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

/// The parts of a bzImage that matter here. The file contains all of them.
struct BzImage {
    header: setup_header,
    payload: Range<usize>,
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
        })
    }

    fn payload<'a>(&self, image: &'a [u8]) -> &'a [u8] {
        &image[self.payload.clone()]
    }

    /// Returns the kernel as one that decompresses itself.
    fn as_it_is(&self, image: Arc<[u8]>) -> Kernel {
        let start = self.header.pref_address;
        Kernel {
            image,
            content: Content::File,
            protocol: BootProtocol::BzImage,
            entry: start.saturating_add(ENTRY_64),
            range: start..start.saturating_add(self.header.init_size.into()),
            initramfs_max: self.header.initrd_addr_max.into(),
            command_line_bytes: self.header.cmdline_size.min(COMMAND_LINE_BYTES_DEFAULT),
            header: Some(self.header),
        }
    }
}

/// Returns the setup header, with zeros for fields that the header's version does not have.
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
