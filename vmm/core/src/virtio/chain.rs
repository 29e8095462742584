//! Requests as a driver describes them: chains of descriptors, each a range of guest memory
//! (Virtual I/O Device Version 1.2, 2.7.5).

use std::ops::Deref;

use virtio_queue::DescriptorChain;
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryError, GuestMemoryMmap, Permissions};

/// Most descriptors of a request. A driver may use as many as its queue has, and no queue has more.
pub const SEGMENTS_MAX: usize = 128;

/// What is wrong with a chain. A driver that writes such a chain has lost its way, and its device
/// wants a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// It goes in circles, leaves its table, or nests tables.
    #[error(
        "the chain does not end: descriptor {descriptors} is in no table, or is in the chain already"
    )]
    Endless {
        /// Descriptors read.
        descriptors: usize,
    },
    /// It is longer than a queue.
    #[error("the chain has more than {SEGMENTS_MAX} descriptors")]
    TooLong,
    /// The device's part is not at the end.
    #[error("descriptor {position} is readable, after a writable one")]
    Order {
        /// Position in the chain, from 0.
        position: usize,
    },
    /// Not RAM.
    #[error("no guest memory at {address:#x}, {bytes} bytes")]
    NotRam {
        /// Guest-physical address.
        address: u64,
        /// Length.
        bytes: u32,
    },
}

/// A range of guest memory: not empty, and all of it in one region of RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical address.
    pub address: GuestAddress,
    /// Length.
    pub bytes: u32,
}

/// Ranges of guest memory that count as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|s| u64::from(s.bytes)).sum()
    }

    /// The ranges in their order.
    pub fn iter(&self) -> impl Iterator<Item = Segment> {
        self.0.iter().copied()
    }

    /// The first `bytes` bytes, and the rest. None if there are fewer.
    pub fn split(&self, bytes: u64) -> Option<(Self, Self)> {
        let (mut first, mut rest) = (Self::default(), Self::default());
        let mut missing = bytes;
        for segment in self.iter() {
            let here = u32::try_from(missing).map_or(segment.bytes, |m| m.min(segment.bytes));
            missing -= u64::from(here);
            first.push(segment.address, here);
            let behind = GuestAddress(segment.address.0 + u64::from(here));
            rest.push(behind, segment.bytes - here);
        }
        (missing == 0).then_some((first, rest))
    }

    /// Copies the first bytes out; gives how many there were, at most `into.len()`.
    ///
    /// # Errors
    /// None, since segments are RAM; the type does not know.
    pub fn read(
        &self,
        memory: &GuestMemoryMmap,
        into: &mut [u8],
    ) -> Result<usize, GuestMemoryError> {
        let mut done = 0;
        for segment in self.iter() {
            let bytes = (into.len() - done).min(segment.bytes as usize);
            memory.read_slice(&mut into[done..done + bytes], segment.address)?;
            done += bytes;
        }
        Ok(done)
    }

    /// Copies into the first bytes; gives how many there were, at most `from.len()`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self, memory: &GuestMemoryMmap, from: &[u8]) -> Result<usize, GuestMemoryError> {
        let mut done = 0;
        for segment in self.iter() {
            let bytes = (from.len() - done).min(segment.bytes as usize);
            memory.write_slice(&from[done..done + bytes], segment.address)?;
            done += bytes;
        }
        Ok(done)
    }

    fn push(&mut self, address: GuestAddress, bytes: u32) {
        if bytes != 0 {
            self.0.push(Segment { address, bytes });
        }
    }
}

/// A virtio request, as a chain of descriptors: buffers that the guest's driver has written, and
/// buffers for the device's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Index of the first descriptor, by which the driver knows the request.
    pub head: u16,
    /// For the device to read.
    pub readable: Segments,
    /// For the device to write.
    pub writable: Segments,
}

impl Chain {
    /// Copies a chain's descriptors, each once, and checks them.
    ///
    /// # Errors
    /// [`ChainError`].
    pub fn collect<M>(
        descriptors: DescriptorChain<M>,
        memory: &GuestMemoryMmap,
    ) -> Result<Self, ChainError>
    where
        M: Deref<Target = GuestMemoryMmap>,
    {
        let mut chain = Self {
            head: descriptors.head_index(),
            readable: Segments::default(),
            writable: Segments::default(),
        };
        // The iterator ends where a chain ends, and just so where it cannot be followed. Then the
        // last one that it gave has a successor.
        let (mut count, mut goes_on) = (0, true);
        for descriptor in descriptors {
            if count == SEGMENTS_MAX {
                return Err(ChainError::TooLong);
            }
            chain.add(
                count,
                descriptor.addr(),
                descriptor.len(),
                descriptor.is_write_only(),
                memory,
            )?;
            goes_on = descriptor.has_next();
            count += 1;
        }
        if goes_on {
            return Err(ChainError::Endless { descriptors: count });
        }
        Ok(chain)
    }

    fn add(
        &mut self,
        position: usize,
        address: GuestAddress,
        bytes: u32,
        writable: bool,
        memory: &GuestMemoryMmap,
    ) -> Result<(), ChainError> {
        let (part, access) = match writable {
            true => (&mut self.writable, Permissions::Write),
            false if self.writable.0.is_empty() => (&mut self.readable, Permissions::Read),
            false => return Err(ChainError::Order { position }),
        };
        if bytes != 0 && !GuestMemory::check_range(memory, address, bytes as usize, access) {
            return Err(ChainError::NotRam {
                address: address.0,
                bytes,
            });
        }
        part.push(address, bytes);
        Ok(())
    }
}

#[cfg(test)]
impl FromIterator<(u64, u32)> for Segments {
    fn from_iter<I: IntoIterator<Item = (u64, u32)>>(list: I) -> Self {
        let mut all = Self::default();
        for (address, bytes) in list {
            all.push(GuestAddress(address), bytes);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(list: &[(u64, u32)]) -> Segments {
        list.iter().copied().collect()
    }

    #[test]
    fn splitting_cuts_within_and_between_ranges() {
        let all = segments(&[(0x1000, 16), (0x2000, 8)]);
        assert_eq!(all.bytes(), 24);
        for (at, first, rest) in [
            (0, &[][..], &[(0x1000, 16), (0x2000, 8)][..]),
            (4, &[(0x1000, 4)], &[(0x1004, 12), (0x2000, 8)]),
            (16, &[(0x1000, 16)], &[(0x2000, 8)]),
            (23, &[(0x1000, 16), (0x2000, 7)], &[(0x2007, 1)]),
            (24, &[(0x1000, 16), (0x2000, 8)], &[]),
        ] {
            assert_eq!(
                all.split(at),
                Some((segments(first), segments(rest))),
                "{at}"
            );
        }
        assert_eq!(all.split(25), None);
        assert_eq!(all.split(u64::MAX), None);
    }

    #[test]
    fn copies_go_through_all_ranges_and_end_with_the_shorter_side() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        let all = segments(&[(0x1000, 3), (0x2000, 4)]);
        assert_eq!(all.write(&memory, b"abcdefghij").unwrap(), 7);
        let mut bytes = [0; 10];
        assert_eq!(all.read(&memory, &mut bytes).unwrap(), 7);
        assert_eq!(&bytes, b"abcdefg\0\0\0");
        assert_eq!(all.read(&memory, &mut bytes[..2]).unwrap(), 2);
    }
}
