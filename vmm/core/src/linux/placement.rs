//! Where the parts of a booting system go in guest memory.

use std::ffi::CString;
use std::ops::Range;

use super::Kernel;
use super::memory_map::ACPI_END;
use crate::memory::LOW_END_MAX;

/// Alignment of the initramfs, which the kernel frees by pages.
const PAGE_BYTES: u64 = 4096;

/// Why a kernel, its initramfs or its command line does not fit into guest memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// The kernel needs memory that the guest does not have.
    #[error(
        "the kernel needs memory from {start:#x} to {end:#x}, but the guest has \
         memory for it only from {ACPI_END:#x} to {ram_end:#x}: give it at least {mib} MiB with \
         --memory",
        mib = end.div_ceil(1 << 20)
    )]
    Kernel {
        /// First guest-physical address that the kernel needs.
        start: u64,
        /// End of the guest-physical addresses that the kernel needs.
        end: u64,
        /// End of the guest's RAM below 4 GiB.
        ram_end: u64,
    },
    /// The initramfs is larger than this kernel supports with any amount of memory.
    #[error(
        "the initramfs has {bytes} bytes, but this kernel takes at most {most}, between its own \
         end and address {highest:#x}: give a smaller initramfs"
    )]
    InitramfsTooLarge {
        /// Size of the initramfs in bytes.
        bytes: u64,
        /// Maximum size in bytes of an initramfs for this kernel.
        most: u64,
        /// End of the guest-physical addresses at which the kernel can use an initramfs.
        highest: u64,
    },
    /// The initramfs is larger than the guest's memory behind the kernel.
    #[error(
        "the initramfs has {bytes} bytes, but only {room} bytes fit after the kernel: give the \
         guest at least {} MiB with --memory, or a smaller initramfs",
        bytes.saturating_add(*kernel_end).div_ceil(1 << 20)
    )]
    Initramfs {
        /// Size of the initramfs in bytes.
        bytes: u64,
        /// Number of bytes of RAM behind the kernel that the initramfs may use.
        room: u64,
        /// End of the guest-physical addresses that the kernel needs.
        kernel_end: u64,
    },
    /// The command line is longer than this kernel allows.
    #[error(
        "the kernel's command line has {bytes} bytes, but this kernel takes at most {limit}: \
         shorten the text of --append"
    )]
    CommandLine {
        /// Length of the command line in bytes, without its zero byte.
        bytes: usize,
        /// Maximum length in bytes of the kernel's command line.
        limit: u32,
    },
    /// The command line contains a zero byte, at which it would end for the kernel.
    #[error(
        "the kernel's command line contains a zero byte at offset {offset}: remove it from \
         --append"
    )]
    ZeroByte {
        /// Offset of the zero byte in the command line.
        offset: usize,
    },
}

/// Returns the guest-physical addresses at which to put an initramfs of `bytes` bytes: as high as
/// the kernel can reach and RAM allows, so that the initramfs does not lie where the kernel needs
/// memory. `ram_end` is the end of the RAM. Also checks that `kernel` itself fits into this RAM.
///
/// # Errors
/// [`PlacementError::Kernel`] if the kernel does not fit into guest memory, `Initramfs` if the
/// initramfs does not, `InitramfsTooLarge` if the initramfs would not fit with any amount of
/// memory.
pub fn place(kernel: &Kernel, bytes: u64, ram_end: u64) -> Result<Range<u64>, PlacementError> {
    let Range { start, end } = kernel.range;
    if start < ACPI_END || end > ram_end {
        return Err(PlacementError::Kernel {
            start,
            end,
            ram_end,
        });
    }
    let highest = initramfs_end(kernel, ram_end);
    let base = highest
        .checked_sub(bytes)
        .map(|base| base & !(PAGE_BYTES - 1));
    match base {
        Some(base) if base >= end => Ok(base..base + bytes),
        _ => Err(too_large(kernel, bytes, highest)),
    }
}

/// Returns why an initramfs does not fit below `highest`.
fn too_large(kernel: &Kernel, bytes: u64, highest: u64) -> PlacementError {
    let kernel_end = kernel.range.end;
    let room = |highest: u64| highest.saturating_sub(kernel_end.next_multiple_of(PAGE_BYTES));
    let ever = initramfs_end(kernel, LOW_END_MAX);
    match bytes > room(ever) {
        true => PlacementError::InitramfsTooLarge {
            bytes,
            most: room(ever),
            highest: ever,
        },
        false => PlacementError::Initramfs {
            bytes,
            room: room(highest),
            kernel_end,
        },
    }
}

/// Returns the end of the addresses at which the kernel takes an initramfs, with RAM up to
/// `ram_end`.
fn initramfs_end(kernel: &Kernel, ram_end: u64) -> u64 {
    ram_end.min(kernel.initramfs_max.saturating_add(1)) & !(PAGE_BYTES - 1)
}

/// Returns the command line `text` for `kernel` as bytes in guest memory: with a zero byte at its
/// end.
///
/// # Errors
/// [`PlacementError::CommandLine`] if `text` is longer than the kernel allows, `ZeroByte` if it
/// contains a zero byte.
pub fn command_line(kernel: &Kernel, text: &str) -> Result<Vec<u8>, PlacementError> {
    let line = CString::new(text).map_err(|e| PlacementError::ZeroByte {
        offset: e.nul_position(),
    })?;
    let (bytes, limit) = (text.len(), kernel.command_line_bytes);
    if bytes > limit as usize {
        return Err(PlacementError::CommandLine { bytes, limit });
    }
    Ok(line.into_bytes_with_nul())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::BootProtocol;
    use crate::linux::kernel::Content;
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    fn kernel(range: Range<u64>, initramfs_max: u64) -> Kernel {
        Kernel {
            image: Arc::from([]),
            content: Content::File,
            protocol: BootProtocol::Linux64,
            entry: range.start,
            range,
            initramfs_max,
            command_line_bytes: 10,
            header: None,
        }
    }

    #[test]
    fn the_initramfs_lies_as_high_as_the_kernel_reaches() {
        let low = kernel(16 * MIB..64 * MIB, 128 * MIB - 1);
        assert_eq!(
            place(&low, 5000, 256 * MIB),
            Ok(128 * MIB - 8192..128 * MIB - 8192 + 5000)
        );
        let far = kernel(16 * MIB..64 * MIB, u32::MAX.into());
        assert_eq!(place(&far, MIB, 256 * MIB), Ok(255 * MIB..256 * MIB));
        assert_eq!(place(&far, 192 * MIB, 256 * MIB), Ok(64 * MIB..256 * MIB));
    }

    #[test]
    fn what_does_not_fit_says_how_much_would() {
        let kernel = kernel(16 * MIB..64 * MIB, u32::MAX.into());
        let error = place(&kernel, 0, 32 * MIB).unwrap_err();
        assert!(error.to_string().contains("at least 64 MiB"), "{error}");
        let error = place(&kernel, 192 * MIB + 1, 256 * MIB).unwrap_err();
        assert!(error.to_string().contains("at least 257 MiB"), "{error}");
        let limit = u64::from(u32::MAX);
        let error = place(&kernel, limit, 256 * MIB).unwrap_err().to_string();
        let most = format!("takes at most {}", LOW_END_MAX - 64 * MIB);
        assert!(
            error.contains(&most) && !error.contains("--memory"),
            "{error}"
        );
        let short = self::kernel(16 * MIB..64 * MIB, 128 * MIB - 1);
        let error = place(&short, 65 * MIB, 3072 * MIB).unwrap_err().to_string();
        assert!(error.contains("takes at most 67108864"), "{error}");
    }

    #[test]
    fn kernels_below_one_mebibyte_or_without_end_are_refused() {
        assert!(place(&kernel(0..MIB, u64::MAX), 0, 256 * MIB).is_err());
        assert!(place(&kernel(MIB..u64::MAX, u64::MAX), 0, 256 * MIB).is_err());
    }

    #[test]
    fn command_lines_are_ended_and_bounded() {
        let kernel = kernel(MIB..2 * MIB, 0);
        assert_eq!(command_line(&kernel, "quiet").unwrap(), b"quiet\0");
        assert!(command_line(&kernel, "0123456789").is_ok());
        let error = command_line(&kernel, "0123456789a").unwrap_err();
        assert!(error.to_string().contains("11 bytes"), "{error}");
        let error = command_line(&kernel, "a\0b").unwrap_err();
        assert_eq!(error, PlacementError::ZeroByte { offset: 1 });
    }
}
