//! Large pieces: each is a chunk by itself, and kept for a while when it is freed.

use super::chunk::Role;
use super::piece::{Origin, Piece};
use super::{Pool, PoolError, PoolFreeError};

impl Pool<'_, '_> {
    /// A piece of a chunk of its own: one that was kept, or a new one of `most` bytes.
    pub(super) fn allocate_whole(
        &mut self,
        bytes: u64,
        alignment: u64,
        most: u64,
    ) -> Result<Piece, PoolError> {
        let layout = PoolError::Layout { bytes, alignment };
        let index = match self.best_kept(bytes, alignment, most) {
            Some(index) => index,
            None => {
                let most = most.checked_next_multiple_of(self.granularity_bytes);
                self.obtain(most.ok_or(layout)?)?
            }
        };
        let Some(chunk) = &mut self.chunks[index] else {
            unreachable!("it was found, or has just been put there")
        };
        if matches!(chunk.role, Role::Kept { .. }) {
            self.kept_bytes -= chunk.bytes;
            chunk.role = Role::Whole;
        }
        let origin = Origin {
            chunk: index as u32,
            block: None,
        };
        // It has room: that is how it was found, or how much was asked for.
        let address = chunk.place(bytes, alignment).ok_or(layout)?;
        Ok(chunk.piece(address, bytes, origin))
    }

    /// The smallest kept chunk with room for a piece, if it does not waste more than a quarter.
    pub(super) fn best_kept(&self, bytes: u64, alignment: u64, most: u64) -> Option<usize> {
        let limit = most
            .saturating_add(most / 4)
            .saturating_add(self.granularity_bytes);
        let kept = self.chunks.iter().enumerate().filter_map(|(index, chunk)| {
            let chunk = chunk.as_ref()?;
            let kept = matches!(chunk.role, Role::Kept { .. });
            let fits = kept && chunk.bytes <= limit && chunk.place(bytes, alignment).is_some();
            fits.then_some((chunk.bytes, index))
        });
        kept.min().map(|(_, index)| index)
    }

    /// Takes back a piece that is a chunk by itself, number `index`, and keeps it for the next.
    pub(super) fn free_whole(&mut self, piece: Piece, index: u32) -> Result<(), PoolFreeError> {
        let chunk = self.chunks.get_mut(index as usize).and_then(Option::as_mut);
        let Some(chunk) = chunk.filter(|chunk| chunk.is_whole_piece(piece.address)) else {
            return Err(PoolFreeError::Foreign(piece));
        };
        if chunk.bytes > self.kept_bytes_max {
            let freed = self.give_back(index as usize);
            return freed.map(drop).map_err(PoolFreeError::Refused);
        }
        self.gifts += 1;
        let since = self.gifts;
        chunk.role = Role::Kept { since };
        self.kept_bytes += chunk.bytes;
        while self.kept_bytes > self.kept_bytes_max {
            let Some(oldest) = self.oldest_kept() else {
                break;
            };
            self.give_back(oldest).map_err(PoolFreeError::Refused)?;
        }
        Ok(())
    }

    /// The one that was kept first.
    fn oldest_kept(&self) -> Option<usize> {
        let kept = self.chunks.iter().enumerate().filter_map(|(index, chunk)| {
            match chunk.as_ref()?.role {
                Role::Kept { since } => Some((since, index)),
                Role::Divided { .. } | Role::Whole => None,
            }
        });
        kept.min().map(|(_, index)| index)
    }
}
