//! Free blocks by size: segregated lists (the sizes are those of TLSF: Masmano and others, "TLSF: a
//! new dynamic memory allocator for real-time systems", 2004).

/// Granularity of a pool's pieces in bytes: their sizes and addresses are multiples of it. CUDA's
/// `cuMemAlloc` aligns to 256 bytes, too.
pub const GRANULE_BYTES: u64 = 256;
/// Binary logarithm of [`LISTS`].
const LISTS_LOG: u32 = 3;
/// Lists for the sizes of one power of two, in equal steps.
const LISTS: u32 = 1 << LISTS_LOG;
/// Lists for any size that a `u64` can hold: the first [`LISTS`] have the sizes below as many
/// granules.
const CLASSES: usize = ((64 - 8 - LISTS_LOG + 1) * LISTS) as usize;
const WORDS: usize = CLASSES.div_ceil(64);

const _: () = assert!(GRANULE_BYTES == 1 << 8);

/// Number of a list of free blocks of similar sizes. Lists of larger blocks have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u32);

impl Class {
    /// Returns the class of a free block of `bytes` bytes (a multiple of [`GRANULE_BYTES`], not
    /// zero).
    pub const fn of(bytes: u64) -> Self {
        let granules = bytes / GRANULE_BYTES;
        if granules < LISTS as u64 {
            return Self(granules as u32);
        }
        let step_log = granules.ilog2() - LISTS_LOG;
        let list = (granules >> step_log) as u32 & (LISTS - 1);
        Self((step_log + 1) * LISTS + list)
    }

    /// Returns the lowest class in which every block has at least `bytes` bytes; `None` if no block
    /// can be that large.
    pub fn that_fits(bytes: u64) -> Option<Self> {
        let granules = bytes / GRANULE_BYTES;
        if granules < u64::from(LISTS) {
            return Some(Self::of(bytes));
        }
        let step = GRANULE_BYTES << (granules.ilog2() - LISTS_LOG);
        bytes.checked_add(step - GRANULE_BYTES).map(Self::of)
    }
}

/// For each list of free blocks, the number of its first block and whether it is empty. The caller
/// chooses the numbers of the blocks.
#[derive(Debug)]
pub struct Classes {
    /// A bit for each list that is not empty.
    filled: [u64; WORDS],
    heads: [u32; CLASSES],
}

impl Classes {
    /// Returns empty lists. The number of their first block is the placeholder `nothing`.
    pub const fn new(nothing: u32) -> Self {
        Self {
            filled: [0; WORDS],
            heads: [nothing; CLASSES],
        }
    }

    /// Returns the number of the first block in the list of `class`.
    pub fn head(&self, class: Class) -> u32 {
        self.heads[class.0 as usize]
    }

    /// Makes the block with the number `head` the first in the list of `class`. If the list becomes
    /// empty, `empty` is true and `head` is a placeholder.
    pub fn set_head(&mut self, class: Class, head: u32, empty: bool) {
        self.heads[class.0 as usize] = head;
        let (word, bit) = (class.0 as usize / 64, 1 << (class.0 % 64));
        if empty {
            self.filled[word] &= !bit;
        } else {
            self.filled[word] |= bit;
        }
    }

    /// Returns the first class from `class` upwards whose list is not empty.
    pub fn first_from(&self, class: Class) -> Option<Class> {
        let mut wanted = u64::MAX << (class.0 % 64);
        for word in class.0 / 64..WORDS as u32 {
            let found = self.filled[word as usize] & wanted;
            if found != 0 {
                return Some(Class(64 * word + found.trailing_zeros()));
            }
            wanted = u64::MAX;
        }
        None
    }

    /// Returns the class above `class`, or `None` if `class` is the highest.
    pub fn above(class: Class) -> Option<Class> {
        let above = class.0 + 1;
        ((above as usize) < CLASSES).then_some(Class(above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_kept_in_a_class_that_fits_is_large_enough() {
        for granules in (1..5000).chain([1 << 20, (1 << 20) + 1, (1 << 40) - 1, 1 << 54]) {
            let bytes = granules * GRANULE_BYTES;
            let own = Class::of(bytes);
            let fits = Class::that_fits(bytes).unwrap();
            assert!(fits >= own);
            // The smallest size of the class is enough: one granule less than `bytes` is kept below
            // it, or is too.
            let below = Class::of(bytes - GRANULE_BYTES);
            if granules > 1 {
                assert!(below <= own);
                assert_ne!(below, fits, "{granules}");
            }
        }
        assert_eq!(Class::that_fits(u64::MAX / 256 * 256), None);
        assert_eq!(Class::of(u64::MAX).0 as usize, CLASSES - 1);
    }

    #[test]
    fn the_first_list_with_a_block_is_found() {
        let mut classes = Classes::new(9);
        let (small, large) = (Class::of(256), Class::of(1 << 30));
        assert_eq!(classes.first_from(small), None);
        classes.set_head(large, 4, false);
        assert_eq!(classes.first_from(small), Some(large));
        assert_eq!(classes.first_from(large), Some(large));
        assert_eq!(
            classes.first_from(Classes::above(large).unwrap()),
            None,
            "it is below"
        );
        classes.set_head(small, 5, false);
        assert_eq!(classes.first_from(small), Some(small));
        assert_eq!((classes.head(small), classes.head(large)), (5, 4));
        classes.set_head(small, 9, true);
        assert_eq!(classes.first_from(small), Some(large));
        let top = Class::of(u64::MAX);
        classes.set_head(top, 1, false);
        assert_eq!(classes.first_from(top), Some(top));
    }
}
