//! Kernels of benchmarks, all in one module. They do little: benchmarks measure what is around
//! them.

/// The module.
pub const PTX: &str = include_str!("../ptx/bench.ptx");

/// `nothing()`: does nothing, so that a launch costs only its overhead.
pub const NOTHING: &str = "nothing";
/// `echo(u64 mailbox, u64 answer)`: one thread that stores each new `u64` it finds in the mailbox
/// to `answer`, until that is [`ECHO_END`].
pub const ECHO: &str = "echo";
/// What ends `echo`.
pub const ECHO_END: u64 = u64::MAX;
/// `multiprocessors(u64 map, u32 steps)`: each block sets the bit of its multiprocessor in
/// [`MAP_WORDS`] `u32` words after being busy for so many steps.
pub const MULTIPROCESSORS: &str = "multiprocessors";
/// Words of the map of multiprocessors.
pub const MAP_WORDS: usize = 32;
/// `residue(u64 memory, u64 words, u64 count)`: adds the number of `u64` words that are not zero to
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
