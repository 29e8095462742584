//! Free blocks by size: two-level segregated lists (the idea is that of TLSF: Masmano and others,
//! "TLSF: a new dynamic memory allocator for real-time systems", 2004).

/// Granularity of pieces in bytes: sizes and addresses of pieces are multiples of it. CUDA's
/// `cuMemAlloc` aligns to 256 bytes, too.
pub const GRANULE_BYTES: u64 = 256;
/// Binary logarithm of the lists of a level.
const LISTS_LOG: u32 = 3;
/// Lists of a level: sizes of one power of two, in equal steps.
const LISTS: usize = 1 << LISTS_LOG;
/// Levels, for any size that a `u64` can hold: the first has the sizes below [`LISTS`] granules.
const LEVELS: usize = (64 - 8 - LISTS_LOG + 1) as usize;

const _: () = assert!(GRANULE_BYTES == 1 << 8 && LEVELS <= 64);

/// A list of free blocks of similar sizes: its level, and its number within the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    level: u32,
    list: u32,
}

impl Class {
    /// Returns the class of a free block of `bytes` bytes (a multiple of the granule, not zero).
    pub const fn of(bytes: u64) -> Self {
        let granules = bytes / GRANULE_BYTES;
        if granules < LISTS as u64 {
            let list = granules as u32;
            return Self { level: 0, list };
        }
        let log = granules.ilog2();
        Self {
            level: log - LISTS_LOG + 1,
            list: (granules >> (log - LISTS_LOG)) as u32 & (LISTS as u32 - 1),
        }
    }

    /// Returns the lowest class in which every block has at least `bytes` bytes; `None` if no block
    /// can be that large.
    pub const fn that_fits(bytes: u64) -> Option<Self> {
        let granules = bytes / GRANULE_BYTES;
        if granules < LISTS as u64 {
            return Some(Self::of(bytes));
        }
        let step = GRANULE_BYTES << (granules.ilog2() - LISTS_LOG);
        match bytes.checked_add(step - GRANULE_BYTES) {
            Some(rounded) => Some(Self::of(rounded)),
            None => None,
        }
    }
}

/// The first block of each list, and which lists are not empty. Blocks are numbers that the caller
/// chooses.
#[derive(Debug)]
pub struct Classes {
    levels: u64,
    lists: [u8; LEVELS],
    heads: [[u32; LISTS]; LEVELS],
}

impl Classes {
    /// Returns empty lists, whose first block is the placeholder `nothing`.
    pub const fn new(nothing: u32) -> Self {
        Self {
            levels: 0,
            lists: [0; LEVELS],
            heads: [[nothing; LISTS]; LEVELS],
        }
    }

    /// Returns the first block of a list.
    pub fn head(&self, class: Class) -> u32 {
        self.heads[class.level as usize][class.list as usize]
    }

    /// Makes `head` the first block of a list. `empty` says that the list has no blocks.
    pub fn set_head(&mut self, class: Class, head: u32, empty: bool) {
        let (level, bit) = (class.level as usize, 1 << class.list);
        self.heads[level][class.list as usize] = head;
        if empty {
            self.lists[level] &= !bit;
        } else {
            self.lists[level] |= bit;
        }
        if self.lists[level] == 0 {
            self.levels &= !(1 << class.level);
        } else {
            self.levels |= 1 << class.level;
        }
    }

    /// Returns the first class from `class` upwards whose list is not empty.
    pub fn first_from(&self, class: Class) -> Option<Class> {
        let here = self.lists[class.level as usize] >> class.list << class.list;
        if here != 0 {
            let list = here.trailing_zeros();
            return Some(Class { list, ..class });
        }
        let above = self.levels & (u64::MAX << class.level << 1);
        if above == 0 {
            return None;
        }
        let level = above.trailing_zeros();
        let list = self.lists[level as usize].trailing_zeros();
        Some(Class { level, list })
    }

    /// Returns the class above `class`, or `None` for the last.
    pub const fn above(class: Class) -> Option<Class> {
        let Class { level, list } = class;
        if list + 1 < LISTS as u32 {
            let list = list + 1;
            Some(Class { level, list })
        } else if (level as usize) + 1 < LEVELS {
            let level = level + 1;
            Some(Class { level, list: 0 })
        } else {
            None
        }
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
            assert!((fits.level, fits.list) >= (own.level, own.list));
            // The smallest size of the class is enough: one granule less than `bytes` is kept below
            // it, or is too.
            let below = Class::of(bytes - GRANULE_BYTES);
            if granules > 1 {
                assert!((below.level, below.list) <= (own.level, own.list));
                assert_ne!(below, fits, "{granules}");
            }
        }
        assert_eq!(Class::that_fits(u64::MAX / 256 * 256), None);
        assert!((Class::of(u64::MAX).level as usize) < LEVELS);
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
