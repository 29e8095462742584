//! The GPUs of a run as one of them sees them.

use causeway_mediator::{Gpus, Link};
use causeway_worker::MemoryGroups;

use crate::gpu::Gpu;

/// What links devices of the software back end: all of their memory is the host's. (A VFIO device
/// is always alone.)
pub(super) const SAME_MEMORY: Link = Link {
    has_atomics: true,
    rank: Some(0),
};

/// One of the GPUs of a run, which has a back end of its own.
#[derive(Clone, Copy)]
pub(super) struct Device<'a> {
    /// All GPUs, each with its text in the syntax of `--gpu`.
    pub(super) gpus: &'a [(&'a Gpu, &'a str)],
    pub(super) number: usize,
    /// What bounds the host memory of worker processes.
    pub(super) groups: Option<&'a MemoryGroups>,
}

impl Device<'_> {
    /// Returns the GPUs of the run as this one sees them. Two can be peers if the keys of neither
    /// say otherwise, and `link_of`, which is called with their numbers on the back end, knows
    /// their link.
    pub(super) fn seen(self, link_of: impl Fn(u32, u32) -> Option<Link>) -> Gpus {
        let (own, _) = self.gpus[self.number];
        let mut seen = Gpus {
            own: self.number as u32,
            count: self.gpus.len() as u32,
            ..Gpus::default()
        };
        for (number, (other, _)) in (0..).zip(self.gpus) {
            let is_apart = number == seen.own || own.is_apart() || other.is_apart();
            let link = (!is_apart).then(|| link_of(own.device(), other.device()));
            if let Some(link) = link.flatten() {
                seen.add_peer(number, link);
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_gpus_with_a_link_that_no_key_forbids() {
        let texts = [
            "software:0",
            "software:1,peers=no",
            "software:2",
            "software:3",
        ];
        let gpus = texts.map(|text| text.parse::<Gpu>().unwrap());
        let all: Vec<_> = gpus.iter().zip(texts).collect();
        let seen = |number| {
            let device = Device {
                gpus: &all,
                number,
                groups: None,
            };
            device.seen(|_, other| (other != 3).then_some(SAME_MEMORY))
        };
        let first = seen(0);
        assert_eq!((first.own, first.count), (0, 4));
        assert_eq!((first.peers.bits(), first.atomics.bits()), (0b100, 0b100));
        assert_eq!((first.ranks[2], first.ranks[3]), (0, u8::MAX));
        assert_eq!(seen(1).peers.bits(), 0, "it shall have no peer");
    }
}
