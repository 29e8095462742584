//! GPU addresses that the back end hands out, and physical memory placed there.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_mediator::backend::BackendError;
use causeway_mediator::va::VaAllocator;
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::driver::{Context, CudaError, DriverAccess, MappedRange, Physical, Reservation};
use crate::error::{failed, refused};

/// Least that is worth to begin with, in bytes.
const LEAST_BYTES: u64 = 1 << 30;

/// A reserved range, and what is free in it.
pub(crate) struct Addresses {
    reservation: Arc<Reservation>,
    free: Mutex<VaAllocator>,
}

/// The driver's word for rights.
pub(crate) fn driver_access(access: Access) -> DriverAccess {
    match access {
        Access::None => DriverAccess::None,
        Access::Read => DriverAccess::Read,
        Access::ReadWrite => DriverAccess::ReadWrite,
    }
}

impl Addresses {
    /// `most` bytes, or as many as can be had.
    pub(crate) fn reserve(
        context: &Arc<Context>,
        most: u64,
        alignment: u64,
    ) -> Result<Arc<Self>, CudaError> {
        let reservation = Reservation::largest(context, most, LEAST_BYTES, alignment)?;
        Ok(Arc::new(Self {
            free: Mutex::new(VaAllocator::new(reservation.range())),
            reservation: Arc::new(reservation),
        }))
    }

    /// The range.
    pub(crate) fn range(&self) -> Range<u64> {
        self.reservation.range()
    }

    /// Maps all of `physical` at `wanted`, or where there is room.
    pub(crate) fn place(
        self: &Arc<Self>,
        wanted: Option<u64>,
        physical: &Arc<Physical>,
        access: Access,
    ) -> Result<Placed, BackendError> {
        let bytes = physical.bytes();
        let address = self.lock().place(wanted, bytes)?;
        let place = Place {
            addresses: Arc::clone(self),
            address,
            bytes,
        };
        let what = || format!("map {bytes:#x} bytes of GPU memory at {address:#x}");
        let mapped = self.reservation.map(address, physical);
        let mapped = mapped.ok_or_else(|| refused(Status::AddressInUse, what()))?;
        let mapped = mapped.map_err(|e| failed(what(), e))?;
        mapped
            .set_access(driver_access(access))
            .map_err(|e| failed(what(), e))?;
        Ok(Placed {
            mapped,
            _place: place,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VaAllocator> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Addresses that are taken, until dropped.
struct Place {
    addresses: Arc<Addresses>,
    address: u64,
    bytes: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.addresses.lock().give(self.address, self.bytes);
    }
}

/// Physical memory at an address, until dropped.
pub(crate) struct Placed {
    // Dropped first: the addresses are free only after that.
    mapped: MappedRange,
    _place: Place,
}

impl Placed {
    /// First address.
    pub(crate) fn address(&self) -> u64 {
        self.mapped.address()
    }

    /// Changes the GPU's rights.
    pub(crate) fn set_access(&self, access: Access) -> Result<(), CudaError> {
        self.mapped.set_access(driver_access(access))
    }
}
