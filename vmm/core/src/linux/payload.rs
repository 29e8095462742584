//! The compressed kernel within a bzImage, decompressed on the host if that is cheap: a block at a
//! time, so that no copy of the whole is made on the way into guest memory.
//!
//! LZ4 is: Linux writes it in the legacy frame format of the `lz4` tool (lz4_Frame_format.md,
//! "Legacy frame"): a magic number, then blocks with their compressed sizes, each of 8 MiB but for
//! the last. Behind it are four bytes with the size of the whole, which are part of the payload.
//! Other formats are left to the kernel itself.

use lz4_flex::block::{DecompressError, decompress_into};

const MAGIC: &[u8] = &0x184c_2102u32.to_le_bytes();
const BLOCK_BYTES: usize = 8 << 20;
/// Largest kernel that is decompressed: ten times what distributions have.
const KERNEL_BYTES_MAX: usize = 1 << 29;

/// Why the compressed kernel in a bzImage (its payload) cannot be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// The size behind the payload is zero or too large.
    #[error(
        "the compressed kernel claims a decompressed size of {bytes} bytes, but only 1 to \
         {KERNEL_BYTES_MAX} are possible: download the kernel again"
    )]
    Size {
        /// Size of the decompressed kernel in bytes, as the four bytes behind the payload say.
        bytes: usize,
    },
    /// A compressed block is truncated, or does not decompress to the size that it must have.
    #[error(
        "the compressed kernel is damaged: its LZ4 block {block} does not decompress to {expected} \
         bytes; download the kernel again"
    )]
    Block {
        /// Number of the damaged block, from 0.
        block: usize,
        /// Size that the block must have when it is decompressed, in bytes.
        expected: usize,
        /// The decompressor's error; `None` if the block is truncated or decompresses to another
        /// size.
        source: Option<DecompressError>,
    },
}

/// Returns whether `payload`, the compressed kernel in a bzImage, is in the one compression format
/// that [`Payload`] can decompress: LZ4 in the legacy frame format.
pub fn is_known(payload: &[u8]) -> bool {
    payload.starts_with(MAGIC) && payload.len() >= MAGIC.len() + 4
}

/// The compressed kernel in a bzImage, in a compression format that the host can decompress
/// ([`is_known`]).
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    blocks: &'a [u8],
    bytes: usize,
}

impl<'a> Payload<'a> {
    /// Returns `payload` as a compressed kernel. The caller has checked its format with
    /// [`is_known`].
    ///
    /// # Errors
    /// [`PayloadError::Size`] if the size of the decompressed kernel, which the last four bytes
    /// contain, is zero or too large.
    pub fn new(payload: &'a [u8]) -> Result<Self, PayloadError> {
        let blocks = payload.get(MAGIC.len()..).unwrap_or_default();
        let (blocks, size) = blocks
            .split_last_chunk::<4>()
            .ok_or(PayloadError::Size { bytes: 0 })?;
        let bytes = u32::from_le_bytes(*size) as usize;
        if !(1..=KERNEL_BYTES_MAX).contains(&bytes) {
            return Err(PayloadError::Size { bytes });
        }
        Ok(Self { blocks, bytes })
    }

    /// Returns the size of the decompressed kernel in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decompresses the first block of the kernel, which contains its headers, and returns it.
    ///
    /// # Errors
    /// [`PayloadError::Block`] if the block is damaged.
    pub fn head(&self) -> Result<Vec<u8>, PayloadError> {
        let mut head = vec![0; self.bytes.min(BLOCK_BYTES)];
        decompress_block(self.blocks, 0, &mut head)?;
        Ok(head)
    }

    /// Decompresses the kernel block by block. Calls `take` with each decompressed block and the
    /// block's offset in the decompressed kernel.
    ///
    /// # Errors
    /// [`PayloadError::Block`] if a block is damaged, or the first error that `take` returns.
    pub fn for_each_block<E: From<PayloadError>>(
        &self,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut blocks = self.blocks;
        let mut buffer = vec![0; self.bytes.min(BLOCK_BYTES)];
        for (number, offset) in (0..self.bytes).step_by(BLOCK_BYTES).enumerate() {
            let into = &mut buffer[..(self.bytes - offset).min(BLOCK_BYTES)];
            blocks = decompress_block(blocks, number, into)?;
            take(offset as u64, into)?;
        }
        Ok(())
    }
}

/// Decompresses the first of `blocks`, which must fill `into`. Returns the blocks behind it.
fn decompress_block<'a>(
    blocks: &'a [u8],
    block: usize,
    into: &mut [u8],
) -> Result<&'a [u8], PayloadError> {
    let expected = into.len();
    let damaged = |source| PayloadError::Block {
        block,
        expected,
        source,
    };
    let (from, rest) = split_block(blocks).ok_or_else(|| damaged(None))?;
    match decompress_into(from, into) {
        Ok(got) if got == expected => Ok(rest),
        Ok(_) => Err(damaged(None)),
        Err(e) => Err(damaged(Some(e))),
    }
}

/// Returns the first block, and what is behind it.
fn split_block(blocks: &[u8]) -> Option<(&[u8], &[u8])> {
    let (size, rest) = blocks.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*size) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LZ4 without compression: one sequence of literals (lz4_Block_format.md).
    fn literals(bytes: &[u8]) -> Vec<u8> {
        let mut block = Vec::new();
        match bytes.len() {
            short @ ..15 => block.push((short as u8) << 4),
            long => {
                block.push(0xf0);
                block.extend(std::iter::repeat_n(255, (long - 15) / 255));
                block.push(((long - 15) % 255) as u8);
            }
        }
        block.extend(bytes);
        block
    }

    fn payload(blocks: &[Vec<u8>], size: u32) -> Vec<u8> {
        let mut payload = MAGIC.to_vec();
        for block in blocks {
            payload.extend((block.len() as u32).to_le_bytes());
            payload.extend(block);
        }
        payload.extend(size.to_le_bytes());
        payload
    }

    fn decompress(payload: &[u8]) -> Result<Vec<u8>, PayloadError> {
        let payload = Payload::new(payload)?;
        let mut kernel = Vec::new();
        payload.for_each_block(|offset, block| {
            assert_eq!(offset, kernel.len() as u64);
            kernel.extend_from_slice(block);
            Ok::<_, PayloadError>(())
        })?;
        assert_eq!(kernel.len(), payload.bytes());
        assert!(kernel.starts_with(&payload.head()?));
        Ok(kernel)
    }

    #[test]
    fn blocks_follow_each_other() {
        let first = vec![7; BLOCK_BYTES];
        let whole = payload(
            &[literals(&first), literals(b"end")],
            BLOCK_BYTES as u32 + 3,
        );
        assert!(is_known(&whole));
        let kernel = decompress(&whole).unwrap();
        assert_eq!(kernel.len(), BLOCK_BYTES + 3);
        assert_eq!(kernel[BLOCK_BYTES - 1..], *b"\x07end");
    }

    #[test]
    fn damage_is_told_with_the_block_it_is_in() {
        let block = literals(b"kernel");
        for (size, bytes) in [(0, 0), (u32::MAX, u32::MAX as usize)] {
            let error = decompress(&payload(std::slice::from_ref(&block), size)).unwrap_err();
            assert!(matches!(error, PayloadError::Size { bytes: b } if b == bytes));
        }
        for size in [5, 7] {
            let error = decompress(&payload(std::slice::from_ref(&block), size)).unwrap_err();
            assert!(
                matches!(error, PayloadError::Block { block: 0, .. }),
                "{error}"
            );
        }
        let mut cut = payload(&[block], 6);
        cut.drain(10..12);
        assert!(decompress(&cut).is_err());
        let error = decompress(&payload(&[], 6)).unwrap_err();
        assert!(error.to_string().contains("block 0"), "{error}");
    }

    #[test]
    fn other_formats_are_not_known() {
        for magic in [
            &b"\xfd7zXZ\0"[..],
            b"\x1f\x8b",
            b"\x28\xb5\x2f\xfd",
            b"",
            MAGIC,
        ] {
            assert!(!is_known(magic));
        }
    }
}
