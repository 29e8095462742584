//! The heap from which kernels allocate with `malloc`: which parts of its addresses are taken.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::address;

/// Bytes of the heap: as many as CUDA gives by default.
pub(crate) const HEAP_BYTES: u64 = 8 << 20;
/// What addresses and sizes of pieces are multiples of. It bounds how many pieces there can be.
const ALIGN_BYTES: u64 = 64;

/// Bytes of memory for the records of all pieces, at most. A tree holds at least 5 of them in a
/// node, which has 11 pairs of words; nodes above have 12 pointers more, and are a fifth as many.
pub(crate) const RECORDS_BYTES: u64 = {
    let nodes = HEAP_BYTES / ALIGN_BYTES / 5;
    let node_bytes = 11 * 16 + 32;
    let bytes = nodes * node_bytes + nodes / 4 * (node_bytes + 12 * 8);
    bytes.next_multiple_of(1 << 20)
};

/// The pieces of a heap. What they hold is mapped elsewhere.
#[derive(Debug)]
pub(crate) struct Heap {
    pieces: Mutex<Pieces>,
}

/// Sizes of pieces by the offset of their first byte. No two free pieces touch.
#[derive(Debug)]
struct Pieces {
    free: BTreeMap<u64, u64>,
    taken: BTreeMap<u64, u64>,
}

impl Default for Heap {
    fn default() -> Self {
        Self {
            pieces: Mutex::new(Pieces::new()),
        }
    }
}

impl Pieces {
    /// One free piece.
    fn new() -> Self {
        Self {
            free: BTreeMap::from([(0, HEAP_BYTES)]),
            taken: BTreeMap::new(),
        }
    }
}

impl Heap {
    /// Takes a piece of `bytes` bytes, and returns its address; `None` if no free piece is large
    /// enough.
    pub(crate) fn allocate(&self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGN_BYTES)?;
        let mut pieces = self.pieces.lock();
        let mut fits = pieces.free.iter().filter(|(_, size)| **size >= bytes);
        let (at, size) = fits.next().map(|(at, size)| (*at, *size))?;
        pieces.free.remove(&at);
        if size > bytes {
            pieces.free.insert(at + bytes, size - bytes);
        }
        pieces.taken.insert(at, bytes);
        Some(address::HEAP.start + at)
    }

    /// Gives all pieces back.
    pub(crate) fn clear(&self) {
        *self.pieces.lock() = Pieces::new();
    }

    /// Gives the piece at `address` back. Does nothing if no piece begins there.
    pub(crate) fn free(&self, address: u64) {
        let mut pieces = self.pieces.lock();
        let offset = address.wrapping_sub(address::HEAP.start);
        let Some(mut bytes) = pieces.taken.remove(&offset) else {
            return;
        };
        let mut at = offset;
        if let Some(behind) = pieces.free.remove(&(at + bytes)) {
            bytes += behind;
        }
        let before = pieces.free.range(..at).next_back();
        if let Some((start, size)) = before.map(|(start, size)| (*start, *size))
            && start + size == at
        {
            (at, bytes) = (start, size + bytes);
        }
        pieces.free.insert(at, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_are_used_again() {
        let heap = Heap::default();
        let all = [100, 16, 0, 5000].map(|bytes| heap.allocate(bytes).unwrap());
        let offsets = all.map(|address| address - address::HEAP.start);
        assert_eq!(offsets, [0, 128, 192, 256]);
        assert_eq!(heap.allocate(HEAP_BYTES), None);
        assert_eq!(heap.allocate(u64::MAX), None);
        // Neighbours on both sides become one piece.
        for address in [all[0], all[2], all[1], all[1], 24, 0] {
            heap.free(address);
        }
        assert_eq!(heap.allocate(144), Some(all[0]));
        heap.free(all[3]);
        heap.free(all[0]);
        assert_eq!(heap.allocate(HEAP_BYTES), Some(address::HEAP.start));
        heap.clear();
        assert_eq!(heap.allocate(16), Some(address::HEAP.start));
    }
}
