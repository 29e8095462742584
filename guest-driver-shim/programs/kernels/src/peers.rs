//! Kernels of one GPU that work on memory of another. One module holds them all.

/// PTX text of the module with all of these kernels.
pub const PTX: &str = include_str!("../ptx/peers.ptx");

/// Name of the kernel `store_pattern(u64 memory, u64 words, u64 mask)`. It stores the pattern, with
/// the bits of `mask` inverted, to the `words` `u64` words at the address `memory`.
pub const STORE_PATTERN: &str = "store_pattern";
/// Name of the kernel `check_pattern(u64 memory, u64 words, u64 mask, u64 wrong)`. It adds the
/// number of words that are not those of the pattern to the `u64` at the address `wrong`.
pub const CHECK_PATTERN: &str = "check_pattern";
/// Name of the kernel `count_up(u64 memory, u64 told, u64 end)`. Its one thread stores 1, 2, 3 and
/// so on to the address `memory`, and each number to the address `told` afterwards, until the `u64`
/// at the address `end` is not zero.
pub const COUNT_UP: &str = "count_up";
/// Name of the kernel `link_words(u64 memory, u64 words, u64 distance)`. It stores to each of the
/// `words` `u64` words at the address `memory` the index of the word that is `distance` words
/// further, from the end on to the beginning.
pub const LINK_WORDS: &str = "link_words";
/// Name of the kernel `follow_links(u64 memory, u64 first, u64 steps, u64 end)`. Its one thread
/// loads the word with the index `first` of the `u64` words at the address `memory`, then the word
/// whose index it has loaded, and so on, `steps` times. It stores the last index to the address
/// `end`.
pub const FOLLOW_LINKS: &str = "follow_links";

/// Returns word `index` of the pattern with the bits of `mask` inverted.
pub const fn pattern(index: u64, mask: u64) -> u64 {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mask
}

/// Threads of a block of these kernels.
pub const THREADS: u32 = 256;
/// Blocks that keep any GPU of today busy.
pub const BLOCKS_MAX: u32 = 528;

/// Returns the number of blocks for a kernel of many threads that works on `words` words.
pub const fn blocks(words: u64) -> u32 {
    let all = words.div_ceil(THREADS as u64);
    if all < BLOCKS_MAX as u64 {
        all as u32
    } else {
        BLOCKS_MAX
    }
}

/// Sizes of copies between GPUs in bytes, below the size of the whole memory, which is copied too.
const COPIES: [u64; 3] = [4 << 10, 256 << 10, 8 << 20];

/// Returns the sizes of the copies of up to `most` bytes.
pub fn copy_sizes(most: u64) -> impl Iterator<Item = u64> {
    let smaller = COPIES.into_iter().filter(move |bytes| *bytes < most);
    smaller.chain([most])
}

/// Number of dependent loads that are timed together, so that the launch does not count.
pub const STEPS: u32 = 4096;

/// Distance of links in words: no line of a cache has two of them, and no power of two is a
/// multiple of it.
pub const DISTANCE: u64 = 4099;

/// Returns where `steps` links of the distance [`DISTANCE`] lead from word `first` of `words`
/// words.
pub const fn end_of_links(first: u64, steps: u64, words: u64) -> u64 {
    (first + steps * DISTANCE) % words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_has_every_kernel_that_is_named() {
        for name in [
            STORE_PATTERN,
            CHECK_PATTERN,
            COUNT_UP,
            LINK_WORDS,
            FOLLOW_LINKS,
        ] {
            assert!(PTX.contains(&std::format!(".entry {name}(")), "{name}");
        }
    }

    #[test]
    fn links_end_where_single_steps_lead() {
        for (first, steps, words) in [(0, 1, 512), (511, 1000, 512), (7, 4096, 1 << 25)] {
            let mut at = first;
            for _ in 0..steps {
                at = (at + DISTANCE) % words;
            }
            assert_eq!(end_of_links(first, steps, words), at);
        }
    }
}
