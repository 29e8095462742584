//! Accesses to the aperture that arrive as exits: holes, forbidden stores, and anything while the slots are down.

use causeway_protocol::Access;

use super::Aperture;
use crate::bus::{BusDevice, Refusal, Response};

/// Register name under which accesses to placed memory are counted.
const MAPPED: &str = "mapped";

impl BusDevice for Aperture {
    fn name(&self) -> &'static str {
        "aperture"
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        let state = self.state();
        match state.find(offset, into.len() as u64) {
            Some((_, placement)) if placement.access.allows(Access::Read) => {}
            _ => return Response::refused(Refusal::Hole),
        }
        self.load(offset, into);
        drop(state);
        Response::ok(MAPPED)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let state = self.state();
        let access = state
            .find(offset, from.len() as u64)
            .map(|(_, placement)| placement.access);
        match access {
            None | Some(Access::None) => return Response::refused(Refusal::Hole),
            Some(Access::Read) => return Response::refused(Refusal::WriteForbidden),
            Some(Access::ReadWrite) => {}
        }
        self.store(offset, from);
        drop(state);
        Response::ok(MAPPED)
    }
}

#[allow(unsafe_code)] // Reaches guest memory through the window, by volatile accesses.
impl Aperture {
    /// Loads from a placement that the guest may read. The state's lock is held, so that it stays placed.
    fn load(&self, offset: u64, into: &mut [u8]) {
        let from = self.address(offset);
        let aligned = (from as usize).is_multiple_of(into.len().max(1));
        // SAFETY: the range is a live, readable placement with pages behind it, kept so by the lock; accesses are
        // volatile and of the width the guest used, so that it sees no torn words.
        unsafe {
            match into.len() {
                8 if aligned => {
                    into.copy_from_slice(&from.cast::<u64>().read_volatile().to_le_bytes())
                }
                4 if aligned => {
                    into.copy_from_slice(&from.cast::<u32>().read_volatile().to_le_bytes())
                }
                2 if aligned => {
                    into.copy_from_slice(&from.cast::<u16>().read_volatile().to_le_bytes())
                }
                _ => {
                    for (i, byte) in into.iter_mut().enumerate() {
                        *byte = from.add(i).read_volatile();
                    }
                }
            }
        }
    }

    /// Stores to a placement that the guest may write. The state's lock is held, so that it stays placed.
    fn store(&self, offset: u64, from: &[u8]) {
        let to = self.address(offset);
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

    fn address(&self, offset: u64) -> *mut u8 {
        // SAFETY: callers found a placement at the offset, so it lies within the window.
        unsafe { self.window.as_ptr().as_ptr().add(offset as usize) }
    }
}
