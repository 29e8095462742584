//! Kernels that misbehave or only take time. One module holds them all.

/// The module.
pub const PTX: &str = include_str!("../ptx/special.ptx");

/// `wild_store(u64 address, u32 value)`: each thread stores the value to the address.
pub const WILD_STORE: &str = "wild_store";
/// `wild_load(u64 address, u64 result)`: each thread loads a `u32` from the address and stores it
/// to `result`.
pub const WILD_LOAD: &str = "wild_load";
/// `forever(u64 flag)`: ends when the `u32` at `flag` is not zero.
pub const FOREVER: &str = "forever";
/// `spin(u32 steps, u64 states)`: each thread takes its `u32` of `states` so many steps further;
/// see [`spun`].
pub const SPIN: &str = "spin";

/// Returns `state` after `steps` steps of `spin`.
pub fn spun(state: u32, steps: u32) -> u32 {
    (0..steps).fold(state, |value, _| {
        value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_has_every_kernel_that_is_named() {
        for name in [WILD_STORE, WILD_LOAD, FOREVER, SPIN] {
            assert!(PTX.contains(&std::format!(".entry {name}(")), "{name}");
        }
    }

    #[test]
    fn spinning_composes() {
        assert_eq!(spun(spun(7, 10), 5), spun(7, 15));
        assert_eq!(spun(1, 1), 1_015_568_748);
    }
}
