//! Parameters of launches, from the two forms in which programs give them to one block.

use causeway_protocol::message::Parameter;
use causeway_protocol::packet::{PARAMETER_BYTES_MAX, PARAMETER_BYTES_USUAL};

use crate::boundary::In;
use crate::error::{Answer, Code};

/// Keys in the list of extra options.
pub(crate) const END: usize = 0;
pub(crate) const BUFFER_POINTER: usize = 1;
pub(crate) const BUFFER_SIZE: usize = 2;
/// Options of that list, at most: there are two.
const EXTRA_MAX: usize = 16;

/// Most kernels have fewer bytes of parameters: clearing a larger block would take longer than
/// filling it.
const USUAL_BYTES: usize = 256;

/// Gives `use_block` the parameter block of `bytes` bytes that a launch has: gathered from one
/// pointer for each parameter in `layout`, or copied from the buffer that `extra` names.
#[inline]
pub(crate) fn with_block<T>(
    layout: &[Parameter],
    bytes: usize,
    parameters: In<usize>,
    extra: In<usize>,
    use_block: impl FnOnce(&[u8]) -> Answer<T>,
) -> Answer<T> {
    if bytes <= USUAL_BYTES {
        let mut block = [0; USUAL_BYTES];
        fill(layout, &mut block[..bytes], parameters, extra)?;
        use_block(&block[..bytes])
    } else if bytes <= PARAMETER_BYTES_USUAL {
        let mut block = [0; PARAMETER_BYTES_USUAL];
        fill(layout, &mut block[..bytes], parameters, extra)?;
        use_block(&block[..bytes])
    } else if bytes <= PARAMETER_BYTES_MAX {
        let mut block = vec![0; bytes];
        fill(layout, &mut block, parameters, extra)?;
        use_block(&block)
    } else {
        Err(Code::NOT_SUPPORTED)
    }
}

/// Fills a parameter block, which holds zeros, in one of the two forms.
#[inline]
pub(super) fn fill(
    layout: &[Parameter],
    block: &mut [u8],
    given: In<usize>,
    extra: In<usize>,
) -> Answer {
    match (given.is_null(), extra.is_null()) {
        (false, true) => gather(layout, block, given),
        (true, false) => unpack(layout, block, extra),
        (true, true) if layout.is_empty() => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Parameters behind one pointer each.
#[inline]
fn gather(layout: &[Parameter], block: &mut [u8], pointers: In<usize>) -> Answer {
    for (index, parameter) in layout.iter().enumerate() {
        let start = usize::from(parameter.offset);
        let place = block.get_mut(start..start + usize::from(parameter.size));
        let place = place.ok_or(Code::INVALID_VALUE)?;
        let value = In::<u8>::at(pointers.get_at(index)?);
        // Most parameters are pointers or 32-bit numbers: copies of a known size are one load.
        if let Ok(place) = <&mut [u8; 8]>::try_from(&mut *place) {
            value.copy_to(place)?;
        } else if let Ok(place) = <&mut [u8; 4]>::try_from(&mut *place) {
            value.copy_to(place)?;
        } else {
            value.copy_to(place)?;
        }
    }
    Ok(())
}

/// Parameters in one buffer. It may be longer than the block by what pads it to its alignment.
fn unpack(layout: &[Parameter], block: &mut [u8], extra: In<usize>) -> Answer {
    let (mut buffer, mut size) = (0, None);
    let mut is_complete = false;
    for index in (0..2 * EXTRA_MAX).step_by(2) {
        match extra.get_at(index)? {
            END => {
                is_complete = true;
                break;
            }
            BUFFER_POINTER => buffer = extra.get_at(index + 1)?,
            BUFFER_SIZE => size = Some(In::<usize>::at(extra.get_at(index + 1)?).get()?),
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    let bytes = size.filter(|_| is_complete).ok_or(Code::INVALID_VALUE)?;
    let end = |parameter: &Parameter| usize::from(parameter.offset) + usize::from(parameter.size);
    let needed = layout.iter().map(end).max().unwrap_or(0);
    if bytes < needed || bytes > block.len().next_multiple_of(16) {
        return Err(Code::INVALID_VALUE);
    }
    let kept = bytes.min(block.len());
    match kept {
        0 => Ok(()),
        _ => In::<u8>::at(buffer).copy_to(&mut block[..kept]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn parameter(offset: u16, size: u16) -> Parameter {
        Parameter { offset, size }
    }

    const LAYOUT: [Parameter; 4] = [
        parameter(0, 4),
        parameter(8, 8),
        parameter(16, 3),
        parameter(20, 2),
    ];
    const WANTED: [u8; 22] = [
        1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 16, 17,
    ];

    fn block(
        layout: &[Parameter],
        bytes: usize,
        given: &[usize],
        extra: &[usize],
    ) -> Answer<Vec<u8>> {
        let list = |list: &[usize]| match list.is_empty() {
            true => In::at(0),
            false => In::at(list.as_ptr() as usize),
        };
        with_block(layout, bytes, list(given), list(extra), |block| {
            Ok(block.to_vec())
        })
    }

    #[test]
    fn values_are_gathered_from_wherever_they_are() {
        // None is aligned.
        let memory: [u8; 20] = std::array::from_fn(|index| index as u8);
        let at = |index: usize| memory[index..].as_ptr() as usize;
        let pointers = [at(1), at(5), at(13), at(16)];
        assert_eq!(block(&LAYOUT, 22, &pointers, &[]), Ok(WANTED.to_vec()));
        let missing = [at(1), 0, at(13), at(16)];
        assert_eq!(block(&LAYOUT, 22, &missing, &[]), Err(Code::INVALID_VALUE));
    }

    #[test]
    fn blocks_are_as_large_as_the_kernel_says() {
        let values = vec![7_u8; 32_764];
        for (bytes, answer) in [
            (256, Ok(())),
            (257, Ok(())),
            (4096, Ok(())),
            (4097, Ok(())),
            (32_764, Ok(())),
            (32_765, Err(Code::NOT_SUPPORTED)),
        ] {
            let layout = [parameter(0, bytes as u16)];
            let found = block(&layout, bytes, &[values.as_ptr() as usize], &[]);
            assert_eq!(found.map(|block| assert_eq!(block, vec![7; bytes])), answer);
        }
        let outside = [parameter(8, 8)];
        let found = block(&outside, 12, &[values.as_ptr() as usize], &[]);
        assert_eq!(found, Err(Code::INVALID_VALUE));
    }

    #[test]
    fn a_kernel_with_parameters_needs_them_in_one_form() {
        let value = [0_u8; 8];
        let pointers = [value.as_ptr() as usize; 4];
        assert_eq!(block(&LAYOUT, 22, &[], &[]), Err(Code::INVALID_VALUE));
        assert_eq!(
            block(&LAYOUT, 22, &pointers, &[0]),
            Err(Code::INVALID_VALUE)
        );
        assert_eq!(block(&[], 0, &[], &[]), Ok(Vec::new()));
        assert_eq!(block(&[], 0, &pointers, &[]), Ok(Vec::new()));
    }

    #[test]
    fn a_packed_buffer_has_the_size_of_the_block() {
        let buffer: Vec<u8> = (0..64).collect();
        let with_size = |bytes: usize| {
            let size = &raw const bytes as usize;
            let extra = [1, buffer.as_ptr() as usize, 2, size, 0];
            block(&LAYOUT, 22, &[], &extra)
        };
        let wanted: Vec<u8> = (0..22).collect();
        for bytes in [22, 24, 32] {
            assert_eq!(with_size(bytes), Ok(wanted.clone()), "{bytes}");
        }
        for bytes in [0, 21, 33, usize::MAX] {
            assert_eq!(with_size(bytes), Err(Code::INVALID_VALUE), "{bytes}");
        }
    }

    #[test]
    fn lists_of_extra_options_are_checked() {
        let (bytes, buffer) = (22_usize, [0_u8; 22]);
        let (size, at) = (&raw const bytes as usize, buffer.as_ptr() as usize);
        for bad in [
            vec![0],
            vec![1, at, 0],
            vec![2, size, 0],
            vec![2, 0, 0],
            vec![3, at, 0],
            [1, at].repeat(EXTRA_MAX + 1),
        ] {
            assert_eq!(
                block(&LAYOUT, 22, &[], &bad),
                Err(Code::INVALID_VALUE),
                "{bad:?}"
            );
        }
        assert_eq!(
            block(&LAYOUT, 22, &[], &[2, size, 1, at, 0]),
            Ok(vec![0; 22])
        );
        assert_eq!(block(&[], 0, &[], &[0]), Err(Code::INVALID_VALUE));
    }
}
