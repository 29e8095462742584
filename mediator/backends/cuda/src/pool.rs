//! Memory that was freed and scrubbed, and is kept for the next allocation of the same size.

use parking_lot::Mutex;

/// Most pieces that are kept: a search through all of them must be cheap.
const PIECES_MAX: usize = 64;

/// Keeps freed pieces of memory for reuse, up to a number of bytes.
pub(crate) struct Pool<T> {
    limit_bytes: u64,
    pieces: Mutex<Vec<Piece<T>>>,
}

struct Piece<T> {
    bytes: u64,
    what: T,
}

impl<T> Pool<T> {
    /// Returns an empty pool that keeps at most `limit_bytes` bytes.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            pieces: Mutex::default(),
        }
    }

    /// Returns whether the pool would keep a piece of `bytes` bytes now.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let pieces = self.pieces.lock();
        let kept: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        pieces.len() < PIECES_MAX && kept + bytes <= self.limit_bytes
    }

    /// Keeps `what`, a piece of `bytes` bytes. Returns the piece if the pool has no room for it.
    pub(crate) fn put(&self, bytes: u64, what: T) -> Option<T> {
        let mut pieces = self.pieces.lock();
        let kept: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        if pieces.len() >= PIECES_MAX || kept + bytes > self.limit_bytes {
            return Some(what);
        }
        pieces.push(Piece { bytes, what });
        None
    }

    /// Removes and returns a piece of exactly `bytes` bytes for which `suits` returns true: the one
    /// that was kept last. `None` if the pool has no such piece.
    pub(crate) fn take(&self, bytes: u64, suits: impl Fn(&T) -> bool) -> Option<T> {
        let mut pieces = self.pieces.lock();
        let found = pieces
            .iter()
            .rposition(|piece| piece.bytes == bytes && suits(&piece.what))?;
        Some(pieces.remove(found).what)
    }

    /// Drops all pieces. Returns whether there was one.
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
