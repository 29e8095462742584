//! Decompression of parts of fat binaries, with bounds that do not depend on what the part says.

use std::io::Read as _;

use ruzstd::decoding::StreamingDecoder;

use super::BYTES_MAX;

/// How a part of a fat binary is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// One LZ4 block.
    Lz4,
    /// One frame of Zstandard (RFC 8878).
    Zstd,
}

/// A byte of an LZ4 block yields at most 255 bytes (LZ4 block format, "Compressed block format").
const LZ4_RATIO_MAX: u64 = 255;

/// Returns the content of `compressed`, which is to have at most `bytes` bytes; `None` if it is
/// malformed or has more.
pub(super) fn decompress(method: Method, compressed: &[u8], bytes: u64) -> Option<Vec<u8>> {
    if bytes > BYTES_MAX {
        return None;
    }
    match method {
        Method::Lz4 => lz4(compressed, bytes),
        Method::Zstd => zstd(compressed, bytes),
    }
}

fn lz4(compressed: &[u8], bytes: u64) -> Option<Vec<u8>> {
    let possible = (compressed.len() as u64).saturating_mul(LZ4_RATIO_MAX);
    let mut content = vec![0; bytes.min(possible) as usize];
    let used = lz4_flex::block::decompress_into(compressed, &mut content).ok()?;
    content.truncate(used);
    Some(content)
}

/// The content grows as it is decompressed: a frame of a few bytes may say that it has any number.
fn zstd(compressed: &[u8], bytes: u64) -> Option<Vec<u8>> {
    let decoder =
        StreamingDecoder::new_with_max_window_size(compressed, bytes.max(1 << 20)).ok()?;
    let mut content = Vec::new();
    decoder.take(bytes + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= bytes).then_some(content)
}

#[cfg(test)]
pub(crate) mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    pub(in crate::image) fn compress(method: Method, content: &[u8]) -> Vec<u8> {
        match method {
            Method::Lz4 => lz4_flex::block::compress(content),
            Method::Zstd => compress_to_vec(content, CompressionLevel::Fastest),
        }
    }

    #[test]
    fn content_comes_back() {
        let content = ".version 8.0\n".repeat(1000);
        for method in [Method::Lz4, Method::Zstd] {
            let compressed = compress(method, content.as_bytes());
            assert!(compressed.len() < content.len() / 2, "{method:?}");
            let bytes = content.len() as u64;
            let found = decompress(method, &compressed, bytes);
            assert_eq!(found.as_deref(), Some(content.as_bytes()), "{method:?}");
        }
    }

    #[test]
    fn no_content_is_longer_than_declared() {
        let content = vec![b'x'; 4 << 20];
        for method in [Method::Lz4, Method::Zstd] {
            let compressed = compress(method, &content);
            assert_eq!(
                decompress(method, &compressed, (4 << 20) - 1),
                None,
                "{method:?}"
            );
            assert_eq!(
                decompress(method, &compressed, BYTES_MAX + 1),
                None,
                "{method:?}"
            );
        }
    }

    #[test]
    fn cut_content_is_refused() {
        let content: Vec<u8> = (0..2000_u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        for method in [Method::Lz4, Method::Zstd] {
            let compressed = compress(method, &content);
            for end in 0..compressed.len() {
                let found = decompress(method, &compressed[..end], content.len() as u64);
                assert_ne!(found.as_ref(), Some(&content), "{method:?} {end}");
            }
        }
    }
}
