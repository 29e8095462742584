//! Images of several inputs, which are linked when they are loaded.
//!
//! All numbers are little-endian: 8 bytes [`MAGIC`], a 32-bit number of inputs, a 32-bit zero, then
//! for each input a 64-bit length in bytes and the bytes, with zeros up to a multiple of 8.

/// How such an image begins.
pub(super) const MAGIC: &[u8] = b"CWLINK01";
/// Inputs of an image, at most.
const INPUTS_MAX: u32 = 256;

/// Returns the inputs of `image`; `None` if it does not begin with [`MAGIC`]. An error says what is
/// wrong with it.
pub(super) fn inputs(image: &[u8]) -> Result<Option<Vec<&[u8]>>, String> {
    let Some(mut rest) = image.strip_prefix(MAGIC) else {
        return Ok(None);
    };
    let (count, zero) = (number::<4>(&mut rest)?, number::<4>(&mut rest)?);
    if !(1..=u64::from(INPUTS_MAX)).contains(&count) || zero != 0 {
        return Err(format!(
            "it has {count} inputs and flags {zero:#x}, not 1 to {INPUTS_MAX} inputs without flags"
        ));
    }
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
        0 => Ok(Some(inputs)),
        left => Err(format!("{left} bytes follow its last input")),
    }
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

    fn image(count: u32, zero: u32, inputs: &[&[u8]]) -> Vec<u8> {
        let mut image = [MAGIC, &count.to_le_bytes(), &zero.to_le_bytes()].concat();
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
        assert_eq!(inputs(&image(3, 0, &given)), Ok(Some(given.to_vec())));
        assert_eq!(inputs(b".version 8.0"), Ok(None));
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
            (image(1, 1, &[b""]), "flags 0x1"),
            (huge, "18446744073709551615 bytes, but 0"),
            (b"CWLINK01\x01\0".to_vec(), "ends 2 bytes too early"),
        ] {
            let reason = inputs(&bytes).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
        for end in 8..good.len() {
            assert!(inputs(&good[..end]).is_err(), "{end}");
        }
    }
}
