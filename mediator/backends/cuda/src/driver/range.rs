//! GPU virtual addresses: reserved ranges, and physical memory mapped in them.

use std::ops::Range;
use std::sync::Arc;

use causeway_protocol::Access;
use cudarc::driver::sys::{CUmemAccess_flags, CUmemAccessDesc};
use log::Level;

use super::{Context, CudaError, Device, Driver, Physical, PhysicalOptions};

/// A range of GPU addresses that the driver has reserved: memory appears there only through
/// [`Reservation::map`].
pub(crate) struct Reservation {
    context: Arc<Context>,
    base: u64,
    bytes: u64,
}

impl Reservation {
    /// Reserves `bytes` bytes of addresses at a multiple of `alignment`.
    pub(crate) fn new(
        context: &Arc<Context>,
        bytes: u64,
        alignment: u64,
    ) -> Result<Self, CudaError> {
        Self::near(0, context, bytes, alignment)
    }

    /// As [`Self::new`], at `hint` if these addresses are free and the driver wants to.
    fn near(
        hint: u64,
        context: &Arc<Context>,
        bytes: u64,
        alignment: u64,
    ) -> Result<Self, CudaError> {
        let driver = context.enter()?;
        let (room, aligned) = (bytes as usize, alignment as usize);
        let mut base = 0;
        // SAFETY: stores an address; a reservation touches nothing that exists.
        unsafe { driver.mem_address_reserve(&mut base, room, aligned, hint, 0) }?;
        Ok(Self {
            context: Arc::clone(context),
            base,
            bytes,
        })
    }

    /// Reserves `most` bytes of addresses at a multiple of `alignment`, at `hint` if it can. If the
    /// driver has not as many, halves the number until the reservation succeeds.
    ///
    /// # Errors
    /// The driver's error if it refuses the last number that is not below `least` bytes.
    pub(crate) fn largest(
        context: &Arc<Context>,
        (most, least): (u64, u64),
        hint: u64,
        alignment: u64,
    ) -> Result<Self, CudaError> {
        let mut bytes = most;
        loop {
            let made = Self::near(hint, context, bytes, alignment)
                .or_else(|_| Self::new(context, bytes, alignment));
            match made {
                Err(_) if bytes / 2 >= least => bytes /= 2,
                outcome => return outcome,
            }
        }
    }

    /// Returns the reserved addresses.
    pub(crate) fn range(&self) -> Range<u64> {
        self.base..self.base + self.bytes
    }

    /// Maps all of `physical` at `address`, without rights: no work can access it before
    /// [`MappedRange::set_access`]. Returns `None` if it would not lie within the reservation.
    pub(crate) fn map(
        self: &Arc<Self>,
        address: u64,
        physical: &Arc<Physical>,
    ) -> Option<Result<MappedRange, CudaError>> {
        let end = address.checked_add(physical.bytes())?;
        if address < self.base || end > self.base + self.bytes {
            return None;
        }
        Some(MappedRange::new(self, address, physical))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (base, bytes) = (self.base, self.bytes as usize);
        // SAFETY: mapped ranges hold the reservation, so it is empty.
        let free = |driver: &Driver| unsafe { driver.mem_address_free(base, bytes) };
        self.context
            .release(Level::Debug, "a range of GPU addresses", free);
    }
}

/// Physical memory that is mapped at an address of a reservation, until dropped.
pub(crate) struct MappedRange {
    physical: Arc<Physical>,
    _reservation: Arc<Reservation>,
    address: u64,
}

impl MappedRange {
    /// Allocates at least `bytes` bytes of the GPU of `context`, and maps them for it at a multiple
    /// of `alignment`.
    pub(crate) fn allocate(
        context: &Arc<Context>,
        bytes: u64,
        alignment: u64,
    ) -> Result<Self, CudaError> {
        let options = PhysicalOptions::EXPORTABLE;
        let granularity = Physical::granularity_bytes(context, options)?;
        let bytes = bytes.next_multiple_of(granularity);
        let physical = Arc::new(Physical::create(context, bytes, options)?);
        let reservation = Arc::new(Reservation::new(context, bytes, alignment)?);
        let mapped = Self::new(&reservation, reservation.range().start, &physical)?;
        mapped.set_access(Access::ReadWrite)?;
        Ok(mapped)
    }

    fn new(
        reservation: &Arc<Reservation>,
        address: u64,
        physical: &Arc<Physical>,
    ) -> Result<Self, CudaError> {
        let driver = physical.context().enter()?;
        // SAFETY: the range lies within the reservation. That nothing is mapped there the driver
        // checks. The offset must be zero (cuMemMap), so the memory is mapped as a whole.
        unsafe { driver.mem_map(address, physical.bytes() as usize, 0, physical.raw(), 0) }?;
        Ok(Self {
            physical: Arc::clone(physical),
            _reservation: Arc::clone(reservation),
            address,
        })
    }

    /// Returns the GPU address at which the memory begins.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Changes the rights that the GPU has in this range to `access`.
    pub(crate) fn set_access(&self, access: Access) -> Result<(), CudaError> {
        self.set_access_of(self.physical.context().device(), access)
    }

    /// Changes the rights that `device`, this GPU or a peer, has in this range to `access`.
    pub(crate) fn set_access_of(&self, device: Device, access: Access) -> Result<(), CudaError> {
        let driver = self.physical.context().enter()?;
        let access = CUmemAccessDesc {
            location: device.location(),
            flags: match access {
                Access::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
                Access::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
                Access::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            },
        };
        let bytes = self.physical.bytes() as usize;
        // SAFETY: a mapping as a whole; work under way that loses its rights faults, and nothing
        // else.
        unsafe { driver.mem_set_access(self.address, bytes, &access, 1) }
    }
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        let (address, bytes) = (self.address, self.physical.bytes() as usize);
        // SAFETY: exactly what was mapped. Work under way that still uses it faults.
        let unmap = |driver: &Driver| unsafe { driver.mem_unmap(address, bytes) };
        let what = format_args!("the mapping of GPU memory at {address:#x}");
        self.physical.context().release(Level::Error, what, unmap);
    }
}
