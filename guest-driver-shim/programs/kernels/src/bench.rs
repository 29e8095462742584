//! Kernels for benchmarks, all in one module. They do little, because benchmarks measure the cost
//! of launching and waiting.

/// PTX text of the module with all kernels for benchmarks.
pub const PTX: &str = include_str!("../ptx/bench.ptx");

/// Name of the kernel `nothing()`, which does nothing, so that a launch costs only its overhead.
pub const NOTHING: &str = "nothing";
/// Name of the kernel `echo(u64 mailbox, u64 answer)`. Its one thread loads the `u64` at the
/// address `mailbox` again and again and stores each new value at the address `answer`, until the
/// value is [`ECHO_END`].
pub const ECHO: &str = "echo";
/// The value in the mailbox that ends the kernel `echo`.
pub const ECHO_END: u64 = u64::MAX;
/// Name of the kernel `multiprocessors(u64 map, u32 steps)`. Each block computes for `steps` steps,
/// and then sets the bit of its multiprocessor in the [`MAP_WORDS`] `u32` words at the address
/// `map`.
pub const MULTIPROCESSORS: &str = "multiprocessors";
/// Number of `u32` words in the map of the kernel `multiprocessors`.
pub const MAP_WORDS: usize = 32;
/// Name of the kernel `residue(u64 memory, u64 words, u64 count)`. It adds the number of words that
/// are not zero, of the `words` `u64` words at the address `memory`, to the `u64` at the address
/// `count`.
pub const RESIDUE: &str = "residue";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_has_every_kernel_that_is_named() {
        for name in [NOTHING, ECHO, MULTIPROCESSORS, RESIDUE] {
            assert!(PTX.contains(&std::format!(".entry {name}(")), "{name}");
        }
    }
}
