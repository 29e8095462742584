//! From packets that a guest gave to be recorded to work for the back end.

use causeway_protocol::message::Status;
use causeway_protocol::packet::UNIT_BYTES;

use super::execute::{Stop, array_copy};
use super::packet::{self, Decoded, Packet};
use crate::backend::{Launch, Recorded};
use crate::refusal::Refusal;
use crate::shared_space::SharedSpace;

/// Decodes and validates packets that lie one after the other in `bytes`, a private copy of whole
/// units, as those of a ring are. A refusal carries the offset of the packet in bytes.
pub(crate) fn compile(bytes: &[u8], space: &SharedSpace) -> Result<Vec<Recorded>, Refusal> {
    let mut work = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let refuse = |status| Refusal::with(status, at as u32);
        let limit = (rest.len() / UNIT_BYTES) as u64;
        // A packet that is cut off would be longer than the limit: nothing is behind the copy.
        let decoded = packet::decode(rest, limit)
            .map_err(refuse)?
            .ok_or(refuse(Status::BadPacket))?;
        let piece = record(&decoded, space).map_err(|stop| {
            log::debug!("a recording's packet at {at:#x}: {stop:?}");
            refuse(stop.status())
        })?;
        work.extend(piece);
        at += decoded.units as usize * UNIT_BYTES;
    }
    Ok(work)
}

/// Returns what a packet asks for; nothing for a no-op.
fn record(decoded: &Decoded<'_>, space: &SharedSpace) -> Result<Option<Recorded>, Stop> {
    match decoded.packet {
        Packet::Nop => Ok(None),
        Packet::Launch(launch, parameters) => {
            let kernel = space.launchable(launch.kernel)?;
            let checked = Launch::new(&kernel, launch.shape, parameters)
                .and_then(|checked| checked.with_options(launch.options));
            Ok(Some(checked.map_err(Stop::Fault)?.into()))
        }
        Packet::Memory(work) => Ok(Some(Recorded::Memory(work))),
        Packet::Array(copy) => {
            let array = space.array(copy.array)?;
            Ok(Some(array_copy(&array, &copy)?.into()))
        }
        // A recording that waits, or that contains others, would have no bound on what it does.
        Packet::Acquire(_) | Packet::Replay { .. } => {
            let text = format!("a recording cannot hold a {}", decoded.opcode.name());
            Err(Stop::fault(Status::BadPacket, text))
        }
    }
}
