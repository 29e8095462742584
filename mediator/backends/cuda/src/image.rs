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
mod version;

use causeway_mediator::backend::ModuleError;
use causeway_mediator::linked::{self, Linked};

pub(crate) use elf::Cubin;
use fatbin::Fatbin;
pub(crate) use refusal::refused;
pub(crate) use version::raised as raised_version;

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
    /// Several inputs, none of which is of this kind.
    Linked(Inputs<'a>),
}

/// Inputs that the driver is to link, and how.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) images: Vec<Image<'a>>,
    pub(crate) registers_max: Option<u32>,
    pub(crate) optimization: Option<u32>,
}

/// Finds out the format of `image`, and returns the part of it that a GPU of `architecture` (90 for
/// sm_90) can execute.
///
/// # Errors
/// [`ModuleError`]: the format is not known, a header points outside, no code is for this GPU, or
/// PTX is too long.
pub(crate) fn classify(image: &[u8], architecture: u32) -> Result<Image<'_>, ModuleError> {
    let damaged = |reason| refused(format!("the image of several inputs is damaged: {reason}"));
    match linked::parse(image).map_err(damaged)? {
        Some(linked) => inputs(&linked, architecture).map(Image::Linked),
        None => single(image, architecture),
    }
}

/// Looks at each input. All PTX together may be as long as that of one image.
fn inputs<'a>(linked: &Linked<'a>, architecture: u32) -> Result<Inputs<'a>, ModuleError> {
    let count = linked.inputs.len();
    let mut ptx_bytes = 0;
    let images = linked.inputs.iter().enumerate().map(|(index, input)| {
        let image = single(input, architecture).map_err(|mut error| {
            error.reason = format!("input {} of {count}: {}", index + 1, error.reason);
            error
        })?;
        if let Image::Ptx(text) = &image {
            ptx_bytes += text.len() - 1;
            check_ptx_bytes(ptx_bytes)?;
        }
        Ok::<_, ModuleError>(image)
    });
    Ok(Inputs {
        images: images.collect::<Result<_, _>>()?,
        registers_max: linked.registers_max,
        optimization: linked.optimization,
    })
}

/// Returns the image in `image`, which is not one of several inputs.
fn single(image: &[u8], architecture: u32) -> Result<Image<'_>, ModuleError> {
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
    check_ptx_bytes(text.len())?;
    let mut copy = Vec::with_capacity(text.len() + 1);
    copy.extend_from_slice(text);
    copy.push(0);
    Ok(copy)
}

/// Refuses PTX that takes the compiler too much memory.
fn check_ptx_bytes(bytes: usize) -> Result<(), ModuleError> {
    if bytes <= PTX_BYTES_MAX {
        return Ok(());
    }
    Err(refused(format!(
        "the PTX has {bytes} bytes: back end cuda takes {PTX_BYTES_MAX} at most; \
         give a cubin, or several modules"
    )))
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

    /// Returns an image of these inputs.
    fn several(options: u32, inputs: &[&[u8]]) -> Vec<u8> {
        let mut image = linked::MAGIC.to_vec();
        image.extend_from_slice(&(inputs.len() as u32).to_le_bytes());
        image.extend_from_slice(&options.to_le_bytes());
        for input in inputs {
            image.extend_from_slice(&(input.len() as u64).to_le_bytes());
            image.extend_from_slice(input);
            image.resize(image.len().next_multiple_of(8), 0);
        }
        image
    }

    #[test]
    fn every_input_of_several_is_looked_at() {
        let code = elf::tests::cubin(90, 7, &[(".text.k", 1, 2, 40)]);
        let fat = fatbin::tests::fatbin(&[(2, 90, false, &code)]);
        let good = several(2 << 16 | 40, &[b".version 7.0\0x", &code, &fat]);
        let Ok(Image::Linked(inputs)) = classify(&good, 90) else {
            panic!("these are inputs");
        };
        assert_eq!(
            (inputs.registers_max, inputs.optimization),
            (Some(40), Some(1))
        );
        assert!(matches!(&inputs.images[0], Image::Ptx(text) if text == b".version 7.0\0"));
        for image in &inputs.images[1..] {
            assert!(matches!(image, Image::Cubin(cubin) if cubin.bytes == code));
        }

        let mut bad = code.clone();
        bad[60] = 0xff;
        let other = elf::tests::cubin(80, 7, &[(".text.k", 1, 2, 40)]);
        let nested = several(0, &[b".version 7.0"]);
        for (input, part) in [
            (&bad[..], "input 2 of 2: the cubin is malformed"),
            (&other, "input 2 of 2: the cubin is for sm_80"),
            (&nested, "input 2 of 2: the image is neither PTX"),
            (b"", "input 2 of 2: the image is neither PTX"),
        ] {
            let image = several(0, &[b".version 7.0", input]);
            let refused = classify(&image, 90).unwrap_err().reason;
            assert!(refused.contains(part), "{refused}");
        }
        let damaged = classify(&good[..good.len() - 1], 90).unwrap_err().reason;
        assert!(damaged.contains("several inputs is damaged"), "{damaged}");
    }

    #[test]
    fn ptx_of_all_inputs_is_limited_together() {
        let mut half = b".version 7.0\n".to_vec();
        half.resize(PTX_BYTES_MAX / 2, b' ');
        classify(&several(0, &[&half, &half]), 90).unwrap();
        let refused = classify(&several(0, &[&half, &half, b".version 7.0"]), 90).unwrap_err();
        assert!(
            refused.reason.contains("the PTX has 16777228 bytes"),
            "{refused}"
        );
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            magic in 0usize..4,
            bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            let mut image = match magic {
                0 => elf::MAGIC.to_vec(),
                1 => fatbin::MAGIC.to_vec(),
                2 => [linked::MAGIC, &[1, 0, 0, 0, 0, 0, 0, 0]].concat(),
                _ => Vec::new(),
            };
            image.extend_from_slice(&bytes);
            let _ = classify(&image, 90);
        }
    }
}
