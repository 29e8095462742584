//! Blocks taken and given at random, and what must then hold.

use super::*;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

const CHUNK_BYTES: u64 = 2 << 20;

/// A pool of ranges, and what is known to be taken: address to (bytes, block, chunk).
struct Checked<'s> {
    blocks: Blocks<'s>,
    firsts: Vec<u32>,
    taken: BTreeMap<u64, (u64, u32, u32)>,
}

fn base(chunk: u32) -> u64 {
    // Aligned to a page only, so that larger alignments have to be made.
    0x7000_1000 + u64::from(chunk) * 4 * CHUNK_BYTES
}

impl<'s> Checked<'s> {
    fn new(storage: &'s mut [Block], chunks: u32) -> Self {
        let mut blocks = Blocks::new(storage);
        let firsts = (0..chunks)
            .map(|chunk| blocks.add_chunk(chunk, base(chunk), CHUNK_BYTES).unwrap())
            .collect();
        Self {
            blocks,
            firsts,
            taken: BTreeMap::new(),
        }
    }

    fn take(&mut self, bytes: u64, alignment: u64) -> Result<(), TakeError> {
        let Taken {
            block,
            address,
            chunk,
        } = self.blocks.take(bytes, alignment)?;
        assert!(address.is_multiple_of(alignment));
        assert!(address >= base(chunk) && address + bytes <= base(chunk) + CHUNK_BYTES);
        let before = self.taken.range(..address + bytes).next_back();
        assert!(before.is_none_or(|(other, (bytes, ..))| other + bytes <= address));
        assert!(self.blocks.is_taken(block, address));
        self.taken.insert(address, (bytes, block, chunk));
        Ok(())
    }

    fn give(&mut self, number: usize) {
        let address = *self.taken.keys().nth(number).unwrap();
        let (_, block, _) = self.taken.remove(&address).unwrap();
        self.blocks.give(block);
        assert!(!self.blocks.is_taken(block, address));
    }

    /// No two free blocks touch, every byte is in one block, and each list holds what its class
    /// says.
    fn check(&self) {
        for (chunk, first) in self.firsts.iter().enumerate() {
            let (mut at, mut index, mut free) = (base(chunk as u32), *first, false);
            while index != NONE {
                let block = self.blocks.blocks[index as usize];
                assert_eq!(block.address, at);
                let is_free = block.state == State::Free;
                assert!(!(free && is_free), "two free blocks side by side");
                assert_eq!(is_free, !self.taken.contains_key(&at));
                (at, index, free) = (at + block.bytes, block.after, is_free);
            }
            assert_eq!(at, base(chunk as u32) + CHUNK_BYTES);
        }
    }

    /// Frees everything: every chunk must be whole again, and every block spare.
    fn finish(mut self) {
        while !self.taken.is_empty() {
            self.give(0);
        }
        self.check();
        for first in self.firsts {
            assert_eq!(self.blocks.blocks[first as usize].bytes, CHUNK_BYTES);
            assert!(self.blocks.remove_chunk(first));
        }
        assert_eq!(self.blocks.spares, self.blocks.capacity());
        assert_eq!(self.blocks.take(256, 256), Err(TakeError::NoRoom));
    }
}

#[test]
fn pieces_never_overlap_and_all_comes_back_whole() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    // Xorshift64 (Marsaglia: "Xorshift RNGs", 2003).
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..60 {
        let mut storage = vec![Block::SPARE; 200];
        let mut pool = Checked::new(&mut storage, 1 + (next() % 3) as u32);
        let (mut taken, mut refused) = (0, 0);
        for step in 0..600 {
            if next() % 5 < 2 && !pool.taken.is_empty() {
                pool.give(next() as usize % pool.taken.len());
            } else {
                let bytes = (1 + next() % (1 << (next() % 14))) * 256;
                let alignment = 256 << (next() % 12);
                match pool.take(bytes, alignment) {
                    Ok(()) => taken += 1,
                    Err(_) => refused += 1,
                }
            }
            if step % 37 == 0 {
                pool.check();
            }
        }
        assert!(taken > 100 && refused < 500, "{taken} {refused}");
        pool.finish();
    }
}

#[test]
fn a_chunk_can_be_used_to_the_last_byte() {
    let mut storage = vec![Block::SPARE; 8];
    let mut pool = Checked::new(&mut storage, 1);
    // Sizes that no list guarantees.
    pool.take(CHUNK_BYTES - 3 * 256, 256).unwrap();
    pool.take(3 * 256, 256).unwrap();
    assert_eq!(pool.take(256, 256), Err(TakeError::NoRoom));
    pool.finish();
    let mut storage = vec![Block::SPARE; 8];
    let mut pool = Checked::new(&mut storage, 1);
    pool.take(CHUNK_BYTES - 4096 + 256, 4096).unwrap();
    pool.give(0);
    pool.take(CHUNK_BYTES, 4096).unwrap();
    pool.finish();
}

#[test]
fn without_spare_blocks_nothing_is_taken_that_would_need_one() {
    let mut storage = vec![Block::SPARE; 3];
    let mut pool = Checked::new(&mut storage, 1);
    pool.take(256, 256).unwrap();
    // It would want a block in front of it, and one behind.
    assert_eq!(pool.take(256, 1 << 20), Err(TakeError::NoBlocks));
    pool.check();
    pool.take(256, 256).unwrap();
    assert_eq!(pool.take(256, 256), Err(TakeError::NoBlocks));
    pool.take(CHUNK_BYTES - 512, 256).expect("all that is left");
    assert!(!pool.blocks.remove_chunk(pool.firsts[0]));
    pool.finish();
    let mut blocks = Blocks::new(&mut []);
    assert_eq!(blocks.add_chunk(0, 0, 4096), None);
}

#[test]
fn absurd_sizes_and_alignments_find_no_room() {
    let mut storage = vec![Block::SPARE; 8];
    let mut pool = Checked::new(&mut storage, 1);
    for (bytes, alignment) in [
        (u64::MAX / 256 * 256, 256),
        (1 << 63, 1 << 63),
        (256, 1 << 63),
        (u64::MAX / 256 * 256, 1 << 63),
    ] {
        assert_eq!(pool.take(bytes, alignment), Err(TakeError::NoRoom));
    }
    pool.finish();
}
