//! Memory (CUDA driver API, "Memory Management" and "Unified Addressing").
//!
//! | what | is |
//! |---|---|
//! | device memory | a piece of the shim's pool |
//! | page-locked and managed memory | a piece of host memory, at one address for CPU and GPU |
//! | other memory of the process | copied through staging memory |
//!
//! All work of the process is in one order, so freed device memory can be reused at once: work that
//! uses it again comes later. Only what the CPU reuses, and what goes back to the device, has to
//! wait for the work before.

mod across;
mod advice;
mod array_calls;
mod array_copy;
mod batches;
mod copy;
mod current_pools;
mod device;
mod fill;
mod free_ranges;
pub(crate) mod graph_memory;
mod host;
pub(crate) mod host_copy;
mod ipc;
mod managed;
mod managed_variables;
mod pageable;
mod peer_access;
mod peers;
mod physical;
mod pinned;
mod pointer;
mod pointer_data;
mod pool_access;
mod pool_kinds;
mod pool_sharing;
mod pools;
mod record_file;
mod rectangle;
mod regions;
mod registered;
mod reservations;
mod segments;
mod staged;
mod staging;
mod stores;
mod transfer;
mod virtual_memory;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use causeway_shim_linux::shim::{AddressSpace, Allocation, Attributes, Device};
use parking_lot::{Mutex, MutexGuard};

use crate::boundary::Out;
use crate::context::Context;
use crate::driver::{Driver, call_at, call_in_context};
use crate::error::{Answer, Code};
use crate::rings::{Marks, Submission};
use device::DeviceMemory;
pub(crate) use device::FutureStorage;
pub(crate) use fill::fill_work;
use graph_memory::GraphUse;
use host::HostMemory;
pub(crate) use managed_variables::{InModule, ManagedVariables};
use peers::Peers;
use pools::Pools;
pub(crate) use rectangle::copy_work;
use regions::{Backing, Region, Regions};
use reservations::Guard;
use staging::Staging;
use stores::Stores;

/// Addresses of memory that `cuMemAlloc` allocates are multiples of this (CUDA C++ Programming
/// Guide, "Device Memory Accesses").
const ALIGNMENT: u64 = 256;
/// Rows of `cuMemAllocPitch` begin at multiples of this, as attribute 14 of the device says.
const PITCH_ALIGNMENT: u64 = 512;
/// Addresses from here on are none of a process: modules have variables there.
const PROCESS_END: u64 = 1 << 47;
/// Nothing has addresses from here on.
const VARIABLES_END: u64 = PROCESS_END + (1 << 43);
/// How long a figure of the device's memory is told again without asking the device.
const USAGE_AGE: Duration = Duration::from_millis(10);

/// Memory that the program has given up, each with the last submissions that may use it.
type Retired = Mutex<VecDeque<(Marks, Allocation<'static>)>>;

/// All memory of a device that CUDA knows.
pub(crate) struct Memory {
    pub(crate) regions: Mutex<Regions>,
    device: Mutex<DeviceMemory>,
    host: Mutex<HostMemory>,
    staging: Mutex<Option<Staging>>,
    pools: Mutex<Pools>,
    /// Where pools that other processes may use have their memory.
    stores: Stores,
    retired: Retired,
    graph_use: Mutex<GraphUse>,
    guard: Guard,
    /// What this device reaches of others.
    peers: Mutex<Peers>,
    /// Held while memory of another device is mapped or unmapped, and during a copy for which it is
    /// mapped. Taken before `peers`.
    borrowing: Mutex<()>,
    /// Exports to this device that are to end. A leaf lock.
    ended_exports: Mutex<peers::EndedExports>,
    /// The devices that have access to this one's memory: bit `n` stands for device `n`.
    reached_by: AtomicU64,
    /// When the device was asked how much memory others use, and what it said.
    usage: Mutex<Option<(Instant, u64)>>,
}

/// What an address and the bytes behind it are for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The GPU reaches it at `gpu`, and the CPU at `host`, if at all. `room` bytes of it have the
    /// same mapping.
    Gpu {
        gpu: u64,
        host: Option<u64>,
        room: u64,
    },
    /// Only the CPU reaches it.
    Cpu(u64),
    /// It is memory of another device, which this one does not reach.
    Elsewhere(&'static Driver),
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Driver({})", self.ordinal)
    }
}

impl PartialEq for Driver {
    fn eq(&self, other: &Self) -> bool {
        self.ordinal == other.ordinal
    }
}

impl Eq for Driver {}

impl Memory {
    /// Prepares memory of a process in `space`. Handles have these bits. Device memory gets
    /// addresses in `window`, if there is one.
    pub(crate) fn new(
        (device, space): (&'static Device<'static>, &'static AddressSpace<'static>),
        handle_bits: usize,
        attributes: &Attributes,
        window: Option<Range<u64>>,
        storage: FutureStorage,
    ) -> Answer<Self> {
        let guard = Guard::new(device, attributes, window.as_ref());
        let mut pools = Pools::default();
        pools.handle_bits = handle_bits;
        Ok(Self {
            regions: Mutex::default(),
            device: Mutex::new(DeviceMemory::new(space, attributes, window, storage)?),
            host: Mutex::new(HostMemory::new(device, space, attributes)),
            staging: Mutex::default(),
            pools: Mutex::new(pools),
            stores: Stores::default(),
            retired: Retired::default(),
            graph_use: Mutex::default(),
            guard,
            peers: Mutex::default(),
            borrowing: Mutex::default(),
            ended_exports: Mutex::default(),
            reached_by: AtomicU64::new(0),
            usage: Mutex::default(),
        })
    }

    /// Finds out what `bytes` bytes at an address are. Memory that CUDA does not know is the
    /// process's own.
    fn place(&self, address: u64, bytes: u64) -> Answer<Place> {
        let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let regions = self.regions.lock();
        let Some((start, region)) = regions.find(address) else {
            let place = self.place_unknown(&regions, address, end);
            drop(regions);
            return match Driver::all().len() {
                ..2 => place,
                _ => self.place_of_others(address, end, place),
            };
        };
        if !regions.covers(address, bytes) {
            // Other memory of the program may follow on the last page.
            let is_own = matches!(region.backing, Backing::Registered(_));
            return match is_own {
                true => Ok(Place::Cpu(address)),
                false => Err(Code::INVALID_VALUE),
            };
        }
        let inside = address - start;
        match (region.gpu, region.host) {
            (Some(gpu), host) => Ok(Place::Gpu {
                gpu: gpu + inside,
                host: host.map(|host| host + inside),
                room: (region.bytes - inside).min(end - address),
            }),
            (None, Some(host)) => Ok(Place::Cpu(host + inside)),
            (None, None) => Err(Code::INVALID_VALUE),
        }
    }

    /// Returns the GPU's address of memory of which a texture is to be made: all of it has one
    /// mapping of this device.
    pub(crate) fn reached_by_gpu(&self, address: u64, bytes: u64) -> Answer<u64> {
        match self.place(address, bytes)? {
            Place::Gpu { gpu, room, .. } if room >= bytes => Ok(gpu),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Finds out what the rows of a copy are, which begin and end with a range: one allocation, or
    /// memory of the process.
    fn place_rows(&self, address: u64, bytes: u64) -> Answer<Place> {
        let first = self.place(address, bytes)?;
        if let Place::Cpu(_) = first
            && let Place::Gpu { host: None, .. } = self.place(address + (bytes - 1), 1)?
        {
            return Err(Code::INVALID_VALUE);
        }
        Ok(first)
    }

    fn place_unknown(&self, regions: &Regions, address: u64, end: u64) -> Answer<Place> {
        let is_nobodys = address == 0 || end > VARIABLES_END;
        if is_nobodys || self.guard.contains(address) || regions.is_reserved(address) {
            return Err(Code::INVALID_VALUE);
        }
        match address >= PROCESS_END {
            true => Ok(Place::Gpu {
                gpu: address,
                host: None,
                room: u64::MAX,
            }),
            false => Ok(Place::Cpu(address)),
        }
    }

    /// Finds out whether memory that is not this device's is another's. `place` is what it is
    /// otherwise.
    fn place_of_others(&self, address: u64, end: u64, place: Answer<Place>) -> Answer<Place> {
        let mut others = Driver::all().iter();
        let owner = others.find(|other| other.memory.has(address));
        match owner {
            Some(owner) if !owner.memory.is_for_cpu(address) => {
                let place = owner.memory.place(address, end - address)?;
                let mut all = Driver::all().iter();
                let own = all.find(|driver| std::ptr::eq(&raw const driver.memory, self));
                match place {
                    Place::Gpu { .. } if own.is_some_and(|own| own.reaches(owner, address)) => {
                        Ok(place)
                    }
                    _ => Ok(Place::Elsewhere(owner)),
                }
            }
            // As far as this device is concerned, it is memory of the process.
            Some(_) => Ok(Place::Cpu(address)),
            None if Driver::all()
                .iter()
                .any(|other| other.memory.keeps(address)) =>
            {
                Err(Code::INVALID_VALUE)
            }
            None => place,
        }
    }

    /// Returns whether an address is kept for the device or for the program's mappings.
    fn keeps(&self, address: u64) -> bool {
        self.guard.contains(address) || self.regions.lock().is_reserved(address)
    }

    /// Returns whether the program has memory of this device at an address.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.regions.lock().find(address).is_some()
    }

    /// Returns whether the CPU reaches the memory at an address by the same.
    fn is_for_cpu(&self, address: u64) -> bool {
        let regions = self.regions.lock();
        let found = regions.find(address);
        found.is_some_and(|(start, region)| region.host == Some(start))
    }

    /// Allocates device memory.
    fn allocate(&self, driver: &Driver, context: &Context, bytes: u64) -> Answer<u64> {
        let piece = self.device.lock().allocate(driver, bytes, ALIGNMENT)?;
        let start = piece.address();
        let region = Region {
            bytes,
            gpu: Some(piece.address()),
            host: None,
            context: context.handle,
            flags: 0,
            backing: Backing::Piece { piece, pool: 0 },
        };
        let address = self.regions.lock().insert(region);
        driver.show_to_peers(start);
        Ok(address)
    }

    /// Frees what begins at an address, if it was allocated by `cuMemAlloc` and its like.
    fn free(&self, driver: &Driver, address: u64) -> Answer {
        let mut regions = self.regions.lock();
        if let Some(freed) = graph_memory::free(&mut regions, address) {
            drop(regions);
            if let Some(region) = freed? {
                self.give_back(driver, region);
            }
            return Ok(());
        }
        let is_allocated = |region: &Region| {
            matches!(
                region.backing,
                Backing::Piece { .. }
                    | Backing::Managed { .. }
                    | Backing::Pooled { .. }
                    | Backing::Stored(_)
                    | Backing::ImportedPiece(_)
            )
        };
        let taken = regions.take(address, is_allocated);
        drop(regions);
        let taken = taken.ok_or(Code::INVALID_VALUE)?;
        let drained = match taken.backing {
            // The CPU may get the memory again at once.
            Backing::Managed { .. } | Backing::Pooled { .. } => driver.rings.drain(driver),
            // Nobody else has it any more when this returns.
            Backing::Stored(_) | Backing::ImportedPiece(_) => driver.rings.drain(driver),
            _ => Ok(()),
        };
        self.give_back(driver, taken);
        drained
    }

    /// Frees what begins at an address as [`Self::free`] does, without a wait: memory that the CPU
    /// may get again, or other processes have, is free once the work before has ended.
    fn free_behind_work(&self, driver: &Driver, address: u64) -> Answer {
        let waits = |region: &Region| {
            matches!(
                region.backing,
                Backing::Managed { .. }
                    | Backing::Pooled { .. }
                    | Backing::Stored(_)
                    | Backing::ImportedPiece(_)
            )
        };
        let taken = self.regions.lock().take(address, waits);
        let Some(taken) = taken else {
            return self.free(driver, address);
        };
        match taken.backing {
            Backing::Managed { piece, pool, .. } | Backing::Pooled { piece, pool } => {
                self.pools.lock().note_freed(pool, piece.bytes());
                self.host.lock().retire(driver, piece);
            }
            _ => self.give_back(driver, taken),
        }
        Ok(())
    }

    /// Gives what is behind a region back. What the CPU may get again is used by no work any more.
    fn give_back(&self, driver: &Driver, region: Region) {
        match region.backing {
            Backing::Piece { piece, pool } => {
                self.pools.lock().note_freed(pool, piece.bytes());
                let marks = driver.rings.of_freed(driver);
                self.device.lock().free(driver, piece, marks);
            }
            Backing::Graph(freed) => freed.give_back(driver),
            Backing::Managed { piece, pool, .. } | Backing::Pooled { piece, pool } => {
                self.pools.lock().note_freed(pool, piece.bytes());
                self.host.lock().free(piece);
            }
            Backing::Host(piece) => self.host.lock().free(piece),
            Backing::Stored(stored) => {
                self.pools.lock().note_freed(stored.pool, stored.bytes());
                stored.give_back(driver);
            }
            Backing::ImportedPiece(imported) => self.end_behind_work(driver, imported.memory),
            Backing::Registered(Some(replaced)) => {
                if let Err(code) = replaced.end() {
                    log::warn!("registered memory stays the device's: error {}", code.0);
                }
            }
            Backing::Imported { .. }
            | Backing::Registered(None)
            | Backing::Mapped(_)
            | Backing::Variable
            | Backing::ManagedVariable(_)
            | Backing::Alias { .. } => {}
        }
    }

    /// Frees what was allocated in a context, whose work has ended.
    pub(crate) fn end_of_context(&self, driver: &Driver, context: usize) {
        // `registered::show` must find its region again.
        let replacing = registered::replacing();
        let ended = self.regions.lock().take_of_context(context);
        let is_registered = |region: &Region| matches!(region.backing, Backing::Registered(_));
        let (registered, others): (Vec<_>, Vec<_>) = ended.into_iter().partition(is_registered);
        let give_back = |region| self.give_back(driver, region);
        registered.into_iter().for_each(give_back);
        drop(replacing);
        others.into_iter().for_each(give_back);
    }

    /// Ends memory that is no region any more once the work that was submitted before has ended.
    pub(crate) fn end_behind_work(&self, driver: &Driver, memory: Allocation<'static>) {
        let marks = driver.rings.marks();
        driver.rings.ask(driver, &marks);
        self.retired.lock().push_back((marks, memory));
        self.end_retired(driver);
    }

    /// Ends the memory whose work has ended.
    fn end_retired(&self, driver: &Driver) {
        let is_over =
            |(marks, _): &mut (Marks, Allocation<'static>)| driver.rings.are_reached(marks);
        let mut retired = self.retired.lock();
        while let Some(over) = retired.pop_front_if(is_over) {
            drop(over);
        }
    }

    /// Returns the staging memory, which only one copy at a time uses.
    fn staging(&self, driver: &Driver) -> Answer<MutexGuard<'_, Option<Staging>>> {
        let mut staging = self.staging.lock();
        if staging.is_none() {
            *staging = Some(Staging::new(driver)?);
        }
        Ok(staging)
    }

    /// Returns how many bytes of device memory the process holds, in use or kept for later.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.reserved_and_used_bytes().0
    }

    /// Returns how many bytes of device memory the process has, and how many of them are in use.
    fn reserved_and_used_bytes(&self) -> (u64, u64) {
        let (reserved, used) = self.device.lock().reserved_and_used_bytes();
        let (reserved_stored, used_stored) = self.stores.reserved_and_used_bytes();
        (reserved + reserved_stored, used + used_stored)
    }

    /// Returns how many bytes of the device's memory are free, and how many there are.
    fn usage(&self, driver: &Driver) -> (u64, u64) {
        let all = driver.attributes.memory_bytes;
        let (reserved, used) = self.reserved_and_used_bytes();
        let mut usage = self.usage.lock();
        let known = usage.filter(|(asked, _)| asked.elapsed() < USAGE_AGE);
        let others = match known {
            Some((_, others)) => others,
            None => {
                let told = driver.device.attributes();
                let others = told.map_or(0, |now| now.memory_used_bytes.saturating_sub(reserved));
                *usage = Some((Instant::now(), others));
                others
            }
        };
        (all.saturating_sub(others).saturating_sub(used), all)
    }
}

/// Notes that a variable of a module is device memory.
pub(crate) fn note_module_range(driver: &Driver, address: u64, bytes: u64) {
    driver.memory.regions.lock().insert(Region {
        bytes,
        gpu: Some(address),
        host: None,
        context: 0,
        flags: 0,
        backing: Backing::Variable,
    });
}

/// Forgets the variable of a module that begins at `address`.
pub(crate) fn forget_module_range(driver: &Driver, address: u64) {
    let is_variable = |region: &Region| matches!(region.backing, Backing::Variable);
    driver.memory.regions.lock().take(address, is_variable);
}

impl Driver {
    /// Waits for a submission on whose memory the CPU waits.
    fn wait_for(&self, submission: Submission) -> Answer {
        self.rings.wait(self, submission)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) -> u32 {
    call_in_context(|driver, context| {
        if address.is_null() || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        driver.captures.check_unsafe()?;
        address.set(driver.memory.allocate(driver, context, bytes as u64)?)
    })
}

/// Returns the distance of rows of `width` bytes, and the bytes of all of them.
fn pitched(width: u64, height: u64) -> Option<(u64, u64)> {
    let pitch = width.checked_next_multiple_of(PITCH_ALIGNMENT)?;
    Some((pitch, pitch.checked_mul(height)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocPitch_v2(
    address: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element_bytes: u32,
) -> u32 {
    call_in_context(|driver, context| {
        let is_wrong = address.is_null() || pitch.is_null() || width == 0 || height == 0;
        if is_wrong || !matches!(element_bytes, 4 | 8 | 16) {
            return Err(Code::INVALID_VALUE);
        }
        driver.captures.check_unsafe()?;
        let (distance, bytes) = pitched(width as u64, height as u64).ok_or(Code::INVALID_VALUE)?;
        let start = driver.memory.allocate(driver, context, bytes)?;
        pitch.set(distance as usize)?;
        address.set(start)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    call_at(address, |driver| {
        driver.captures.check_unsafe()?;
        if address == 0 {
            return Ok(());
        }
        // NVIDIA's driver waits for the whole device here, and programs count on that. With one
        // ring nobody can tell the difference.
        if driver.rings.are_several() {
            driver.rings.drain(driver)?;
        }
        driver.memory.free(driver, address)?;
        driver.hide_from_peers();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: Out<usize>, all: Out<usize>) -> u32 {
    call_in_context(|driver, _| {
        let (free_bytes, all_bytes) = driver.memory.usage(driver);
        free.set_if_wanted(free_bytes as usize);
        all.set_if_wanted(all_bytes as usize);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, address: u64) -> u32 {
    call_in_context(|driver, _| {
        let regions = driver.owner_at(address).memory.regions.lock();
        let (start, region) = regions.find(address).ok_or(Code::NOT_FOUND)?;
        base.set_if_wanted(start);
        bytes.set_if_wanted(region.bytes as usize);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_begin_at_multiples_of_the_alignment() {
        assert_eq!(pitched(1, 3), Some((512, 1536)));
        assert_eq!(pitched(512, 2), Some((512, 1024)));
        assert_eq!(pitched(513, 1), Some((1024, 1024)));
        assert_eq!(pitched(u64::MAX, 1), None);
        assert_eq!(pitched(1 << 40, 1 << 40), None);
    }
}
