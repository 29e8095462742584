//! Accesses to the aperture that arrive as exits: holes, forbidden stores, and anything while the
//! slots are down.

use causeway_memory::Backing;
use causeway_protocol::Access;

use super::{Aperture, Placement, State};
use crate::bus::{BusDevice, Refusal, Response};

/// Register name under which accesses to placed memory are counted.
const MAPPED: &str = "mapped";

impl BusDevice for Aperture {
    fn name(&self) -> &'static str {
        "aperture"
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        let state = self.state.lock();
        let found = state.find(offset, into.len() as u64);
        let readable = found.filter(|(_, placement)| placement.access.allows(Access::Read));
        let Some(from) = readable.and_then(|found| self.address(&state, found, offset)) else {
            return Response::refused(Refusal::Hole);
        };
        load(from, into);
        Response::ok(MAPPED)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let state = self.state.lock();
        let to = match state.find(offset, from.len() as u64) {
            Some((_, placement)) if placement.access == Access::Read => {
                return Response::refused(Refusal::WriteForbidden);
            }
            found => found.filter(|(_, placement)| placement.access == Access::ReadWrite),
        };
        let Some(to) = to.and_then(|found| self.address(&state, found, offset)) else {
            return Response::refused(Refusal::Hole);
        };
        store(to, from);
        Response::ok(MAPPED)
    }
}

impl Aperture {
    /// Returns the address in this process of the byte at `offset` of the aperture, which lies in
    /// the placement at `start`.
    fn address(
        &self,
        state: &State,
        (start, placement): (u64, &Placement),
        offset: u64,
    ) -> Option<*mut u8> {
        match placement.backing {
            Backing::Host { .. } => {
                let base = self.window.as_ptr().as_ptr();
                Some(base.wrapping_add(offset as usize))
            }
            Backing::Device(_) => state.slots.devices().address(start, offset - start),
        }
    }
}

/// Loads from a placement that the guest may read. The state's lock is held, so that it stays
/// placed.
#[allow(unsafe_code)] // Reaches guest memory, by volatile accesses.
fn load(from: *const u8, into: &mut [u8]) {
    let aligned = (from as usize).is_multiple_of(into.len().max(1));
    // SAFETY: the range is a live, readable placement with pages behind it, kept so by the lock;
    // accesses are volatile and of the width the guest used, so that it sees no torn words.
    unsafe {
        match into.len() {
            8 if aligned => into.copy_from_slice(&from.cast::<u64>().read_volatile().to_le_bytes()),
            4 if aligned => into.copy_from_slice(&from.cast::<u32>().read_volatile().to_le_bytes()),
            2 if aligned => into.copy_from_slice(&from.cast::<u16>().read_volatile().to_le_bytes()),
            _ => {
                for (i, byte) in into.iter_mut().enumerate() {
                    *byte = from.add(i).read_volatile();
                }
            }
        }
    }
}

/// Stores to a placement that the guest may write. The state's lock is held, so that it stays
/// placed.
#[allow(unsafe_code)] // Reaches guest memory, by volatile accesses.
fn store(to: *mut u8, from: &[u8]) {
    let aligned = (to as usize).is_multiple_of(from.len().max(1));
    // SAFETY: as in `load`; the placement is writable.
    unsafe {
        match *from {
            [a, b, c, d, e, f, g, h] if aligned => {
                to.cast::<u64>()
                    .write_volatile(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
            }
            [a, b, c, d] if aligned => {
                to.cast::<u32>()
                    .write_volatile(u32::from_le_bytes([a, b, c, d]));
            }
            [a, b] if aligned => to.cast::<u16>().write_volatile(u16::from_le_bytes([a, b])),
            _ => {
                for (i, byte) in from.iter().enumerate() {
                    to.add(i).write_volatile(*byte);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[test]
    fn an_aligned_word_is_never_seen_half_stored() {
        for bytes in [2, 4, 8] {
            let (word, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
            let (zeros, ones) = (&[0; 8][..bytes], &[0xff; 8][..bytes]);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..10_000_000 {
                        store(word.as_ptr().cast(), ones);
                        store(word.as_ptr().cast(), zeros);
                    }
                    has_ended.store(true, Ordering::Relaxed);
                });
                while !has_ended.load(Ordering::Relaxed) {
                    let mut seen = [0; 8];
                    load(word.as_ptr().cast(), &mut seen[..bytes]);
                    let seen = &seen[..bytes];
                    assert!(seen == zeros || seen == ones, "{seen:x?}");
                }
            });
        }
    }
}
