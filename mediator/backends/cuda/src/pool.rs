//! Memory that was freed, scrubbed, and kept for the next who wants as much.

use parking_lot::Mutex;

/// Pieces that are kept, at most: a look at them all must be cheap.
const PIECES_MAX: usize = 64;

/// What is kept.
pub(crate) struct Pool<T> {
    limit_bytes: u64,
    pieces: Mutex<Vec<Piece<T>>>,
}

struct Piece<T> {
    bytes: u64,
    what: T,
}

impl<T> Pool<T> {
    /// Returns a pool that keeps `limit_bytes` bytes at most.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            pieces: Mutex::default(),
        }
    }

    /// Returns whether so many bytes more would be kept.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let pieces = self.pieces.lock();
        let kept: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        pieces.len() < PIECES_MAX && kept + bytes <= self.limit_bytes
    }

    /// Keeps a piece; gives it back if there is no room.
    pub(crate) fn put(&self, bytes: u64, what: T) -> Option<T> {
        let mut pieces = self.pieces.lock();
        let kept: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        if pieces.len() >= PIECES_MAX || kept + bytes > self.limit_bytes {
            return Some(what);
        }
        pieces.push(Piece { bytes, what });
        None
    }

    /// Returns the piece of exactly `bytes` bytes that was put last and that `suits`.
    pub(crate) fn take(&self, bytes: u64, suits: impl Fn(&T) -> bool) -> Option<T> {
        let mut pieces = self.pieces.lock();
        let found = pieces
            .iter()
            .rposition(|piece| piece.bytes == bytes && suits(&piece.what))?;
        Some(pieces.remove(found).what)
    }

    /// Lets go of everything. Gives whether there was anything.
    pub(crate) fn purge(&self) -> bool {
        // Dropped without the lock: that may take a while.
        let pieces = std::mem::take(&mut *self.pieces.lock());
        !pieces.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_found_by_size_and_kind() {
        let pool = Pool::new(100);
        assert_eq!(pool.put(60, 'a'), None);
        assert_eq!(pool.put(40, 'b'), None);
        assert!(!pool.has_room(1));
        assert_eq!(pool.put(1, 'c'), Some('c'));
        assert_eq!(pool.take(40, |what| *what == 'x'), None);
        assert_eq!(pool.take(50, |_| true), None);
        assert_eq!(pool.take(40, |_| true), Some('b'));
        assert!(pool.has_room(40));
        assert!(pool.purge());
        assert!(!pool.purge());
        assert_eq!(pool.take(60, |_| true), None);
    }

    #[test]
    fn small_pieces_are_bounded_in_number() {
        let pool = Pool::new(u64::MAX);
        let kept = (0..1000).filter(|n| pool.put(1, *n).is_none()).count();
        assert_eq!(kept, PIECES_MAX);
    }
}
