//! Which images are PTX text, or several that are to be linked, and what the others are.

use causeway_mediator::linked;

/// How to make the image that this back end takes.
const WAY_OUT: &str = "back end software takes PTX text: compile to PTX (nvcc -ptx)";
/// Machine of an ELF file with GPU code, a cubin (`EM_CUDA`).
const MACHINE_CUDA: u16 = 190;
/// How images begin that are not text, and what they are.
const OTHERS: [(&[u8], &str); 4] = [
    (b"\x50\xed\x55\xba", "a fat binary (fatbin)"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"\x1f\x8b", "compressed with gzip"),
    (linked::MAGIC, "an image of several inputs"),
];

/// Why an image is not PTX text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// There is no text before the first NUL byte.
    #[error("the module image is empty ({bytes} bytes without text): {WAY_OUT}")]
    Empty {
        /// Size of the image in bytes.
        bytes: usize,
    },
    /// The image is GPU code in an ELF file.
    #[error("the module image is a cubin, GPU code for one kind of GPU ({bytes} bytes): {WAY_OUT}")]
    Cubin {
        /// Size of the image in bytes.
        bytes: usize,
    },
    /// The image is an ELF file without GPU code.
    #[error(
        "the module image is an ELF file for machine {machine}, not GPU code ({bytes} bytes): \
         {WAY_OUT}"
    )]
    Elf {
        /// Kind of processor (`e_machine` of its ELF header).
        machine: u16,
        /// Size of the image in bytes.
        bytes: usize,
    },
    /// The image is of another known kind.
    #[error("the module image is {kind} ({bytes} bytes): {WAY_OUT}")]
    Other {
        /// What the image is.
        kind: &'static str,
        /// Size of the image in bytes.
        bytes: usize,
    },
    /// The image is not text.
    #[error("byte {at} of the module image ({bytes} bytes) is not UTF-8 text: {WAY_OUT}")]
    NotText {
        /// Offset of the first byte that is not text.
        at: usize,
        /// Size of the image in bytes.
        bytes: usize,
    },
    /// The image has several inputs, but is damaged.
    #[error("the linked module image ({bytes} bytes) is damaged: {reason}")]
    Container {
        /// What is wrong.
        reason: String,
        /// Size of the image in bytes.
        bytes: usize,
    },
    /// One of the inputs of a linked image is not PTX text.
    #[error("input {number} of {count}: {reason}")]
    Input {
        /// Number of the input, from 1.
        number: usize,
        /// Number of inputs.
        count: usize,
        /// What the input is instead.
        reason: Box<ImageError>,
    },
}

/// Returns the PTX texts in `image`: one, or as many as are to be linked. Each ends at its first
/// NUL byte, if there is one.
///
/// # Errors
/// [`ImageError`] says what the image is instead of text, or how it is damaged.
pub fn texts(image: &[u8]) -> Result<Vec<&str>, ImageError> {
    let bytes = image.len();
    let linked = linked::parse(image);
    let Some(linked) = linked.map_err(|reason| ImageError::Container { reason, bytes })? else {
        return Ok(vec![text(image)?]);
    };
    // How it is to be compiled says nothing to the interpreter.
    let count = linked.inputs.len();
    let texts = linked.inputs.into_iter().enumerate().map(|(index, input)| {
        text(input).map_err(|reason| ImageError::Input {
            number: index + 1,
            count,
            reason: Box::new(reason),
        })
    });
    texts.collect()
}

/// Returns the PTX text in `image`, which ends at the first NUL byte, if there is one, because CUDA
/// programs pass PTX as a C string. The text may still not be PTX.
///
/// # Errors
/// [`ImageError`] says what the image is instead of text.
fn text(image: &[u8]) -> Result<&str, ImageError> {
    let bytes = image.len();
    if image.starts_with(b"\x7fELF") {
        // Byte 5 is the byte order, of which GPU code and most hosts have the same.
        let machine = image
            .get(18..20)
            .map_or(0, |m| u16::from_le_bytes([m[0], m[1]]));
        return Err(match machine {
            MACHINE_CUDA => ImageError::Cubin { bytes },
            machine => ImageError::Elf { machine, bytes },
        });
    }
    if let Some((_, kind)) = OTHERS.iter().find(|(magic, _)| image.starts_with(magic)) {
        return Err(ImageError::Other { kind, bytes });
    }
    let end = image.iter().position(|byte| *byte == 0).unwrap_or(bytes);
    let text = std::str::from_utf8(&image[..end]).map_err(|e| ImageError::NotText {
        at: e.valid_up_to(),
        bytes,
    })?;
    match text.trim().is_empty() {
        true => Err(ImageError::Empty { bytes }),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_a_zero_byte() {
        assert_eq!(text(b".version 8.0"), Ok(".version 8.0"));
        assert_eq!(text(b".version 8.0\0\xff"), Ok(".version 8.0"));
    }

    #[test]
    fn every_refusal_says_what_was_given_and_what_is_wanted() {
        let elf = |machine: u16| {
            let mut image = vec![0; 64];
            image[..4].copy_from_slice(b"\x7fELF");
            image[18..20].copy_from_slice(&machine.to_le_bytes());
            image
        };
        for (image, part) in [
            (vec![], "is empty (0 bytes"),
            (vec![0; 10], "is empty (10 bytes"),
            (b" \n\0".to_vec(), "is empty (3 bytes"),
            (
                elf(190),
                "is a cubin, GPU code for one kind of GPU (64 bytes)",
            ),
            (
                elf(62),
                "is an ELF file for machine 62, not GPU code (64 bytes)",
            ),
            (b"\x7fELF".to_vec(), "machine 0"),
            (
                b"\x50\xed\x55\xba\x01\0".to_vec(),
                "is a fat binary (fatbin) (6 bytes)",
            ),
            (b"BC\xc0\xde".to_vec(), "is LLVM bitcode (4 bytes)"),
            (
                b"ab\xff".to_vec(),
                "byte 2 of the module image (3 bytes) is not UTF-8",
            ),
        ] {
            let message = text(&image).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
            assert!(message.ends_with("compile to PTX (nvcc -ptx)"), "{message}");
        }
    }
}
