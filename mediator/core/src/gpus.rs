//! The GPUs of a run, and which of them may reach the memory of which.
//!
//! GPUs of a run have numbers, from 0. Memory of one GPU can be reached by another only where the
//! export that an importer uses names that other GPU (`docs/decisions/0033-peers.md`). GPUs that
//! cannot be peers reach it by copies only (`docs/decisions/0037-copies-without-peers.md`).

use causeway_protocol::message::{GPUS_MAX, MemoryKind, UNKNOWN_RANK};

use crate::backend::Place;

/// A set of GPUs by their numbers, 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuSet(u64);

impl GpuSet {
    /// Returns the set in which GPU `n` is if bit `n` of `bits` is set.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the set of one GPU; the empty set if `gpu` is 64 or more.
    pub const fn only(gpu: u32) -> Self {
        match 1u64.checked_shl(gpu) {
            Some(bits) => Self(bits),
            None => Self(0),
        }
    }

    /// Returns the set of the first `count` GPUs, those with the numbers below it.
    pub const fn first(count: u32) -> Self {
        match 1u64.checked_shl(count) {
            Some(end) => Self(end - 1),
            None => Self(u64::MAX),
        }
    }

    /// Returns the set as bits: bit `n` is set if GPU `n` is in it.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether GPU `gpu` is in the set.
    pub const fn contains(self, gpu: u32) -> bool {
        self.0 & Self::only(gpu).0 != 0
    }

    /// Returns the set without the GPUs of `others`.
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns the set with the GPUs of `others`.
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Iterates over the numbers in the set, from the lowest.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |gpu| self.contains(*gpu))
    }

    /// Returns the lowest number in the set; `None` if it is empty.
    pub fn lowest(self) -> Option<u32> {
        (self.0 != 0).then(|| self.0.trailing_zeros())
    }
}

/// The GPUs of a run, as a back end on one of them sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpus {
    /// Number of the back end's own GPU.
    pub own: u32,
    /// Number of GPUs of the run, 1 to 64.
    pub count: u32,
    /// The GPUs that can be peers of the own one: its kernels can reach their memory, and theirs its
    /// memory. The own GPU is not in the set.
    pub peers: GpuSet,
    /// The peers with which atomic operations work across in both directions.
    pub atomics: GpuSet,
    /// Ranks of the ways to memory of the GPUs, by performance: 0 is the best. `UNKNOWN_RANK` of
    /// the protocol where it is not known, and for GPUs that are no peers.
    pub ranks: [u8; GPUS_MAX as usize],
}

/// What links two GPUs that can be peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether atomic operations work across in both directions, as over NVLink.
    pub has_atomics: bool,
    /// Rank of the way from the first GPU to the second among all of the host; `None` if it is not
    /// known.
    pub rank: Option<u8>,
}

const _: () = assert!(GPUS_MAX == u64::BITS);

impl Default for Gpus {
    /// One GPU alone.
    fn default() -> Self {
        Self {
            own: 0,
            count: 1,
            peers: GpuSet::default(),
            atomics: GpuSet::default(),
            ranks: [UNKNOWN_RANK; GPUS_MAX as usize],
        }
    }
}

impl Gpus {
    /// Adds GPU `gpu`, below 64, to the peers of the own one.
    pub fn add_peer(&mut self, gpu: u32, link: Link) {
        let only = GpuSet::only(gpu);
        self.peers = self.peers.with(only);
        if link.has_atomics {
            self.atomics = self.atomics.with(only);
        }
        if let (Some(rank), Some(place)) = (link.rank, self.ranks.get_mut(gpu as usize)) {
            *place = rank;
        }
    }

    /// Returns the GPUs that cannot be peers of the own one: copies of theirs reach its memory, and
    /// copies of the own GPU theirs.
    pub fn apart(&self) -> GpuSet {
        let beside = GpuSet::first(self.count).without(GpuSet::only(self.own));
        beside.without(self.peers)
    }

    /// Returns the GPUs that an export with the bits `asked` is for: the own GPU if `asked` is 0.
    ///
    /// # Errors
    /// The number of a GPU that the run does not have.
    pub fn wanted(&self, asked: u64) -> Result<GpuSet, u32> {
        let wanted = match asked {
            0 => GpuSet::only(self.own),
            bits => GpuSet::from_bits(bits),
        };
        let absent = wanted.without(GpuSet::first(self.count));
        absent.lowest().map_or(Ok(wanted), Err)
    }

    /// Returns where memory of kind `kind` is that a session on GPU number `home` has allocated, as
    /// a session on the own GPU sees it.
    pub fn place_of(&self, home: u32, kind: MemoryKind) -> Place {
        match kind {
            MemoryKind::Host => Place::Host,
            MemoryKind::Device | MemoryKind::DeviceVisible if home == self.own => Place::Own,
            MemoryKind::Device | MemoryKind::DeviceVisible if self.peers.contains(home) => {
                Place::Peer
            }
            MemoryKind::Device | MemoryKind::DeviceVisible => Place::Apart { gpu: home },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_for_gpus_of_the_run() {
        let gpus = Gpus {
            own: 1,
            count: 4,
            peers: GpuSet::only(0).with(GpuSet::only(3)),
            ..Gpus::default()
        };
        assert_eq!(gpus.wanted(0), Ok(GpuSet::only(1)));
        assert_eq!(gpus.wanted(0b1011), Ok(GpuSet::from_bits(0b1011)));
        assert_eq!(gpus.wanted(0b1000), Ok(GpuSet::only(3)));
        assert_eq!(gpus.wanted(0b1100), Ok(GpuSet::from_bits(0b1100)));
        assert_eq!(gpus.wanted(0b11_0001), Err(4));
        assert_eq!(gpus.wanted(1 << 63), Err(63), "no GPU");
        assert_eq!(Gpus::default().wanted(0b10), Err(1));
        assert_eq!(Gpus::default().wanted(1), Ok(GpuSet::only(0)));
    }

    #[test]
    fn memory_of_a_gpu_that_is_no_peer_is_apart_unless_it_is_the_hosts() {
        let gpus = Gpus {
            own: 1,
            count: 4,
            peers: GpuSet::only(0),
            ..Gpus::default()
        };
        assert_eq!(gpus.apart(), GpuSet::from_bits(0b1100));
        let device = |home| gpus.place_of(home, MemoryKind::Device);
        assert_eq!([device(1), device(0)], [Place::Own, Place::Peer]);
        assert_eq!(device(2), Place::Apart { gpu: 2 });
        // No run has it.
        assert_eq!(device(63), Place::Apart { gpu: 63 });
        assert_eq!(gpus.place_of(2, MemoryKind::Host), Place::Host);
        assert_eq!(Gpus::default().apart(), GpuSet::default());
    }

    #[test]
    fn sets_have_numbers_up_to_63() {
        assert_eq!(GpuSet::only(64), GpuSet::default());
        assert!(!GpuSet::from_bits(u64::MAX).contains(64));
        assert!(GpuSet::only(63).contains(63));
        assert_eq!(GpuSet::first(0).bits(), 0);
        assert_eq!(GpuSet::first(3).bits(), 0b111);
        assert_eq!(GpuSet::first(64).bits(), u64::MAX);
        assert_eq!(GpuSet::from_bits(0b1100).lowest(), Some(2));
        assert_eq!(GpuSet::default().lowest(), None);
    }
}
