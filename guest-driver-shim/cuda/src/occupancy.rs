//! Occupancy (CUDA driver API, "Occupancy"): how many blocks a multiprocessor holds at the same
//! time.
//!
//! The rules are those of the CUDA programming guide ("Hardware Multithreading", and "Technical
//! Specifications per Compute Capability"): threads, blocks, registers and shared memory each have
//! a limit, and the smallest counts.

use causeway_protocol::packet::LaunchShape;

use crate::boundary::{In, Out};
use crate::cluster;
use crate::device;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::function;
use crate::kernel::{self, Kernel, attribute};
use crate::launch;
use crate::structures::LaunchConfiguration;

/// Registers are given to warps in units of this many, by each of so many parts of a
/// multiprocessor.
const REGISTER_UNIT: u32 = 256;
const PARTS: u32 = 4;
/// Shared memory is given to blocks in units of this many bytes.
const SHARED_UNIT: u32 = 128;
/// `CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE`
const FLAGS: u32 = 1;

/// What a multiprocessor has.
#[derive(Clone, Copy, Debug)]
struct Multiprocessor {
    warp_threads: u32,
    threads: u32,
    block_threads: u32,
    blocks: u32,
    registers: u32,
    block_registers: u32,
    shared_bytes: u32,
    /// Shared memory that the system takes from each block.
    reserved_bytes: u32,
    /// Shared memory that a block may have at most.
    block_shared_bytes: u32,
}

/// What a block needs.
#[derive(Clone, Copy, Debug)]
struct Block {
    threads: u32,
    threads_max: u32,
    /// Registers of a thread.
    registers: u32,
    static_bytes: u32,
    dynamic_bytes: u32,
}

impl Multiprocessor {
    fn of(driver: &Driver) -> Answer<Self> {
        let attribute = |number| {
            let value = device::attribute(driver, number).ok_or(Code::NOT_SUPPORTED)?;
            u32::try_from(value).map_err(|_| Code::NOT_SUPPORTED)
        };
        Ok(Self {
            warp_threads: attribute(10)?.max(1),
            threads: attribute(39)?,
            block_threads: attribute(1)?,
            blocks: attribute(106)?,
            registers: attribute(82)?,
            block_registers: attribute(12)?,
            shared_bytes: attribute(81)?,
            reserved_bytes: attribute(111)?,
            block_shared_bytes: attribute(97)?,
        })
    }

    /// Returns how many blocks run at the same time; 0 if none can.
    fn resident(&self, block: Block) -> u32 {
        if block.threads > block.threads_max.min(self.block_threads) {
            return 0;
        }
        let warps = block.threads.div_ceil(self.warp_threads);
        let by_warps = (self.threads / self.warp_threads).checked_div(warps);
        let counts = [
            by_warps.unwrap_or(0),
            self.blocks,
            self.by_registers(warps, block.registers),
            self.by_shared(block.static_bytes, block.dynamic_bytes),
        ];
        counts.into_iter().fold(u32::MAX, u32::min)
    }

    fn by_registers(&self, warps: u32, registers: u32) -> u32 {
        let of_warp = registers.saturating_mul(self.warp_threads);
        let of_warp = of_warp.next_multiple_of(REGISTER_UNIT);
        let Some(of_part) = (self.registers / PARTS).checked_div(of_warp) else {
            return u32::MAX;
        };
        let of_block = u64::from(of_warp) * u64::from(warps.next_multiple_of(PARTS));
        match of_block > u64::from(self.block_registers) {
            true => 0,
            false => (of_part * PARTS).checked_div(warps).unwrap_or(0),
        }
    }

    fn by_shared(&self, static_bytes: u32, dynamic_bytes: u32) -> u32 {
        let Some(own) = static_bytes.checked_add(dynamic_bytes) else {
            return 0;
        };
        if own > self.block_shared_bytes {
            return 0;
        }
        let taken = (own + self.reserved_bytes).next_multiple_of(SHARED_UNIT);
        self.shared_bytes.checked_div(taken).unwrap_or(u32::MAX)
    }

    /// Returns the largest dynamic shared memory in bytes with which `blocks` blocks run at the
    /// same time.
    fn dynamic_bytes(&self, block: Block, blocks: u32) -> Option<u32> {
        if blocks == 0 || blocks > self.resident(block) {
            return None;
        }
        let share = self.shared_bytes / blocks / SHARED_UNIT * SHARED_UNIT;
        let own = share.checked_sub(self.reserved_bytes)?;
        own.min(self.block_shared_bytes)
            .checked_sub(block.static_bytes)
    }

    /// Returns the block with the most threads at the same time, and how many such blocks there
    /// are. `with` returns the block of so many threads.
    fn best(&self, threads_max: u32, with: impl Fn(u32) -> Block) -> (u32, u32) {
        let mut best = (0, 0);
        let mut threads = threads_max.min(self.block_threads);
        while threads != 0 {
            let blocks = self.resident(with(threads));
            if blocks * threads > best.0 * best.1 {
                best = (threads, blocks);
            }
            // The largest may be no whole number of warps; the others are.
            threads = (threads - 1) / self.warp_threads * self.warp_threads;
        }
        best
    }
}

fn block_of(kernel: &Kernel, threads: u32, dynamic_bytes: u32) -> Block {
    Block {
        threads,
        threads_max: kernel.amount(attribute::BLOCK_THREADS_MAX),
        registers: kernel.amount(attribute::REGISTERS),
        static_bytes: kernel.amount(attribute::SHARED_BYTES),
        dynamic_bytes,
    }
}

fn multiprocessors(driver: &Driver) -> u32 {
    let count = device::attribute(driver, 16).unwrap_or(1);
    count.max(1).cast_unsigned()
}

/// Returns how many blocks of a launch the device runs at the same time. The caller has checked the
/// shape.
pub(crate) fn resident_blocks(driver: &Driver, kernel: &Kernel, shape: LaunchShape) -> Answer<u64> {
    let block = block_of(kernel, shape.block.iter().product(), shape.shared_bytes);
    let blocks = Multiprocessor::of(driver)?.resident(block);
    Ok(u64::from(blocks) * u64::from(multiprocessors(driver)))
}

/// Returns sizes that are to be positive, or 32 bits.
fn positive(value: i32) -> Answer<u32> {
    match u32::try_from(value) {
        Ok(value) if value != 0 => Ok(value),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn clamped(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn active_blocks(
    blocks: Out<i32>,
    function: usize,
    threads: i32,
    dynamic_bytes: usize,
    flags: u32,
) -> u32 {
    call_in_context(|driver, _| {
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let kernel = kernel::find(driver, function)?;
        let block = block_of(&kernel, positive(threads)?, clamped(dynamic_bytes));
        blocks.set(Multiprocessor::of(driver)?.resident(block) as i32)
    })
}

/// Returns the dynamic shared memory in bytes of a block of so many threads.
type SharedOf = Option<unsafe extern "C" fn(threads: i32) -> usize>;

struct Wanted {
    function: usize,
    shared_of: SharedOf,
    dynamic_bytes: usize,
    threads_max: i32,
    flags: u32,
}

fn potential_block(grid: Out<i32>, block: Out<i32>, wanted: &Wanted) -> u32 {
    call_in_context(|driver, _| {
        if grid.is_null() || block.is_null() || wanted.flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let kernel = kernel::find(driver, wanted.function)?;
        let kernel_max = kernel.amount(attribute::BLOCK_THREADS_MAX);
        let threads_max = match wanted.threads_max {
            0 => kernel_max,
            given => positive(given)?.min(kernel_max),
        };
        let with = |threads: u32| {
            let bytes = match wanted.shared_of {
                // SAFETY: by the promise of the caller, who has given this function.
                Some(shared_of) => unsafe { shared_of(threads as i32) },
                None => wanted.dynamic_bytes,
            };
            block_of(&kernel, threads, clamped(bytes))
        };
        let (threads, blocks) = Multiprocessor::of(driver)?.best(threads_max, with);
        block.set(threads as i32)?;
        grid.set((blocks * multiprocessors(driver)) as i32)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<i32>,
    function: usize,
    threads: i32,
    dynamic_bytes: usize,
) -> u32 {
    active_blocks(blocks, function, threads, dynamic_bytes, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<i32>,
    function: usize,
    threads: i32,
    dynamic_bytes: usize,
    flags: u32,
) -> u32 {
    active_blocks(blocks, function, threads, dynamic_bytes, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<i32>,
    block: Out<i32>,
    function: usize,
    shared_of: SharedOf,
    dynamic_bytes: usize,
    threads_max: i32,
) -> u32 {
    let wanted = Wanted {
        function,
        shared_of,
        dynamic_bytes,
        threads_max,
        flags: 0,
    };
    potential_block(grid, block, &wanted)
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: Out<i32>,
    block: Out<i32>,
    function: usize,
    shared_of: SharedOf,
    dynamic_bytes: usize,
    threads_max: i32,
    flags: u32,
) -> u32 {
    let wanted = Wanted {
        function,
        shared_of,
        dynamic_bytes,
        threads_max,
        flags,
    };
    potential_block(grid, block, &wanted)
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: Out<usize>,
    function: usize,
    blocks: i32,
    threads: i32,
) -> u32 {
    call_in_context(|driver, _| {
        let kernel = kernel::find(driver, function)?;
        let block = block_of(&kernel, positive(threads)?, 0);
        let found = Multiprocessor::of(driver)?.dynamic_bytes(block, positive(blocks)?);
        // A launch may not have more than the kernel, which may be less than the device has.
        let launch_max = kernel.amount(attribute::DYNAMIC_SHARED_BYTES_MAX);
        bytes.set(found.ok_or(Code::INVALID_VALUE)?.min(launch_max) as usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxPotentialClusterSize(
    size: Out<i32>,
    function: usize,
    configuration: In<LaunchConfiguration>,
) -> u32 {
    call_in_context(|driver, _| {
        let kernel = function::find_given(driver, function)?;
        kernel.check_shape(shape_of(&configuration.get()?))?;
        size.set(device::cluster_blocks_max(driver) as i32)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveClusters(
    clusters: Out<i32>,
    function: usize,
    configuration: In<LaunchConfiguration>,
) -> u32 {
    call_in_context(|driver, _| {
        let given = configuration.get()?;
        let kernel = function::find_given(driver, function)?;
        let cluster = launch::check_attributes(&given)?.cluster;
        cluster::check_cluster(given.grid, cluster, device::cluster_blocks_max(driver))?;
        kernel.check_shape(shape_of(&given))?;
        let blocks = resident_blocks(driver, &kernel, shape_of(&given))?;
        // A launch without clusters has clusters of one block.
        let cluster_blocks = cluster::blocks_of(kernel.cluster(cluster)?).max(1);
        clusters.set((blocks / cluster_blocks) as i32)
    })
}

const fn shape_of(given: &LaunchConfiguration) -> LaunchShape {
    LaunchShape {
        shared_bytes: given.shared_bytes,
        grid: given.grid,
        block: given.block,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An H100 or H200 (attributes of compute capability 9.0).
    const HOPPER: Multiprocessor = Multiprocessor {
        warp_threads: 32,
        threads: 2048,
        block_threads: 1024,
        blocks: 32,
        registers: 65536,
        block_registers: 65536,
        shared_bytes: 233_472,
        reserved_bytes: 1024,
        block_shared_bytes: 232_448,
    };

    const fn block(threads: u32, registers: u32, static_bytes: u32, dynamic_bytes: u32) -> Block {
        Block {
            threads,
            threads_max: 1024,
            registers,
            static_bytes,
            dynamic_bytes,
        }
    }

    #[test]
    fn the_scarcest_resource_counts() {
        for (given, blocks) in [
            // Blocks.
            (block(32, 16, 0, 0), 32),
            // Threads.
            (block(256, 32, 0, 0), 8),
            (block(1024, 32, 0, 0), 2),
            (block(33, 16, 0, 0), 32),
            (block(96, 16, 0, 0), 21),
            // Registers: 255 of each thread take 8192 of each warp.
            (block(256, 64, 0, 0), 4),
            (block(256, 65, 0, 0), 3),
            (block(32, 255, 0, 0), 8),
            (block(1024, 64, 0, 0), 1),
            (block(1024, 65, 0, 0), 0),
            // Shared memory: each block loses 1 KiB.
            (block(128, 32, 48 << 10, 0), 4),
            (block(128, 32, 1024, 99 << 10), 2),
            (block(128, 32, 0, 232_448), 1),
            (block(128, 32, 1, 232_448), 0),
            (block(128, 32, 0, u32::MAX), 0),
            // More threads than any block has.
            (block(1025, 16, 0, 0), 0),
        ] {
            assert_eq!(HOPPER.resident(given), blocks, "{given:?}");
        }
        let bounded = Block {
            threads_max: 128,
            ..block(129, 16, 0, 0)
        };
        assert_eq!(HOPPER.resident(bounded), 0);
    }

    #[test]
    fn the_best_block_fills_the_multiprocessor() {
        assert_eq!(
            HOPPER.best(1024, |threads| block(threads, 32, 0, 0)),
            (1024, 2)
        );
        assert_eq!(
            HOPPER.best(1024, |threads| block(threads, 64, 0, 0)),
            (1024, 1)
        );
        assert_eq!(
            HOPPER.best(700, |threads| block(threads, 32, 0, 0)),
            (512, 4)
        );
        assert_eq!(HOPPER.best(8, |threads| block(threads, 32, 0, 0)), (8, 32));
        // A KiB for each thread: 226 threads fit, and 224 are whole warps.
        let shared = |threads: u32| block(threads, 32, 0, threads << 10);
        let (threads, blocks) = HOPPER.best(1024, shared);
        assert_eq!((threads, blocks), (224, 1));
        assert_eq!(HOPPER.best(1024, |_| block(1, 32, 300_000, 0)), (0, 0));
    }

    #[test]
    fn dynamic_memory_is_what_the_blocks_leave() {
        let given = block(128, 32, 1000, 0);
        for blocks in 1..=HOPPER.resident(given) {
            let bytes = HOPPER.dynamic_bytes(given, blocks).unwrap();
            let with = |dynamic_bytes| {
                HOPPER.resident(Block {
                    dynamic_bytes,
                    ..given
                })
            };
            assert!(with(bytes) >= blocks, "{blocks} blocks with {bytes} bytes");
            assert!(
                with(bytes + SHARED_UNIT) < blocks,
                "{blocks} blocks with {bytes} bytes"
            );
        }
        assert_eq!(HOPPER.dynamic_bytes(given, 17), None);
        assert_eq!(HOPPER.dynamic_bytes(given, 0), None);
        let one = HOPPER.dynamic_bytes(block(32, 16, 0, 0), 1);
        assert_eq!(one, Some(HOPPER.block_shared_bytes));
    }
}
