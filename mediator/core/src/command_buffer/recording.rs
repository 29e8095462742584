//! From packets that a guest gave to be recorded to work for the back end.

use causeway_protocol::message::Status;
use causeway_protocol::packet::{Fence, UNIT_BYTES};

use super::execute::{Stop, check_launch};
use super::packet::{self, Packet};
use crate::backend::{Attributes, Recorded};
use crate::refusal::Refusal;
use crate::shared_space::SharedSpace;

/// Decodes and validates packets that lie one after the other in `bytes`, a private copy of whole units, as those of
/// a ring are. A refusal carries the offset of the packet in bytes.
pub(crate) fn compile(
    bytes: &[u8],
    space: &SharedSpace,
    attributes: &Attributes,
) -> Result<Vec<Recorded>, Refusal> {
    let mut work = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let refuse = |status| Refusal::with(status, at as u32);
        let limit = (rest.len() / UNIT_BYTES) as u64;
        // A packet that is cut off would be longer than the limit: there is nothing behind the copy.
        let (packet, units) = packet::decode(rest, limit)
            .map_err(refuse)?
            .ok_or(refuse(Status::BadPacket))?;
        let piece = record(packet, space, attributes).map_err(|stop| {
            log::debug!("a recording's packet at {at:#x}: {stop:?}");
            refuse(stop.status())
        })?;
        work.extend(piece);
        at += units as usize * UNIT_BYTES;
    }
    Ok(work)
}

/// What a packet asks for; nothing for a no-op.
fn record(
    packet: Packet<'_>,
    space: &SharedSpace,
    attributes: &Attributes,
) -> Result<Option<Recorded>, Stop> {
    let recorded = match packet {
        Packet::Nop => return Ok(None),
        Packet::Launch(launch, parameters) => {
            let function = space.launchable(launch.function)?;
            let shape = launch.shape;
            check_launch(attributes, &*function, &shape, parameters.len())?;
            Recorded::Launch {
                function,
                shape,
                parameters: parameters.into(),
            }
        }
        Packet::Copy(copy) => Recorded::Copy {
            destination: copy.destination,
            source: copy.source,
            bytes: copy.length,
        },
        Packet::Fill(fill) => Recorded::Fill {
            destination: fill.destination,
            bytes: fill.length,
            pattern: fill.pattern,
            width: fill.width,
        },
        Packet::Release(Fence { address, value, .. }) => Recorded::Release { address, value },
        Packet::Timestamp(Fence { address, .. }) => Recorded::Timestamp { address },
        // A recording that waits, or that contains others, would have no bound on what it does.
        Packet::Acquire(_) | Packet::Replay(_) => {
            let text = format!("a recording cannot hold a {}", packet.opcode().name());
            return Err(Stop::fault(Status::BadPacket, text));
        }
    };
    Ok(Some(recorded))
}
