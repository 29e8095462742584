//! The addresses from which a pool chooses those of its chunks.

use causeway_protocol::message::{Opcode, Status};

use crate::error::{AllocateError, Refusal};
use crate::memory::PAGE_BYTES;
use causeway_protocol::message::MemoryKind;

/// Addresses of chunks are multiples of this, as those of large pages of GPUs.
const ALIGNMENT: u64 = 2 << 20;

/// A range of addresses, of which the next one is taken each time. The device knows which are in
/// use.
#[derive(Debug)]
pub(super) struct AddressWindow {
    first: u64,
    end: u64,
    next: u64,
}

impl AddressWindow {
    pub(super) const fn new(first: u64, end: u64) -> Self {
        let first = first.next_multiple_of(ALIGNMENT);
        Self {
            first,
            end,
            next: first,
        }
    }

    /// Calls `map` with one address after the other where `bytes` bytes could be, until it is one
    /// that is not in use. Begins behind the last one, and looks at each place once.
    pub(super) fn place<T>(
        &mut self,
        bytes: u64,
        mut map: impl FnMut(u64) -> Result<T, AllocateError>,
    ) -> Result<T, AllocateError> {
        let step = bytes.max(PAGE_BYTES).next_multiple_of(ALIGNMENT);
        let room = self.end.saturating_sub(self.first);
        // The places behind the last one, and those that begin again at the first address.
        for _ in 0..room / step + 1 {
            if self.next > self.end || self.end - self.next < step {
                self.next = self.first;
            }
            if step > room {
                break;
            }
            let at = self.next;
            self.next += step;
            match map(at) {
                Err(error) if error.status() == Status::AddressInUse => {}
                done => return done,
            }
        }
        let refusal = Refusal::new(Opcode::MapGpu, Status::NoMemory, 0);
        Err(AllocateError {
            bytes,
            kind: MemoryKind::Device,
            refusal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn in_use(bytes: u64) -> AllocateError {
        AllocateError {
            bytes,
            kind: MemoryKind::Device,
            refusal: Refusal::new(Opcode::MapGpu, Status::AddressInUse, 0),
        }
    }

    #[test]
    fn addresses_follow_each_other_and_begin_again_where_they_are_free() {
        let mut window = AddressWindow::new(MIB, 10 * MIB);
        let mut taken = [0; 5];
        for taken in &mut taken {
            *taken = window.place(2 * MIB, Ok).unwrap() / MIB;
        }
        assert_eq!(taken, [2, 4, 6, 8, 2]);
        let free = |at: u64| match at == 6 * MIB {
            true => Ok(at),
            false => Err(in_use(2 * MIB)),
        };
        assert_eq!(window.place(2 * MIB, free).unwrap(), 6 * MIB);
        let full = window.place(2 * MIB, |_| Err::<u64, _>(in_use(2 * MIB)));
        assert_eq!(full.unwrap_err().status(), Status::NoMemory);
        let large = window.place(16 * MIB, Ok);
        assert_eq!(large.unwrap_err().status(), Status::NoMemory);
    }

    #[test]
    fn another_refusal_ends_the_search() {
        let mut window = AddressWindow::new(0, 64 * MIB);
        let mut asked = 0;
        let refused = window.place(MIB, |_| {
            asked += 1;
            let refusal = Refusal::new(Opcode::Allocate, Status::NoMemory, 0);
            Err::<u64, _>(AllocateError {
                bytes: MIB,
                kind: MemoryKind::Device,
                refusal,
            })
        });
        assert_eq!((refused.is_err(), asked), (true, 1));
    }
}
