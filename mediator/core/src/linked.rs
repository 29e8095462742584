//! Module images of several inputs, which are linked when they are loaded.
//!
//! All numbers are little-endian: 8 bytes [`MAGIC`], a 32-bit number of inputs, a 32-bit word of
//! options, then for each input a 64-bit length in bytes and the bytes, with zeros up to a multiple
//! of 8. The options are, from bit 0: 16 bits with the most registers that a thread may have, and 3
//! bits with the level of optimisation plus 1. A zero leaves the choice to the device.

/// How such an image begins.
pub const MAGIC: &[u8] = b"CWLINK01";
/// Inputs of an image, at most.
const INPUTS_MAX: u32 = 256;
/// The highest level of optimisation.
const LEVEL_MAX: u32 = 4;

/// The inputs of an image, and how to compile them.
#[derive(Debug, PartialEq, Eq)]
pub struct Linked<'a> {
    /// The inputs, in their order. Nothing in them has been checked.
    pub inputs: Vec<&'a [u8]>,
    /// The most registers that a thread may have; `None` leaves the choice to the device.
    pub registers_max: Option<u32>,
    /// The level of optimisation, 0 to 4; `None` leaves the choice to the device.
    pub optimization: Option<u32>,
}

/// Returns what is in `image`; `None` if it does not begin with [`MAGIC`].
///
/// # Errors
/// A text that says what is wrong with the image, to be put after "it is damaged:".
pub fn parse(image: &[u8]) -> Result<Option<Linked<'_>>, String> {
    let Some(mut rest) = image.strip_prefix(MAGIC) else {
        return Ok(None);
    };
    let (count, word) = (number::<4>(&mut rest)?, number::<4>(&mut rest)?);
    if !(1..=u64::from(INPUTS_MAX)).contains(&count) {
        return Err(format!("it has {count} inputs, not 1 to {INPUTS_MAX}"));
    }
    let (registers_max, optimization) = options(word as u32)?;
    let inputs = (1..=count).map(|index| {
        let length = number::<8>(&mut rest)?;
        let padded = length.checked_next_multiple_of(8);
        let padded = padded.and_then(|padded| usize::try_from(padded).ok());
        let left = rest.len();
        let (input, behind) = padded
            .and_then(|padded| rest.split_at_checked(padded))
            .ok_or_else(|| {
                format!("input {index} of {count} has {length} bytes, but {left} are left")
            })?;
        rest = behind;
        // The length is at most that of the padded input.
        Ok(&input[..length as usize])
    });
    let inputs = inputs.collect::<Result<Vec<&[u8]>, String>>()?;
    match rest.len() {
        0 => Ok(Some(Linked {
            inputs,
            registers_max,
            optimization,
        })),
        left => Err(format!("{left} bytes follow its last input")),
    }
}

/// Returns the registers and the level of optimisation in the word of options.
fn options(word: u32) -> Result<(Option<u32>, Option<u32>), String> {
    let (registers, level) = (word & 0xffff, word >> 16);
    if level > LEVEL_MAX + 1 {
        return Err(format!("its options are {word:#x}, which have no meaning"));
    }
    let registers = Some(registers).filter(|registers| *registers != 0);
    Ok((registers, level.checked_sub(1)))
}

/// Takes a number of `N` bytes, at most 8.
fn number<const N: usize>(rest: &mut &[u8]) -> Result<u64, String> {
    let (bytes, behind) = rest
        .split_first_chunk::<N>()
        .ok_or_else(|| format!("it ends {} bytes too early", N - rest.len().min(N)))?;
    *rest = behind;
    let mut value = [0; 8];
    value[..N].copy_from_slice(bytes);
    Ok(u64::from_le_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(count: u32, options: u32, inputs: &[&[u8]]) -> Vec<u8> {
        let mut image = [MAGIC, &count.to_le_bytes(), &options.to_le_bytes()].concat();
        for input in inputs {
            image.extend((input.len() as u64).to_le_bytes());
            image.extend(*input);
            image.resize(image.len().next_multiple_of(8), 0);
        }
        image
    }

    #[test]
    fn inputs_come_apart_again() {
        let given: [&[u8]; 3] = [b"12345678", b"abc", b""];
        for (options, registers_max, optimization) in [
            (0, None, None),
            (57, Some(57), None),
            (5 << 16 | 255, Some(255), Some(4)),
            (1 << 16, None, Some(0)),
        ] {
            let wanted = Linked {
                inputs: given.to_vec(),
                registers_max,
                optimization,
            };
            assert_eq!(parse(&image(3, options, &given)), Ok(Some(wanted)));
        }
        assert_eq!(parse(b".version 8.0"), Ok(None));
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let good = image(2, 0, &[b"12345678", b"abc"]);
        let huge = [image(1, 0, &[]), u64::MAX.to_le_bytes().to_vec()].concat();
        for (bytes, part) in [
            (
                good[..good.len() - 1].to_vec(),
                "input 2 of 2 has 3 bytes, but 7",
            ),
            ([&good[..], b"x"].concat(), "1 bytes follow"),
            (image(0, 0, &[]), "0 inputs"),
            (image(257, 0, &[]), "257 inputs"),
            (image(1, 6 << 16, &[b""]), "options are 0x60000"),
            (image(1, 1 << 31, &[b""]), "options are 0x80000000"),
            (huge, "18446744073709551615 bytes, but 0"),
            (b"CWLINK01\x01\0".to_vec(), "ends 2 bytes too early"),
        ] {
            let reason = parse(&bytes).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
        for end in 8..good.len() {
            assert!(parse(&good[..end]).is_err(), "{end}");
        }
    }
}
