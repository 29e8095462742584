//! Where things are in the 64-bit generic address space of a kernel.
//!
//! Mappings that the mediator makes are at the bottom. All else is above the 2^47 bytes that a
//! process has for itself, so that host memory can be mapped at its own addresses too: variables of
//! modules come first; shared memory, local memory and parameters, which each block or thread has
//! for itself, appear in windows behind them; arrays are at the top.

use std::ops::Range;

/// Where the mediator may map allocations. Below it nothing is mapped, so that null pointers fault.
pub(crate) const MAPPINGS: Range<u64> = 0x1000_0000..0x7000_0000_0000;
/// Where `.global` variables are mapped.
pub(crate) const GLOBAL_VARIABLES: Range<u64> = 0x8000_0000_0000..0x8800_0000_0000;
/// Where kernels find what they allocate, behind the variables of the last module.
pub(crate) const HEAP: Range<u64> = 0x8700_0000_0000..0x8800_0000_0000;
/// Where `.const` variables are mapped.
pub(crate) const CONST_VARIABLES: Range<u64> = 0x8800_0000_0000..0x8f00_0000_0000;
/// Window in which shared memory of the block appears.
pub(crate) const SHARED: Range<u64> = 0x8f00_0000_0000..0x8f01_0000_0000;
/// Window in which local memory of the thread appears.
pub(crate) const LOCAL: Range<u64> = 0x8f01_0000_0000..0x8f02_0000_0000;
/// Window in which the parameters of the kernel appear.
pub(crate) const PARAMETERS: Range<u64> = 0x8f02_0000_0000..0x8f03_0000_0000;

/// Where arrays are mapped: more than twice the largest.
pub(crate) const ARRAYS: Range<u64> = 0x1_0000_0000_0000..0x3_0000_0000_0000;
/// Addresses of functions, which are only compared: nothing is mapped there.
pub(crate) const FUNCTIONS: Range<u64> = 0x8f04_0000_0000..0x8f05_0000_0000;
/// Window in which the memory appears with which the blocks of a launch wait for each other.
pub(crate) const GRID: Range<u64> = 0x8f03_0000_0000..0x8f03_0000_0010;

/// Returns whether a generic address is outside the windows for shared memory, local memory and
/// parameters, and therefore in global memory, mapped or not.
pub(crate) const fn is_global(address: u64) -> bool {
    address < SHARED.start || address >= PARAMETERS.end
}
