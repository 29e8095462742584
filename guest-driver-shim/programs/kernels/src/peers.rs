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

/// Returns word `index` of the pattern with the bits of `mask` inverted.
pub const fn pattern(index: u64, mask: u64) -> u64 {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_has_every_kernel_that_is_named() {
        for name in [STORE_PATTERN, CHECK_PATTERN, COUNT_UP] {
            assert!(PTX.contains(&std::format!(".entry {name}(")), "{name}");
        }
    }
}
