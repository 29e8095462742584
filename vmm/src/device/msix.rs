//! MSI-X table and pending bits (PCI Local Bus Specification 3.0, 6.8.2). Vectors can be programmed and read back;
//! none is raised: completions are polled.

use std::sync::{Mutex, PoisonError};

use crate::bus::{Refusal, Response};

/// Number of vectors.
pub const VECTORS: u16 = 64;

/// Words of a table entry: address low and high, data, control.
const ENTRY_WORDS: usize = 4;
const TABLE_WORDS: usize = VECTORS as usize * ENTRY_WORDS;
/// Bytes of the pending bits, in units of 8.
const PENDING_BYTES: u64 = (VECTORS as u64).div_ceil(64) * 8;
/// Control word bit 0: the vector is masked; the state after reset.
const CONTROL_MASKED: u32 = 1;
/// Address bits that can be written: messages are aligned to 4 bytes.
const ADDRESS_WRITABLE: u32 = !3;

/// The table. Software accesses it by aligned 4- and 8-byte words.
#[derive(Debug)]
pub struct MsixTable {
    words: Mutex<[u32; TABLE_WORDS]>,
}

impl Default for MsixTable {
    fn default() -> Self {
        let mut words = [0; TABLE_WORDS];
        for entry in words.chunks_exact_mut(ENTRY_WORDS) {
            entry[3] = CONTROL_MASKED;
        }
        Self {
            words: Mutex::new(words),
        }
    }
}

impl MsixTable {
    /// A load at `offset` of the table.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        let first = match first_word(offset, into.len()) {
            Ok(first) => first,
            Err(refusal) => return Response::refused(refusal),
        };
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        for (bytes, word) in into.chunks_exact_mut(4).zip(&words[first..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Response::ok("msix_table")
    }

    /// A store at `offset` of the table.
    pub fn write(&self, offset: u64, from: &[u8]) -> Response {
        let first = match first_word(offset, from.len()) {
            Ok(first) => first,
            Err(refusal) => return Response::refused(refusal),
        };
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, bytes) in from.chunks_exact(4).enumerate() {
            let writable = match (first + i) % ENTRY_WORDS {
                0 => ADDRESS_WRITABLE,
                3 => CONTROL_MASKED,
                _ => u32::MAX,
            };
            let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            words[first + i] = value & writable;
        }
        Response::ok("msix_table")
    }

    /// A load at `offset` of the pending bits, of which none is ever set.
    pub fn read_pending(offset: u64, into: &mut [u8]) -> Response {
        let bytes = into.len() as u64;
        if !matches!(bytes, 4 | 8) {
            return Response::refused(Refusal::BadSize);
        }
        if !offset.is_multiple_of(bytes) {
            return Response::refused(Refusal::Misaligned);
        }
        if offset + bytes > PENDING_BYTES {
            return Response::refused(Refusal::NoRegister);
        }
        into.fill(0);
        Response::ok("msix_pending")
    }
}

/// Index of the first word of an access that lies within the table.
fn first_word(offset: u64, bytes: usize) -> Result<usize, Refusal> {
    if !matches!(bytes, 4 | 8) {
        return Err(Refusal::BadSize);
    }
    if !offset.is_multiple_of(bytes as u64) {
        return Err(Refusal::Misaligned);
    }
    let first = (offset / 4) as usize;
    if first + bytes / 4 > TABLE_WORDS {
        return Err(Refusal::NoRegister);
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read4(table: &MsixTable, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        assert_eq!(table.read(offset, &mut bytes).result, Ok(()));
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn vectors_start_masked_and_hold_what_is_programmed() {
        let table = MsixTable::default();
        let last = u64::from(VECTORS - 1) * 16;
        assert_eq!(read4(&table, last + 12), CONTROL_MASKED);
        let message = 0x0000_0001_fee0_1003u64.to_le_bytes();
        assert_eq!(table.write(last, &message).result, Ok(()));
        assert_eq!(table.write(last + 8, &[1, 2, 3, 4]).result, Ok(()));
        assert_eq!(
            table.write(last + 12, &[0xfe, 0xff, 0xff, 0xff]).result,
            Ok(())
        );
        assert_eq!(
            read4(&table, last),
            0xfee0_1000,
            "address bits 1:0 are zero"
        );
        assert_eq!(read4(&table, last + 4), 1);
        assert_eq!(read4(&table, last + 8), 0x0403_0201);
        assert_eq!(
            read4(&table, last + 12),
            0,
            "reserved control bits are zero"
        );
        assert_eq!(read4(&table, 12), CONTROL_MASKED);
    }

    #[test]
    fn other_widths_alignments_and_offsets_are_refused() {
        let table = MsixTable::default();
        let end = u64::from(VECTORS) * 16;
        for (offset, bytes, refusal) in [
            (0, 1, Refusal::BadSize),
            (0, 2, Refusal::BadSize),
            (2, 4, Refusal::Misaligned),
            (4, 8, Refusal::Misaligned),
            (end, 4, Refusal::NoRegister),
            (end, 8, Refusal::NoRegister),
        ] {
            let mut data = vec![0; bytes];
            assert_eq!(
                table.read(offset, &mut data).result,
                Err(refusal),
                "{offset:#x}"
            );
            assert_eq!(
                table.write(offset, &data).result,
                Err(refusal),
                "{offset:#x}"
            );
        }
    }

    #[test]
    fn nothing_is_pending() {
        let mut bytes = [1; 8];
        assert_eq!(MsixTable::read_pending(0, &mut bytes).result, Ok(()));
        assert_eq!(bytes, [0; 8]);
        for (offset, size) in [(PENDING_BYTES, 4), (0, 2), (2, 4)] {
            assert!(
                MsixTable::read_pending(offset, &mut bytes[..size])
                    .result
                    .is_err()
            );
        }
    }
}
