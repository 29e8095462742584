//! Requests as a driver describes them: chains of descriptors, each a range of guest memory
//! (Virtual I/O Device Version 1.2, 2.7.5).

use virtio_queue::DescriptorChain;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryError, GuestMemoryMmap, Permissions};

/// Maximum number of descriptors of one request, which is also the maximum size of a queue
/// (2.7.5.3.1).
pub const SEGMENTS_MAX: usize = 128;

/// Why a guest's request, a chain of descriptors, is invalid. The virtio device then stops until
/// the guest's driver resets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The chain has a cycle, leaves its descriptor table, or contains a table within a table.
    #[error(
        "the guest's chain of virtio descriptors has no end: after {descriptors} descriptors, it \
         points outside the descriptor table, or it is a loop"
    )]
    Endless {
        /// Number of descriptors that were read before the error.
        descriptors: usize,
    },
    /// The chain has more descriptors than a queue may have.
    #[error("the guest's chain of virtio descriptors is longer than {SEGMENTS_MAX} descriptors")]
    TooLong,
    /// A buffer that the device reads follows a buffer that the device writes.
    #[error(
        "descriptor {position} of the guest's chain of virtio descriptors is for reading, but \
         follows one for writing"
    )]
    Order {
        /// Position of the descriptor in the chain, from 0.
        position: usize,
    },
    /// A descriptor names a buffer outside guest RAM.
    #[error(
        "a virtio descriptor names {bytes} bytes at guest-physical address {address:#x}, which are \
         not in guest RAM"
    )]
    NotRam {
        /// Guest-physical address of the buffer.
        address: u64,
        /// Length of the buffer in bytes.
        bytes: u32,
    },
}

/// A range of guest memory that lies in one range of RAM and is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First guest-physical address of the range.
    pub address: GuestAddress,
    /// Length of the range in bytes.
    pub bytes: u32,
}

/// Ranges of guest memory that together form one buffer of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Returns the size of the buffer in bytes: the sum of its ranges' lengths.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|s| u64::from(s.bytes)).sum()
    }

    /// Returns the ranges of guest memory that form the buffer, in order.
    pub fn iter(&self) -> impl Iterator<Item = Segment> {
        self.0.iter().copied()
    }

    /// Splits the buffer in two: its first `bytes` bytes, and the rest. Returns `None` if the
    /// buffer has fewer than `bytes` bytes.
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

    /// Copies the beginning of the buffer from guest memory `memory` into `into`, as far as both
    /// reach. Returns the number of bytes copied.
    ///
    /// # Errors
    /// The error of `memory`. None is expected, since the ranges were checked to be RAM.
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

    /// Copies the beginning of `from` into the buffer in guest memory `memory`, as far as both
    /// reach. Returns the number of bytes copied.
    ///
    /// # Errors
    /// The error of `memory`. None is expected, since the ranges were checked to be RAM.
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

/// A guest's request to a virtio device: a chain of descriptors, each of which names a buffer in
/// guest memory. The guest's driver has written some buffers; the device writes its answer to the
/// others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Index of the chain's first descriptor in the descriptor table. When the request is done, the
    /// device gives this index back to the driver.
    pub head: u16,
    /// The buffers that the driver has written for the device to read.
    pub readable: Segments,
    /// The buffers to which the device writes its answer.
    pub writable: Segments,
}

impl Chain {
    /// Returns the request that consists of `descriptors`. Reads each descriptor from guest memory
    /// only once, and checks it.
    ///
    /// # Errors
    /// [`ChainError`] if the chain breaks a rule of the specification, or names memory outside RAM.
    pub fn collect(
        descriptors: DescriptorChain<&GuestMemoryMmap>,
        memory: &GuestMemoryMmap,
    ) -> Result<Self, ChainError> {
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
            chain.add(count, descriptor, memory)?;
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
        descriptor: Descriptor,
        memory: &GuestMemoryMmap,
    ) -> Result<(), ChainError> {
        let (address, bytes) = (descriptor.addr(), descriptor.len());
        let (part, access) = match descriptor.is_write_only() {
            true => (&mut self.writable, Permissions::Write),
            false if self.writable.0.is_empty() => (&mut self.readable, Permissions::Read),
            false => return Err(ChainError::Order { position }),
        };
        if bytes != 0 && !GuestMemory::check_range(memory, address, bytes as usize, access) {
            let address = address.0;
            return Err(ChainError::NotRam { address, bytes });
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
