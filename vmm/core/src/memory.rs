//! Guest RAM: where it lies, what it is made of, and bounds-checked access to it.
//!
//! RAM is [0, 3 GiB) and, for what is more, from 4 GiB on; the gap belongs to devices. Each of the
//! two regions is one memory object, so that the mediator can register ranges of it with a GPU. The
//! guest writes RAM at any time: it is copied from and to, never referred to.
#![allow(unsafe_code)] // Lends the mappings to vm-memory, and to the guest.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use causeway_mediator::host::RamError;
use causeway_memory::{LARGE_PAGE_BYTES, Mapping, MemoryError, PageSize, SharedMemory};
use causeway_protocol::Access;
use vm_memory::mmap::FromRangesError;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::hypervisor::{MemorySlots, RAM_SLOT_FIRST, Slot};

/// Highest possible end of the guest RAM that begins at address zero: guest-physical address 3 GiB.
/// The addresses from here to 4 GiB belong to devices.
pub const LOW_END_MAX: u64 = 3 << 30;
/// Tables, boot page and the beginning of an image: touched sparsely before the first guest
/// instruction, so small pages bring it sooner.
const BOOT_BYTES: u64 = 4 << 20;
/// Guest-physical address, 4 GiB, at which the RAM that does not fit below 3 GiB begins. The
/// addresses from 3 to 4 GiB belong to devices.
pub const HIGH_BASE: u64 = 4 << 30;
/// Minimum size of a VM's RAM in bytes.
pub const RAM_BYTES_MIN: u64 = 8 << 20;
/// Maximum size of a VM's RAM in bytes. RAM must end well below the aperture.
pub const RAM_BYTES_MAX: u64 = 128 << 30;

/// Why guest RAM cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum RamCreateError {
    /// The size is out of range or not a multiple of 1 MiB.
    #[error(
        "invalid guest memory of {bytes} bytes: give a multiple of 1 MiB, from {} to {} MiB",
        RAM_BYTES_MIN >> 20, limit_bytes >> 20
    )]
    Size {
        /// Requested size of guest RAM in bytes.
        bytes: u64,
        /// Maximum size of guest RAM on this host, in bytes.
        limit_bytes: u64,
    },
    /// The host has no memory of this size.
    #[error("cannot create guest memory of {bytes} bytes (give the guest less with --memory)")]
    Create {
        /// Requested size of guest RAM in bytes.
        bytes: u64,
        /// Why the host cannot provide the memory.
        source: MemoryError,
    },
    /// The kernel does not place the memory on a NUMA node.
    #[error("cannot place guest memory as --numa says (leave that out to do without)")]
    Node(#[source] MemoryError),
}

/// One contiguous range of guest RAM, backed by a shared memory object of its own.
#[derive(Debug)]
pub struct RamRegion {
    base: u64,
    memory: Arc<SharedMemory>,
    mapping: Mapping,
}

impl RamRegion {
    fn new(name: &str, base: u64, bytes: u64, pages: PageSize) -> Result<Self, MemoryError> {
        let memory = Arc::new(SharedMemory::new(name, bytes, pages)?);
        let mapping = memory.map(0, bytes, Access::ReadWrite)?;
        if base == 0
            && let Err(e) = mapping.begin_with_small_pages(BOOT_BYTES)
        {
            log::debug!("{name}: cannot use large pages while the guest boots: {e}");
        }
        Ok(Self {
            base,
            memory,
            mapping,
        })
    }

    /// Returns the first guest-physical address of the range.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the size of the range in bytes.
    pub fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    /// Returns the memory object behind the range, which has exactly the range's size.
    pub fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// Returns the address in this process of the range's first byte, from which a memory slot can
    /// be made. [`Mapping::as_ptr`] says how this pointer may be used.
    pub fn host(&self) -> NonNull<u8> {
        self.mapping.as_ptr()
    }

    /// Returns the offset of `[address, address + bytes)` in the range, if the range contains it.
    fn offset(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        (offset.checked_add(bytes)? <= self.bytes()).then_some(offset)
    }
}

/// All RAM of one guest: one range from address zero to at most 3 GiB and, for larger guests,
/// another one from 4 GiB.
#[derive(Debug)]
pub struct GuestRam {
    low: RamRegion,
    high: Option<RamRegion>,
}

impl GuestRam {
    /// Creates `bytes` bytes of zeroed RAM, in 2 MiB pages if `large_pages` is set and the host can
    /// provide them. The memory objects get the name `name`.
    ///
    /// # Errors
    /// [`RamCreateError::Size`] if `bytes` is not a multiple of 1 MiB, less than [`RAM_BYTES_MIN`],
    /// or more than [`RAM_BYTES_MAX`] or the host's memory; `Create` if the host cannot provide the
    /// memory.
    pub fn new(name: &str, bytes: u64, large_pages: bool) -> Result<Self, RamCreateError> {
        let limit_bytes = host_memory_bytes().clamp(RAM_BYTES_MIN, RAM_BYTES_MAX);
        if !bytes.is_multiple_of(1 << 20) || !(RAM_BYTES_MIN..=limit_bytes).contains(&bytes) {
            return Err(RamCreateError::Size { bytes, limit_bytes });
        }
        let pages = if large_pages {
            PageSize::Large
        } else {
            PageSize::Small
        };
        let fail = |source| RamCreateError::Create { bytes, source };
        let low_bytes = bytes.min(LOW_END_MAX);
        let low = RamRegion::new(name, 0, low_bytes, pages).map_err(fail)?;
        let high = (bytes > low_bytes)
            .then(|| RamRegion::new(name, HIGH_BASE, bytes - low_bytes, pages))
            .transpose()
            .map_err(fail)?;
        Ok(Self { low, high })
    }

    /// Lets all RAM that nobody has touched yet come from NUMA node `node` only.
    ///
    /// # Errors
    /// [`RamCreateError::Node`] if the kernel refuses.
    pub fn bind_to_node(&self, node: u32) -> Result<(), RamCreateError> {
        let mut regions = self.regions();
        let bound = regions.try_for_each(|region| region.mapping.bind_to_node(node));
        bound.map_err(RamCreateError::Node)
    }

    /// Returns the end of the RAM that begins at address zero: 3 GiB at most.
    pub fn low_end(&self) -> u64 {
        self.low.bytes()
    }

    /// Returns the end of the RAM that begins at 4 GiB; zero if the guest has none there.
    pub fn high_end(&self) -> u64 {
        self.high.as_ref().map_or(0, |r| r.base + r.bytes())
    }

    /// Returns the size of all RAM in bytes.
    pub fn bytes(&self) -> u64 {
        self.regions().map(RamRegion::bytes).sum()
    }

    /// Returns the one or two ranges of RAM, lowest first.
    pub fn regions(&self) -> impl Iterator<Item = &RamRegion> {
        std::iter::once(&self.low).chain(&self.high)
    }

    /// Copies guest RAM that begins at guest-physical `address` into `into`, and fills it.
    ///
    /// # Errors
    /// [`RamError`] if no single range of guest RAM contains all the bytes; then nothing was
    /// copied.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), RamError> {
        let bytes = into.len() as u64;
        let (region, offset) = self.find(address, bytes)?;
        region
            .mapping
            .read(offset, into)
            .map_err(|_| RamError { address, bytes })
    }

    /// Copies all of `from` into guest RAM, beginning at guest-physical `address`.
    ///
    /// # Errors
    /// [`RamError`] if no single range of guest RAM contains all the bytes; then nothing was
    /// copied.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), RamError> {
        let bytes = from.len() as u64;
        let (region, offset) = self.find(address, bytes)?;
        region
            .mapping
            .write(offset, from)
            .map_err(|_| RamError { address, bytes })
    }

    /// Returns the memory object behind `bytes` bytes of guest RAM at guest-physical `address`, and
    /// the offset of these bytes in the object.
    ///
    /// # Errors
    /// [`RamError`] if no single range of guest RAM contains all the bytes.
    pub fn object(&self, address: u64, bytes: u64) -> Result<(Arc<SharedMemory>, u64), RamError> {
        let (region, offset) = self.find(address, bytes)?;
        Ok((Arc::clone(&region.memory), offset))
    }

    /// Calls `f` with guest RAM in the types of the crate `vm-memory`. `f` must not keep a clone of
    /// them.
    pub(crate) fn with_view<R>(
        &self,
        f: impl FnOnce(&GuestMemoryMmap) -> R,
    ) -> Result<R, FromRangesError> {
        // SAFETY: `self` lives while `f` runs.
        Ok(f(&unsafe { self.lend() }?))
    }

    /// Returns guest RAM as types of the crate `vm-memory`, which virtio devices use. The RAM
    /// exists at least as long as the view.
    ///
    /// # Errors
    /// The error of `vm-memory` if it does not accept the ranges of RAM.
    pub fn view(self: &Arc<Self>) -> Result<RamView, FromRangesError> {
        Ok(RamView {
            // SAFETY: the view keeps RAM, and lends what is made here for no longer than it lives.
            memory: unsafe { self.lend() }?,
            ram: Arc::clone(self),
        })
    }

    /// Returns guest RAM in the types of `vm-memory`.
    ///
    /// # Safety
    /// `self` must live as long as the result and everything that is cloned from it.
    unsafe fn lend(&self) -> Result<GuestMemoryMmap, FromRangesError> {
        let mut regions = Vec::with_capacity(2);
        for region in self.regions() {
            // SAFETY: the range is mapped while `self` lives; vm-memory reaches it by volatile
            // copies and, since it did not create the mapping, does not unmap it.
            let raw: MmapRegion = unsafe {
                MmapRegion::build_raw(
                    region.host().as_ptr(),
                    region.mapping.bytes() as usize,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_NORESERVE,
                )
            }?;
            let region = GuestRegionMmap::new(raw, GuestAddress(region.base))
                .ok_or(FromRangesError::InvalidGuestRegion)?;
            regions.push(region);
        }
        Ok(GuestMemoryMmap::from_regions(regions)?)
    }

    /// Gives the guest its RAM, by a memory slot for each range.
    ///
    /// # Safety
    /// The caller keeps `self` for as long as virtual CPUs of the VM may run.
    ///
    /// # Errors
    /// The hypervisor's error if it refuses a slot.
    pub(crate) unsafe fn add_to(&self, slots: &impl MemorySlots) -> io::Result<()> {
        for (number, region) in (RAM_SLOT_FIRST..).zip(self.regions()) {
            let slot = Slot {
                number,
                gpa: region.base,
                host: region.host().as_ptr() as u64,
                bytes: region.bytes(),
                read_only: false,
            };
            // SAFETY: the region stays mapped as long as `self` lives, for which the caller
            // answers, and is reached by volatile copies only.
            unsafe { slots.set(slot) }?;
        }
        Ok(())
    }

    fn find(&self, address: u64, bytes: u64) -> Result<(&RamRegion, u64), RamError> {
        self.regions()
            .find_map(|region| Some((region, region.offset(address, bytes)?)))
            .ok_or(RamError { address, bytes })
    }
}

/// Guest RAM in the types of the crate `vm-memory`, which the virtio devices use.
#[derive(Debug)]
pub struct RamView {
    memory: GuestMemoryMmap,
    ram: Arc<GuestRam>,
}

impl RamView {
    /// Returns the RAM in the types of `vm-memory`. A clone of the result must not outlive this
    /// view.
    pub(crate) fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// Returns the RAM itself, whose memory objects another process can map.
    pub(crate) fn ram(&self) -> &GuestRam {
        &self.ram
    }
}

/// Returns the host's physical memory in bytes, as far as it is known.
fn host_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    bytes / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::Bytes;

    const MIB: u64 = 1 << 20;

    #[test]
    fn impossible_sizes_are_refused_with_their_numbers() {
        for bytes in [0, 1, MIB, 7 * MIB, 8 * MIB + 1, 1 << 40, u64::MAX] {
            let error = GuestRam::new("test", bytes, false).unwrap_err();
            assert!(matches!(error, RamCreateError::Size { .. }), "{bytes}");
            assert!(error.to_string().contains(&bytes.to_string()));
        }
    }

    #[test]
    fn copies_stay_within_ram() {
        let ram = GuestRam::new("test", 8 * MIB, false).unwrap();
        ram.write(8 * MIB - 4, b"last").unwrap();
        let mut bytes = [0; 4];
        ram.read(8 * MIB - 4, &mut bytes).unwrap();
        assert_eq!(&bytes, b"last");
        for address in [8 * MIB - 3, 8 * MIB, HIGH_BASE, u64::MAX, u64::MAX - 3] {
            let error = RamError { address, bytes: 4 };
            assert_eq!(ram.read(address, &mut bytes), Err(error));
            assert_eq!(ram.write(address, b"over"), Err(error));
            assert_eq!(ram.object(address, 4).unwrap_err(), error);
        }
    }

    #[test]
    fn what_exceeds_three_gib_lies_above_four() {
        let Ok(ram) = GuestRam::new("test", LOW_END_MAX + 64 * MIB, false) else {
            eprintln!("skipped: this host has less than 3 GiB of memory");
            return;
        };
        assert_eq!(ram.low_end(), LOW_END_MAX);
        assert_eq!(ram.high_end(), HIGH_BASE + 64 * MIB);
        ram.write(HIGH_BASE, b"high").unwrap();
        let (memory, offset) = ram.object(HIGH_BASE + MIB, MIB).unwrap();
        assert_eq!((memory.bytes(), offset), (64 * MIB, MIB));
        ram.write(LOW_END_MAX, b"gap").unwrap_err();
        ram.object(LOW_END_MAX - MIB, 2 * MIB).unwrap_err();
    }

    #[test]
    fn the_lent_view_is_the_same_memory() {
        let ram = GuestRam::new("test", 8 * MIB, true).unwrap();
        ram.with_view(|view| view.write_slice(b"seen", GuestAddress(MIB)).unwrap())
            .unwrap();
        let mut bytes = [0; 4];
        ram.read(MIB, &mut bytes).unwrap();
        assert_eq!(&bytes, b"seen");
    }
}
