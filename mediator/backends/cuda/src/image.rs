//! Checks module images before the driver gets them, because the driver is not told how long an
//! image is.
//!
//! The driver is trusted to refuse code that is not valid. It is not trusted to stay within an
//! image whose headers point outside, and it must never get the wrapper that compilers put around a
//! fat binary, which holds pointers. It never gets compressed code, in which nothing can be
//! checked.

mod elf;
mod fatbin;
mod refusal;

use causeway_mediator::backend::ModuleError;

pub(crate) use elf::Cubin;
use fatbin::Fatbin;
pub(crate) use refusal::refused;

/// PTX, at most, in bytes. The driver's compiler takes 200 to 330 times the text in memory, and
/// cannot be interrupted.
const PTX_BYTES_MAX: usize = 16 << 20;

/// The part of a guest's image that the driver is to load.
#[derive(Debug)]
pub(crate) enum Image<'a> {
    /// PTX text that ends with a zero.
    Ptx(Vec<u8>),
    /// Compiled code for one architecture.
    Cubin(Cubin<'a>),
}

/// Finds out the format of `image`, and returns the part of it that a GPU of `architecture` (90 for
/// sm_90) can execute.
///
/// # Errors
/// [`ModuleError`]: the format is not known, a header points outside, no code is for this GPU, or
/// PTX is too long.
pub(crate) fn classify(image: &[u8], architecture: u32) -> Result<Image<'_>, ModuleError> {
    if image.starts_with(elf::MAGIC) {
        let cubin = Cubin::parse(image)?;
        cubin.check_architecture(architecture)?;
        Ok(Image::Cubin(cubin))
    } else if image.starts_with(fatbin::MAGIC) {
        Fatbin::parse(image)?.choose(architecture)
    } else {
        ptx(image).map(Image::Ptx)
    }
}

/// Returns a copy of a text that ends with a zero.
fn ptx(image: &[u8]) -> Result<Vec<u8>, ModuleError> {
    let end = image.iter().position(|byte| *byte == 0);
    let text = &image[..end.unwrap_or(image.len())];
    let is_text = std::str::from_utf8(text).is_ok_and(|text| text.contains(".version"));
    if !is_text {
        return Err(refused(
            "the image is neither PTX (text with a .version directive), nor a cubin (an ELF file), \
             nor a fat binary",
        ));
    }
    if text.len() > PTX_BYTES_MAX {
        return Err(refused(format!(
            "the PTX has {} bytes: back end cuda takes {PTX_BYTES_MAX} at most; \
             give a cubin, or several modules",
            text.len()
        )));
    }
    let mut copy = Vec::with_capacity(text.len() + 1);
    copy.extend_from_slice(text);
    copy.push(0);
    Ok(copy)
}

/// Returns the little-endian integer at offset `at`; `None` if it does not lie inside `bytes`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the little-endian integer at offset `at`; `None` if it does not lie inside `bytes`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the little-endian integer at offset `at`; `None` if it does not lie inside `bytes`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_gets_a_zero_at_its_end_and_nothing_behind_it() {
        let Ok(Image::Ptx(text)) = classify(b"// c\n.version 7.0\0garbage", 90) else {
            panic!("this is PTX");
        };
        assert_eq!(text, b"// c\n.version 7.0\0");
        let Ok(Image::Ptx(text)) = classify(b".version 7.0", 90) else {
            panic!("this is PTX");
        };
        assert_eq!(text.last(), Some(&0));
    }

    #[test]
    fn the_wrapper_with_pointers_and_other_binaries_are_refused() {
        let mut wrapper = 0x4662_43b1_u32.to_le_bytes().to_vec();
        wrapper.extend_from_slice(&[1, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde, 0, 0, 0, 0]);
        for image in [&wrapper[..], b"", b"\0.version", b"BC\xc0\xde", b"hello"] {
            let refused = classify(image, 90).unwrap_err();
            assert!(refused.reason.contains("neither PTX"), "{refused}");
        }
    }

    #[test]
    fn ptx_is_limited_and_cubins_are_not() {
        let mut text = b".version 7.0\n".to_vec();
        text.resize(PTX_BYTES_MAX, b' ');
        assert!(matches!(classify(&text, 90), Ok(Image::Ptx(_))));
        text.push(b' ');
        let fat = fatbin::tests::fatbin(&[(1, 80, false, &text)]);
        for image in [&text[..], &fat] {
            let refused = classify(image, 90).unwrap_err().reason;
            for part in ["the PTX has 16777217 bytes", "16777216 at most"] {
                assert!(refused.contains(part), "{refused}");
            }
        }
        let code = elf::tests::cubin(90, 7, &[(".text.k", 1, 2, 17 << 20)]);
        assert!(matches!(classify(&code, 90), Ok(Image::Cubin(_))));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            magic in 0usize..3,
            bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            let mut image = match magic {
                0 => elf::MAGIC.to_vec(),
                1 => fatbin::MAGIC.to_vec(),
                _ => Vec::new(),
            };
            image.extend_from_slice(&bytes);
            let _ = classify(&image, 90);
        }
    }
}
