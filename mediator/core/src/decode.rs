//! Framing of a control batch, and the checks that hold for every message.

use std::ops::Range;
use std::sync::LazyLock;

use causeway_protocol::message::{Header, Opcode, PREVIOUS, STRUCTURES, Status, message_bytes};
use causeway_protocol::registers::CONTROL_BYTES_MAX;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::refusal::Refusal;

/// Bytes of a message's header.
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();

/// Checks the framing of a batch: a multiple of 8 bytes within the limit, which ends where a
/// message ends.
pub(crate) fn check_batch(batch: &[u8]) -> Status {
    if batch.is_empty()
        || batch.len() > CONTROL_BYTES_MAX as usize
        || !batch.len().is_multiple_of(8)
    {
        return Status::BadLength;
    }
    let mut at = 0;
    while at < batch.len() {
        if batch.len() - at < HEADER_BYTES {
            return Status::BadLength;
        }
        match framed_bytes(&batch[at..]) {
            Some(bytes) => at += bytes,
            // Reported in that message when its turn comes.
            None => break,
        }
    }
    Status::Ok
}

/// Returns the length that the first message of `rest` states, if another message can begin behind
/// it.
pub(crate) fn framed_bytes(rest: &[u8]) -> Option<usize> {
    let (header, _) = Header::read_from_prefix(rest).ok()?;
    let bytes = usize::try_from(header.length).ok()?;
    let fits = (HEADER_BYTES..=rest.len()).contains(&bytes) && bytes.is_multiple_of(8);
    fits.then_some(bytes)
}

/// Checks the header and the length of the message at the beginning of `rest`, and that all
/// reserved bytes are zero.
pub(crate) fn check_message(rest: &[u8]) -> Result<Opcode, Refusal> {
    let (header, _) =
        Header::read_from_prefix(rest).map_err(|_| Refusal::new(Status::BadLength))?;
    let opcode = Opcode::from_wire(header.opcode).ok_or(Refusal::new(Status::BadOpcode))?;
    let wanted = message_bytes(opcode);
    if header.length as usize != wanted || rest.len() < wanted {
        return Err(Refusal::with(Status::BadLength, wanted as u32));
    }
    let reserved = RESERVED[opcode as usize].iter();
    match reserved
        .flat_map(Clone::clone)
        .find(|offset| rest[*offset] != 0)
    {
        Some(offset) => Err(Refusal::with(Status::ReservedNotZero, offset as u32)),
        None => Ok(opcode),
    }
}

/// Writes the status of a message into its header.
pub(crate) fn write_status(message: &mut [u8], status: Status, detail: u32) {
    let words = [(status as u32).to_le_bytes(), detail.to_le_bytes()];
    let at = std::mem::offset_of!(Header, status);
    if let Some(field) = message.get_mut(at..at + 8) {
        field.copy_from_slice(words.as_flattened());
    }
}

/// Returns the request in a checked body.
pub(crate) fn request<T: FromBytes>(body: &[u8]) -> Result<T, Refusal> {
    match T::read_from_prefix(body) {
        Ok((request, _)) => Ok(request),
        Err(_) => Err(Refusal::new(Status::BadLength)),
    }
}

/// Writes a reply over the request.
pub(crate) fn reply<T: IntoBytes + Immutable>(body: &mut [u8], reply: &T) {
    let bytes = reply.as_bytes();
    let (head, tail) = body.split_at_mut(bytes.len().min(body.len()));
    head.copy_from_slice(&bytes[..head.len()]);
    tail.fill(0);
}

/// The meaning of [`PREVIOUS`] in one batch.
#[derive(Debug, Default)]
pub(crate) struct Previous(Option<u32>);

impl Previous {
    /// Returns `handle`, or, if it is [`PREVIOUS`], the handle that an earlier message of the same
    /// batch returned last. Fails with `BadHandle` if no earlier message returned one.
    pub fn resolve(&self, handle: u32) -> Result<u32, Refusal> {
        match handle {
            PREVIOUS => self.0.ok_or(Refusal::bad_handle(PREVIOUS)),
            handle => Ok(handle),
        }
    }

    /// Records `handle`, which a message of the batch has just returned, as the meaning of
    /// [`PREVIOUS`].
    pub fn set(&mut self, handle: u32) {
        self.0 = Some(handle);
    }
}

/// Ranges of a message, by opcode, that must be zero in a request: those of the header, the fields
/// named `reserved` of the request structure, and bytes that only the reply uses. From the
/// protocol's tables.
static RESERVED: LazyLock<[Vec<Range<usize>>; Opcode::SLOTS]> = LazyLock::new(|| {
    std::array::from_fn(|number| {
        Opcode::from_wire(number as u16).map_or_else(Vec::new, reserved_ranges)
    })
});

fn reserved_ranges(opcode: Opcode) -> Vec<Range<usize>> {
    let mut ranges = vec![
        std::mem::offset_of!(Header, reserved)..std::mem::offset_of!(Header, length),
        std::mem::offset_of!(Header, status)..HEADER_BYTES,
    ];
    let (name, _) = opcode.structures();
    let structure = STRUCTURES.iter().find(|structure| structure.name == name);
    if let Some(structure) = structure {
        for (index, field) in structure.fields.iter().enumerate() {
            let next = structure.fields.get(index + 1);
            let end = next.map_or(structure.bytes, |next| next.offset);
            if field.name == "reserved" {
                ranges.push(HEADER_BYTES + field.offset..HEADER_BYTES + end);
            }
        }
    }
    ranges.push(HEADER_BYTES + opcode.request_bytes()..message_bytes(opcode));
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_protocol::message::OPCODES;

    fn message(opcode: Opcode) -> Vec<u8> {
        let header = Header {
            opcode: opcode as u16,
            length: message_bytes(opcode) as u32,
            ..Header::default()
        };
        let mut bytes = vec![0; message_bytes(opcode)];
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        bytes
    }

    #[test]
    fn every_reserved_byte_is_found_with_its_offset_and_no_other_is() {
        for opcode in OPCODES {
            let clean = message(*opcode);
            assert_eq!(check_message(&clean), Ok(*opcode));
            let ranges = reserved_ranges(*opcode);
            for offset in 8..clean.len() {
                let mut dirty = clean.clone();
                dirty[offset] = 1;
                let reserved = ranges.iter().any(|range| range.contains(&offset));
                let wanted = if reserved {
                    Err(Refusal::with(Status::ReservedNotZero, offset as u32))
                } else {
                    Ok(*opcode)
                };
                assert_eq!(check_message(&dirty), wanted, "{} {offset}", opcode.name());
            }
        }
        // Spot checks against the structures themselves.
        let ranges = reserved_ranges(Opcode::MapGpu);
        assert!(ranges.contains(&(HEADER_BYTES + 36..HEADER_BYTES + 40)));
        assert!(reserved_ranges(Opcode::Hello).contains(&(HEADER_BYTES + 4..HEADER_BYTES + 8)));
        assert!(reserved_ranges(Opcode::Hello).contains(&(HEADER_BYTES + 8..HEADER_BYTES + 24)));
    }

    #[test]
    fn a_wrong_length_names_the_right_one() {
        let mut bytes = message(Opcode::Allocate);
        bytes[4] = 24;
        assert_eq!(
            check_message(&bytes),
            Err(Refusal::with(Status::BadLength, 32))
        );
        assert_eq!(
            check_message(&message(Opcode::Allocate)[..24]),
            Err(Refusal::with(Status::BadLength, 32))
        );
        bytes[0] = 200;
        assert_eq!(check_message(&bytes), Err(Refusal::new(Status::BadOpcode)));
    }

    #[test]
    fn batches_that_cannot_be_framed_are_refused_as_a_whole() {
        let one = message(Opcode::CreateSpace);
        assert_eq!(check_batch(&one), Status::Ok);
        assert_eq!(check_batch(&[]), Status::BadLength);
        // What is wrong with a message alone is reported in that message.
        assert_eq!(check_batch(&[0; HEADER_BYTES]), Status::Ok);
        let longest = vec![0; CONTROL_BYTES_MAX as usize];
        assert_eq!(check_batch(&longest), Status::Ok);
        assert_eq!(check_batch(&one[..20]), Status::BadLength);
        let mut odd = one.clone();
        odd.extend([0; 8]);
        assert_eq!(check_batch(&odd), Status::BadLength);
        assert_eq!(
            check_batch(&vec![0; CONTROL_BYTES_MAX as usize + 8]),
            Status::BadLength
        );
    }

    #[test]
    fn previous_needs_a_previous() {
        let mut previous = Previous::default();
        assert_eq!(
            previous.resolve(PREVIOUS),
            Err(Refusal::bad_handle(PREVIOUS))
        );
        previous.set(7);
        assert_eq!(previous.resolve(PREVIOUS), Ok(7));
        assert_eq!(previous.resolve(9), Ok(9));
    }
}
