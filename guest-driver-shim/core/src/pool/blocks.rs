//! Ranges of addresses, cut into blocks and merged again. Knows nothing of memory: all it has is in
//! [`Block`]s.

use super::classes::{Class, Classes, GRANULE_BYTES};

/// Number that stands for no block.
const NONE: u32 = u32::MAX;
/// Blocks looked at in lists whose blocks need not fit.
const LOOKS: usize = 16;

/// Record of a piece of a pool's memory, or of a free range between pieces.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    address: u64,
    bytes: u64,
    chunk: u32,
    /// Neighbours in the chunk.
    before: u32,
    after: u32,
    /// Neighbours in the list of free blocks of its class, or of spare blocks.
    previous: u32,
    next: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Stands for no range.
    Spare,
    Free,
    Used,
}

impl Block {
    /// A record that is not in use.
    pub const SPARE: Self = Self {
        address: 0,
        bytes: 0,
        chunk: NONE,
        before: NONE,
        after: NONE,
        previous: NONE,
        next: NONE,
        state: State::Spare,
    };
}

/// A block that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Number of the block.
    pub block: u32,
    /// First address of the block.
    pub address: u64,
    /// Number of the chunk that contains the block, as given to [`Blocks::add_chunk`].
    pub chunk: u32,
}

/// Why [`Blocks::take`] did not take a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeError {
    /// No free block is large enough.
    NoRoom,
    /// A free block is large enough, but no unused [`Block`] record is left for the remainder of
    /// it.
    NoBlocks,
}

/// All blocks of a pool: the pieces in use and the free ranges between them.
#[derive(Debug)]
pub struct Blocks<'s> {
    blocks: &'s mut [Block],
    spare: u32,
    spares: usize,
    classes: Classes,
}

impl<'s> Blocks<'s> {
    /// Returns a set of blocks without chunks. It keeps its records in `blocks`, of which it uses
    /// at most 2^31, and overwrites what they contain.
    pub fn new(blocks: &'s mut [Block]) -> Self {
        let count = blocks.len().min(1 << 31);
        let blocks = &mut blocks[..count];
        for (index, block) in blocks.iter_mut().enumerate() {
            *block = Block::SPARE;
            block.next = if index + 1 < count {
                index as u32 + 1
            } else {
                NONE
            };
        }
        Self {
            spare: if count == 0 { NONE } else { 0 },
            spares: count,
            blocks,
            classes: Classes::new(NONE),
        }
    }

    /// Returns the number of records for blocks, in use or not.
    pub const fn capacity(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the number of records that currently stand for no block.
    pub const fn spares(&self) -> usize {
        self.spares
    }

    /// Adds chunk number `chunk`, which consists of the `bytes` free bytes at `address` (multiples
    /// of [`GRANULE_BYTES`], not zero). Returns the number of the chunk's first block, which never
    /// changes, or `None` if all records are in use.
    pub fn add_chunk(&mut self, chunk: u32, address: u64, bytes: u64) -> Option<u32> {
        let index = self.take_spare()?;
        let block = &mut self.blocks[index as usize];
        (block.address, block.bytes, block.chunk) = (address, bytes, chunk);
        self.insert(index);
        Some(index)
    }

    /// Removes the chunk whose first block has the number `first`. Returns false and does nothing
    /// if a piece of the chunk is in use.
    pub fn remove_chunk(&mut self, first: u32) -> bool {
        let block = self.blocks[first as usize];
        if block.state != State::Free || block.after != NONE {
            return false;
        }
        self.remove(first);
        self.give_spare(first);
        true
    }

    /// Takes a free block of `bytes` bytes (a multiple of [`GRANULE_BYTES`], not zero), whose
    /// address is a multiple of `alignment` (a power of two).
    pub fn take(&mut self, bytes: u64, alignment: u64) -> Result<Taken, TakeError> {
        let found = self.find(bytes, alignment).ok_or(TakeError::NoRoom)?;
        self.carve(found, bytes, alignment)
    }

    /// Takes `bytes` bytes at an address that is a multiple of `alignment` out of the free block
    /// with the number `found`.
    pub fn take_from(
        &mut self,
        found: u32,
        bytes: u64,
        alignment: u64,
    ) -> Result<Taken, TakeError> {
        if self.is_free(found) && self.has_room(found, bytes, alignment) {
            self.carve(found, bytes, alignment)
        } else {
            Err(TakeError::NoRoom)
        }
    }

    /// Takes a part of a free block that has room for it.
    fn carve(&mut self, found: u32, bytes: u64, alignment: u64) -> Result<Taken, TakeError> {
        let block = self.blocks[found as usize];
        let begin = block.address.next_multiple_of(alignment);
        let front = begin - block.address;
        let rest = block.bytes - front - bytes;
        if usize::from(front != 0) + usize::from(rest != 0) > self.spares {
            return Err(TakeError::NoBlocks);
        }
        self.remove(found);
        let mut taken = found;
        if front != 0 {
            // The free part in front keeps the block's number: it may be the first of its chunk.
            taken = self.split(found, front);
            self.insert(found);
        }
        if rest != 0 {
            let behind = self.split(taken, bytes);
            self.insert(behind);
        }
        self.blocks[taken as usize].state = State::Used;
        Ok(Taken {
            block: taken,
            address: begin,
            chunk: block.chunk,
        })
    }

    /// Returns whether the block with the number `block` is taken and begins at `address`.
    pub fn is_taken(&self, block: u32, address: u64) -> bool {
        let block = self.blocks.get(block as usize);
        block.is_some_and(|block| block.state == State::Used && block.address == address)
    }

    /// Frees the taken block with the number `index`, and merges it with the free blocks next to
    /// it.
    pub fn give(&mut self, index: u32) {
        debug_assert_eq!(self.blocks[index as usize].state, State::Used);
        let Block { before, after, .. } = self.blocks[index as usize];
        let mut merged = index;
        if self.is_free(after) {
            self.remove(after);
            self.join(index, after);
        }
        if self.is_free(before) {
            self.remove(before);
            self.join(before, index);
            merged = before;
        }
        self.insert(merged);
    }

    /// A free block that has room: one that certainly has, or else one of the first few that may.
    fn find(&self, bytes: u64, alignment: u64) -> Option<u32> {
        // The worst address for it wants so much more.
        let slack = alignment.saturating_sub(GRANULE_BYTES);
        let certain = bytes.checked_add(slack).and_then(Class::that_fits)?;
        if let Some(class) = self.classes.first_from(certain) {
            return Some(self.classes.head(class));
        }
        let mut looks = LOOKS;
        let mut class = self.classes.first_from(Class::of(bytes))?;
        loop {
            let mut index = self.classes.head(class);
            while index != NONE {
                if self.has_room(index, bytes, alignment) {
                    return Some(index);
                }
                looks = looks.checked_sub(1)?;
                index = self.blocks[index as usize].next;
            }
            class = self.classes.first_from(Classes::above(class)?)?;
        }
    }

    fn has_room(&self, index: u32, bytes: u64, alignment: u64) -> bool {
        let block = self.blocks[index as usize];
        let begin = block.address.checked_next_multiple_of(alignment);
        let end = begin.and_then(|begin| begin.checked_add(bytes));
        end.is_some_and(|end| end <= block.address + block.bytes)
    }

    /// Cuts `bytes` bytes off the front of a block, which keeps its number. Gives what is behind
    /// them. A block is spare.
    fn split(&mut self, index: u32, bytes: u64) -> u32 {
        let Some(behind) = self.take_spare() else {
            unreachable!("the caller has counted the spare blocks")
        };
        let whole = self.blocks[index as usize];
        self.blocks[index as usize].bytes = bytes;
        self.blocks[index as usize].after = behind;
        self.blocks[behind as usize] = Block {
            address: whole.address + bytes,
            bytes: whole.bytes - bytes,
            chunk: whole.chunk,
            before: index,
            after: whole.after,
            ..Block::SPARE
        };
        if whole.after != NONE {
            self.blocks[whole.after as usize].before = behind;
        }
        behind
    }

    /// Undoes a split.
    fn join(&mut self, front: u32, behind: u32) {
        let Block { bytes, after, .. } = self.blocks[behind as usize];
        self.blocks[front as usize].bytes += bytes;
        self.blocks[front as usize].after = after;
        if after != NONE {
            self.blocks[after as usize].before = front;
        }
        self.give_spare(behind);
    }

    fn is_free(&self, index: u32) -> bool {
        index != NONE && self.blocks[index as usize].state == State::Free
    }

    /// Puts a block into the list of its class.
    fn insert(&mut self, index: u32) {
        let class = Class::of(self.blocks[index as usize].bytes);
        let head = self.classes.head(class);
        let block = &mut self.blocks[index as usize];
        (block.state, block.previous, block.next) = (State::Free, NONE, head);
        if head != NONE {
            self.blocks[head as usize].previous = index;
        }
        self.classes.set_head(class, index, false);
    }

    /// Takes a block out of the list of its class.
    fn remove(&mut self, index: u32) {
        let Block {
            bytes,
            previous,
            next,
            ..
        } = self.blocks[index as usize];
        if next != NONE {
            self.blocks[next as usize].previous = previous;
        }
        if previous == NONE {
            let class = Class::of(bytes);
            self.classes.set_head(class, next, next == NONE);
        } else {
            self.blocks[previous as usize].next = next;
        }
    }

    fn take_spare(&mut self) -> Option<u32> {
        let index = self.spare;
        let block = self.blocks.get_mut(index as usize)?;
        self.spare = block.next;
        self.spares -= 1;
        *block = Block::SPARE;
        Some(index)
    }

    fn give_spare(&mut self, index: u32) {
        self.blocks[index as usize] = Block {
            next: self.spare,
            ..Block::SPARE
        };
        self.spare = index;
        self.spares += 1;
    }
}

#[cfg(test)]
mod tests;
