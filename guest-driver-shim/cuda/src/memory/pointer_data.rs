//! What a process passes to another one for an allocation of a shared pool.

use causeway_shim_linux::shim::Allocation;
use zerocopy::FromBytes;

use crate::error::{Answer, Code};

/// Allocations of pools begin at multiples of this in what is exported.
const ALIGNMENT: u64 = 256;

/// A random number that identifies a pool.
pub(super) type Identity = [u8; 16];

/// `CUmemPoolPtrExportData`, as this library fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub(crate) struct PointerData {
    pub(super) token: [u8; 32],
    pub(super) identity: Identity,
    /// Place of the allocation in the memory that is exported.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

const _: () = assert!(size_of::<PointerData>() == 64);

/// An allocation of another process.
pub(crate) struct ImportedPiece {
    pub(super) memory: Allocation<'static>,
    pub(super) data: PointerData,
    /// Handle of the pool from which it was imported.
    pub(super) pool: usize,
}

impl PointerData {
    /// Refuses data of other pools, and numbers that do not agree with the memory's size in bytes.
    pub(super) fn check(&self, identity: &Identity, memory_bytes: u64) -> Answer {
        let end = self.offset.checked_add(self.bytes);
        let is_inside = end.is_some_and(|end| end <= memory_bytes);
        let is_piece = self.bytes != 0 && self.offset.is_multiple_of(ALIGNMENT);
        let is_fine = self.identity == *identity && is_inside && is_piece;
        is_fine.then_some(()).ok_or(Code::INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = [9; 16];

    #[test]
    fn forged_data_of_an_allocation_is_refused() {
        let good = PointerData {
            token: [1; 32],
            identity: IDENTITY,
            offset: 4096,
            bytes: 4096,
        };
        let check = |data: PointerData| data.check(&IDENTITY, 8192);
        assert_eq!(check(good), Ok(()));
        let (bytes, offset, identity) = (4097, u64::MAX - 255, [8; 16]);
        for forged in [
            PointerData { bytes, ..good },
            PointerData { bytes: 0, ..good },
            PointerData { offset, ..good },
            PointerData { offset: 1, ..good },
            PointerData { identity, ..good },
        ] {
            assert_eq!(check(forged), Err(Code::INVALID_VALUE), "{forged:?}");
        }
    }
}
