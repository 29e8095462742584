//! Finds the release of Linux in a kernel image.

/// Offsets in a bzImage (Documentation/arch/x86/boot.rst of Linux, "The Real-Mode Kernel Header").
const MAGIC: (usize, &[u8]) = (0x202, b"HdrS");
const VERSION_POINTER: usize = 0x20e;
/// Offset from which the version pointer counts.
const VERSION_BASE: usize = 0x200;

/// Beginning of the banner of an uncompressed kernel.
const BANNER: &[u8] = b"Linux version ";
/// Most bytes of a release (`__NEW_UTS_LEN`).
const RELEASE_BYTES_MAX: usize = 64;

/// Returns the release of the Linux kernel in `image` (a bzImage or an ELF file), as `uname -r`
/// prints it in the guest; `None` if the image does not contain it.
#[must_use]
pub fn release_of(image: &[u8]) -> Option<&str> {
    let version = if image.get(MAGIC.0..)?.starts_with(MAGIC.1) {
        let pointer = image.get(VERSION_POINTER..)?.first_chunk()?;
        image.get(VERSION_BASE + usize::from(u16::from_le_bytes(*pointer))..)?
    } else if image.starts_with(b"\x7fELF") {
        banner(image)?
    } else {
        return None;
    };
    let end = version
        .iter()
        .take(RELEASE_BYTES_MAX + 1)
        .position(|byte| matches!(byte, b' ' | b'\n' | 0))?;
    let release = std::str::from_utf8(&version[..end]).ok()?;
    is_release(release).then_some(release)
}

/// Returns the bytes behind the beginning of the banner. The kernel has format strings that begin
/// in the same way; only in the banner a digit follows.
fn banner(image: &[u8]) -> Option<&[u8]> {
    let mut rest = image;
    while let Some(at) = rest
        .windows(BANNER.len())
        .position(|window| window == BANNER)
    {
        rest = &rest[at + BANNER.len()..];
        if rest.first().is_some_and(u8::is_ascii_digit) {
            return Some(rest);
        }
    }
    None
}

/// Returns whether a release can be the name of a folder of modules.
fn is_release(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed(version: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x180u16.to_le_bytes());
        image[0x380..0x380 + version.len()].copy_from_slice(version);
        image
    }

    #[test]
    fn releases_are_found_in_both_kinds_of_kernels() {
        let image = compressed(b"6.1.0-56-cloud-amd64 (builder@host) #1 SMP\0");
        assert_eq!(release_of(&image), Some("6.1.0-56-cloud-amd64"));
        let mut image = b"\x7fELF".to_vec();
        image.extend([0; 0x300]);
        image.extend(b"Linux version %s (%s)\0 ... Linux version 6.12.1+ (builder@host)\n\0");
        assert_eq!(release_of(&image), Some("6.12.1+"));
    }

    #[test]
    fn what_says_no_release_has_none() {
        assert_eq!(release_of(b""), None);
        assert_eq!(release_of(&[0; 0x400]), None);
        assert_eq!(release_of(&compressed(b"../../etc 1\0")), None);
        assert_eq!(release_of(&compressed(b"6.1/../x \0")), None);
        assert_eq!(release_of(&compressed(&[b'6'; 0x80])), None);
        let cut = &compressed(b"6.1.0 x")[..0x382];
        assert_eq!(release_of(cut), None);
        assert_eq!(release_of(&compressed(b"6.1.0")[..0x300]), None);
    }
}
