//! What copies between GPUs move.

use std::ops::AddAssign;

use super::Place;

/// What copies of one kind have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes.
    pub bytes: u64,
    /// Time that the device took for these bytes, in nanoseconds: from the moment at which it had
    /// done all work before a copy in its queue, to the end of the copy. A back end may estimate
    /// that of short copies.
    pub ns: u64,
}

/// What copies between GPUs have moved, by the way that they took. Copies of recordings do not
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Copies from or to memory of a peer.
    pub direct: Moved,
    /// Copies through memory of the host, from or to memory of a GPU that cannot be a peer.
    pub staged: Moved,
}

/// The way of a copy from one GPU to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From or to memory of a peer.
    Direct,
    /// Through memory of the host.
    Staged,
}

/// No copy has its source and its destination at these places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoWay;

impl Way {
    /// Returns the way of a copy between memory at two places; `None` if it does not go from one
    /// GPU to another.
    ///
    /// # Errors
    /// [`NoWay`] if one place is apart ([`Place::Apart`]) and the other is not the session's own
    /// GPU.
    pub fn between(one: Place, other: Place) -> Result<Option<Self>, NoWay> {
        match (one, other) {
            (Place::Apart { .. }, Place::Own) | (Place::Own, Place::Apart { .. }) => {
                Ok(Some(Self::Staged))
            }
            (Place::Apart { .. }, _) | (_, Place::Apart { .. }) => Err(NoWay),
            (Place::Peer, _) | (_, Place::Peer) => Ok(Some(Self::Direct)),
            (Place::Host | Place::Own, Place::Host | Place::Own) => Ok(None),
        }
    }
}

impl Crossed {
    /// Adds a copy that went by `way`.
    pub fn add(&mut self, way: Way, moved: Moved) {
        let sum = match way {
            Way::Direct => &mut self.direct,
            Way::Staged => &mut self.staged,
        };
        *sum += moved;
    }
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_apart_is_copied_from_and_to_the_own_gpu_only() {
        let apart = Place::Apart { gpu: 3 };
        for (place, way) in [
            (Place::Own, Ok(Some(Way::Staged))),
            (Place::Host, Err(NoWay)),
            (Place::Peer, Err(NoWay)),
            (apart, Err(NoWay)),
        ] {
            assert_eq!(Way::between(apart, place), way, "{place:?}");
            assert_eq!(Way::between(place, apart), way, "{place:?}");
        }
        assert_eq!(Way::between(Place::Peer, Place::Own), Ok(Some(Way::Direct)));
        assert_eq!(
            Way::between(Place::Host, Place::Peer),
            Ok(Some(Way::Direct))
        );
        assert_eq!(Way::between(Place::Host, Place::Own), Ok(None));
    }

    #[test]
    fn what_copies_move_is_added_up_for_each_way() {
        let moved = |bytes, ns| Moved { bytes, ns };
        let mut crossed = Crossed::default();
        crossed.add(Way::Direct, moved(1, 20));
        crossed.add(Way::Direct, moved(2, 30));
        crossed.add(Way::Staged, moved(4, u64::MAX));
        crossed.add(Way::Staged, moved(8, 1));
        assert_eq!(crossed.direct, moved(3, 50));
        assert_eq!(crossed.staged, moved(12, u64::MAX));
    }
}
