//! Kernels that misbehave or only take time. One module holds them all.

/// PTX text of the module with all of these kernels.
pub const PTX: &str = include_str!("../ptx/special.ptx");

/// Name of the kernel `wild_store(u64 address, u32 value)`. Each thread stores `value` to
/// `address`, which need not be mapped.
pub const WILD_STORE: &str = "wild_store";
/// Name of the kernel `wild_load(u64 address, u64 result)`. Each thread loads a `u32` from
/// `address`, which need not be mapped, and stores it to the address `result`.
pub const WILD_LOAD: &str = "wild_load";
/// Name of the kernel `forever(u64 flag)`. It ends when the `u32` at the address `flag` is not
/// zero.
pub const FOREVER: &str = "forever";
/// Name of the kernel `spin(u32 steps, u64 states)`. Each thread changes its own `u32` of the array
/// at the address `states` by `steps` steps, as [`spun`] does.
pub const SPIN: &str = "spin";

/// Returns the value that the kernel `spin` makes of `state` in `steps` steps.
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
