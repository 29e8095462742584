//! What memory a pool has.

use crate::error::{Answer, Code};
use crate::structures::{Location, PoolProperties};

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `…_MANAGED`
const PINNED: u32 = 1;
const MANAGED: u32 = 2;
/// `CU_MEM_LOCATION_TYPE_NONE`, `…_DEVICE`, `…_HOST` and `…_HOST_NUMA_CURRENT`
const NOWHERE: i32 = 0;
const DEVICE: i32 = 1;
const HOST: i32 = 2;
const THIS_NODE: i32 = 4;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const POSIX: u32 = 1;

/// What memory a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PoolKind {
    Device,
    /// Page-locked memory of the host.
    Host,
    /// Managed memory that is to be at a place: nowhere, on the device or on the host.
    Managed(i32),
}

impl PoolKind {
    /// Returns the kind of a `CUmemAllocationType` and a place. The nodes of the host are one.
    pub(super) fn of(kind: u32, location: Location) -> Answer<Self> {
        match (kind, location) {
            (
                PINNED,
                Location {
                    kind: DEVICE,
                    id: 0,
                },
            ) => Ok(Self::Device),
            (
                PINNED,
                Location {
                    kind: HOST..=THIS_NODE,
                    ..
                },
            ) => Ok(Self::Host),
            (MANAGED, Location { kind: DEVICE, id }) if id != 0 => Err(Code::INVALID_VALUE),
            (
                MANAGED,
                Location {
                    kind: NOWHERE..=THIS_NODE,
                    ..
                },
            ) => Ok(Self::Managed(location.kind.min(HOST))),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Returns the kind of a pool that is to be made.
    pub(super) fn of_properties(given: &PoolProperties) -> Answer<Self> {
        // A fabric handle is known, and not supported: pools cut their memory from chunks, and a
        // handle would give all of a chunk, with what other allocations have there.
        if !matches!(given.handle_types, 0 | POSIX | 8) {
            return Err(Code::INVALID_VALUE);
        }
        let kind = Self::of(given.kind.cast_unsigned(), given.location)?;
        if given.rest.iter().any(|byte| *byte != 0) {
            return Err(Code::INVALID_VALUE);
        }
        match (given.handle_types, kind) {
            (0, _) | (POSIX, Self::Device | Self::Host) => Ok(kind),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_kinds_that_the_header_documents() {
        let of = |kind, place, id| PoolKind::of(kind, Location { kind: place, id });
        assert_eq!(of(PINNED, DEVICE, 0), Ok(PoolKind::Device));
        assert_eq!(of(PINNED, DEVICE, 1), Err(Code::INVALID_VALUE));
        assert_eq!(of(PINNED, NOWHERE, 0), Err(Code::INVALID_VALUE));
        assert_eq!(of(PINNED, 3, 0), of(PINNED, HOST, 0));
        assert_eq!(of(MANAGED, DEVICE, 0), Ok(PoolKind::Managed(DEVICE)));
        assert_eq!(of(MANAGED, DEVICE, 7), Err(Code::INVALID_VALUE));
        assert_eq!(of(MANAGED, 3, 0), Ok(PoolKind::Managed(HOST)));
        assert_ne!(of(MANAGED, NOWHERE, 0), of(MANAGED, HOST, 0));
        assert_eq!(of(MANAGED, 5, 0), Err(Code::INVALID_VALUE));
        assert_eq!(of(3, DEVICE, 0), Err(Code::INVALID_VALUE));
    }
    #[test]
    fn device_and_host_memory_can_be_shared_by_descriptors() {
        let of = |kind, place, handle_types| {
            PoolKind::of_properties(&PoolProperties {
                kind,
                handle_types,
                location: Location { kind: place, id: 0 },
                windows: 0,
                bytes_max: 0,
                usage: 0,
                rest: [0; 54],
            })
        };
        assert_eq!(of(1, DEVICE, POSIX), Ok(PoolKind::Device));
        assert_eq!(of(1, HOST, POSIX), Ok(PoolKind::Host));
        assert_eq!(of(2, DEVICE, POSIX), Err(Code::NOT_SUPPORTED));
        assert_eq!(of(1, DEVICE, 8), Err(Code::NOT_SUPPORTED));
        assert_eq!(of(1, DEVICE, 2), Err(Code::INVALID_VALUE));
    }
}
