//! GPU addresses that the back end has reserved, and the physical memory that is mapped there.

use std::ops::Range;
use std::sync::Arc;

use causeway_mediator::backend::BackendError;
use causeway_mediator::va::VaAllocator;
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use parking_lot::Mutex;

use crate::driver::{Context, CudaError, MappedRange, Physical, Reservation};
use crate::error::{failed, refused};

/// Smallest range with which the back end works, in bytes.
const LEAST_BYTES: u64 = 1 << 30;

/// A reserved range of GPU addresses, with a record of the addresses that are free.
pub(crate) struct Addresses {
    reservation: Arc<Reservation>,
    free: Mutex<VaAllocator>,
}

impl Addresses {
    /// Reserves `most` bytes of GPU addresses, or fewer if the driver has fewer, at a multiple of
    /// `alignment`; at `hint`, unless that is 0, if these are free and the driver wants to.
    ///
    /// # Errors
    /// The driver's error if it cannot reserve even 1 GiB.
    pub(crate) fn reserve(
        context: &Arc<Context>,
        (most, hint): (u64, u64),
        alignment: u64,
    ) -> Result<Arc<Self>, CudaError> {
        let reservation = Reservation::largest(context, (most, LEAST_BYTES), hint, alignment)?;
        Ok(Arc::new(Self {
            free: Mutex::new(VaAllocator::new(reservation.range())),
            reservation: Arc::new(reservation),
        }))
    }

    /// Returns the reserved range.
    pub(crate) fn range(&self) -> Range<u64> {
        self.reservation.range()
    }

    /// Maps all of `physical` with the rights `access`, at the address `wanted` or at a free one.
    ///
    /// # Errors
    /// * `AddressInUse`: the address `wanted` is taken or outside of the range.
    /// * `NoMemory`: no free addresses are left.
    /// * The status of the driver's error if it refuses the mapping.
    pub(crate) fn place(
        self: &Arc<Self>,
        wanted: Option<u64>,
        physical: &Arc<Physical>,
        access: Access,
    ) -> Result<Placement, BackendError> {
        let bytes = physical.bytes();
        let address = self.free.lock().place(wanted, bytes)?;
        let place = AddressRange {
            addresses: Arc::clone(self),
            address,
            bytes,
        };
        let what = || format!("map {bytes:#x} bytes of GPU memory at {address:#x}");
        let mapped = self.reservation.map(address, physical);
        let mapped = mapped.ok_or_else(|| refused(Status::AddressInUse, what()))?;
        let mapped = mapped.map_err(|e| failed(what(), e))?;
        mapped.set_access(access).map_err(|e| failed(what(), e))?;
        Ok(Placement {
            mapped,
            _place: place,
        })
    }
}

/// A range of addresses that is taken, until dropped.
struct AddressRange {
    addresses: Arc<Addresses>,
    address: u64,
    bytes: u64,
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        self.addresses.free.lock().give(self.address, self.bytes);
    }
}

/// Physical memory that is mapped at an address, until dropped.
pub(crate) struct Placement {
    // Dropped first: the addresses are free only when nothing is mapped there.
    pub(crate) mapped: MappedRange,
    _place: AddressRange,
}
