//! Frames: a message as JSON, and bytes that belong to it.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | magic |
//! | 4 | length of the message, little-endian |
//! | 4 | length of the body |
//! | 4 | CRC-32 (IEEE 802.3) of message and body |
//! | … | message, then body |

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

const MAGIC: [u8; 4] = *b"CwN1";
const PREFIX_BYTES: usize = 16;
/// Longest message in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Longest body in bytes.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Why a frame could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection failed or ended.
    #[error("the connection between host and agent ended")]
    Connection(#[from] io::Error),
    /// Something else came where a frame should begin.
    #[error("a frame begins with {0:02x?}, which is no frame")]
    Magic([u8; 4]),
    /// Longer than any frame may be.
    #[error("a frame of {message} and {body} bytes is too long")]
    Length {
        /// Bytes of the message.
        message: usize,
        /// Bytes of the body.
        body: usize,
    },
    /// Not what was sent.
    #[error("a frame's checksum is {found:#010x} where its sender says {said:#010x}")]
    Checksum {
        /// As computed here.
        found: u32,
        /// As computed by the sender.
        said: u32,
    },
    /// A frame in order with a message that is not known.
    #[error("a message cannot be understood")]
    Message(#[from] serde_json::Error),
}

/// Writes a frame.
///
/// # Errors
/// What the writer says; also if message or body are too long.
pub fn write<M: Serialize>(to: &mut impl Write, message: &M, body: &[u8]) -> io::Result<()> {
    let message = serde_json::to_vec(message)?;
    if message.len() > MESSAGE_BYTES_MAX || body.len() > BODY_BYTES_MAX {
        let lengths = format!("{} and {} bytes", message.len(), body.len());
        return Err(io::Error::other(format!(
            "a frame of {lengths} is too long"
        )));
    }
    let mut frame = Vec::with_capacity(PREFIX_BYTES + message.len() + body.len());
    frame.extend(MAGIC);
    frame.extend((message.len() as u32).to_le_bytes());
    frame.extend((body.len() as u32).to_le_bytes());
    frame.extend(checksum(&[&message, body]).to_le_bytes());
    frame.extend(&message);
    frame.extend(body);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads a frame: its message and its body.
///
/// # Errors
/// [`FrameError`]. After any of them the connection is of no use any more.
pub fn read<M: DeserializeOwned>(from: &mut impl Read) -> Result<(M, Vec<u8>), FrameError> {
    let mut words = [[0; 4]; PREFIX_BYTES / 4];
    for word in &mut words {
        from.read_exact(word)?;
    }
    let [magic, message, body, said] = words;
    if magic != MAGIC {
        return Err(FrameError::Magic(magic));
    }
    let [message, body, said] = [message, body, said].map(u32::from_le_bytes);
    let (message, body) = (message as usize, body as usize);
    if message > MESSAGE_BYTES_MAX || body > BODY_BYTES_MAX {
        return Err(FrameError::Length { message, body });
    }
    let (mut message, mut body) = (vec![0; message], vec![0; body]);
    from.read_exact(&mut message)?;
    from.read_exact(&mut body)?;
    let found = checksum(&[&message, &body]);
    if found != said {
        return Err(FrameError::Checksum { found, said });
    }
    Ok((serde_json::from_slice(&message)?, body))
}

/// CRC-32 as of IEEE 802.3, over parts in a row.
fn checksum(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    !bytes.fold(!0, |sum: u32, byte| {
        REMAINDERS[(sum as u8 ^ byte) as usize] ^ sum >> 8
    })
}

/// Remainder of each byte, by the reversed polynomial.
const REMAINDERS: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let odd = remainder & 1;
            remainder = remainder >> 1 ^ if odd == 1 { 0xedb8_8320 } else { 0 };
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, &"message", b"body").unwrap();
        bytes
    }

    #[test]
    fn the_checksum_is_the_well_known_one() {
        assert_eq!(checksum(&[b"1234", b"56789"]), 0xcbf4_3926);
    }

    #[test]
    fn frames_come_back_one_after_another() {
        let mut bytes = frame();
        write(&mut bytes, &"second", b"").unwrap();
        let mut from = bytes.as_slice();
        let first: (String, Vec<u8>) = read(&mut from).unwrap();
        assert_eq!(first, ("message".to_owned(), b"body".to_vec()));
        assert_eq!(read::<String>(&mut from).unwrap().0, "second");
        assert!(matches!(
            read::<String>(&mut from),
            Err(FrameError::Connection(_))
        ));
    }

    #[test]
    fn what_was_damaged_on_the_way_is_noticed() {
        let read = |bytes: &[u8]| read::<String>(&mut &*bytes).unwrap_err();
        for at in PREFIX_BYTES..frame().len() {
            let mut bytes = frame();
            bytes[at] ^= 0x20;
            assert!(
                matches!(read(&bytes), FrameError::Checksum { .. }),
                "byte {at}"
            );
        }
        let mut bytes = frame();
        bytes[0] = 0x1b;
        assert!(matches!(read(&bytes), FrameError::Magic(_)));
        let mut bytes = frame();
        bytes[11] = 0xff;
        assert!(matches!(read(&bytes), FrameError::Length { .. }));
    }

    #[test]
    fn a_message_of_another_kind_is_an_error() {
        let error = read::<Vec<u32>>(&mut frame().as_slice()).unwrap_err();
        assert!(matches!(error, FrameError::Message(_)), "{error}");
    }
}
