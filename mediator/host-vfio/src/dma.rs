//! Host memory that devices reach: what is mapped where, and kept until it is unmapped.
#![allow(unsafe_code)] // Gives devices memory.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use causeway_memory::{Mapping, MemoryError, PAGE_BYTES, SharedMemory};
use causeway_protocol::Access;
use parking_lot::Mutex;

use crate::container::Container;
use crate::host::Host;
use crate::locked::LockedMemory;
use crate::statistics::DmaStatistics;

/// Maps host memory for the DMA of devices: by an IOMMU, or by a fake for tests.
pub trait Translation: Send + Sync + Debug {
    /// Maps the `bytes` bytes at address `host` of this process at device address `iova`, with the
    /// rights `access` for devices.
    ///
    /// # Safety
    /// Until these bytes are unmapped or the translation is dropped, devices read and (if `access`
    /// allows it) write them at any time. The caller keeps the host addresses mapped, and holds no
    /// Rust reference to these bytes.
    ///
    /// # Errors
    /// The kernel's error.
    unsafe fn map(&self, iova: u64, host: *mut u8, bytes: u64, access: Access) -> io::Result<()>;

    /// Removes the mapping that [`Self::map`] made with the same `iova` and `bytes`. When this
    /// returns, no device can access the memory.
    ///
    /// # Errors
    /// The kernel's error.
    fn unmap(&self, iova: u64, bytes: u64) -> io::Result<()>;
}

/// Why memory cannot be mapped for the DMA of devices, or cannot be unmapped.
#[derive(Debug, thiserror::Error)]
pub enum DmaError {
    /// The range is not made of whole pages.
    #[error(
        "cannot map {bytes:#x} bytes at device address {iova:#x} for DMA: both must be multiples \
         of 4 KiB, the size must not be 0, and the range must end below 2^64"
    )]
    Unaligned {
        /// Device address (IOVA) at which the range begins.
        iova: u64,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// The range overlaps a mapping.
    #[error(
        "cannot map {bytes:#x} bytes at device address {iova:#x} for DMA: they overlap the mapping \
         at {other:#x}"
    )]
    Overlap {
        /// Device address (IOVA) at which the range begins.
        iova: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// Device address at which the existing mapping begins.
        other: u64,
    },
    /// The memory cannot be mapped into this process.
    #[error("cannot map the memory for device address {iova:#x} into this process")]
    Memory {
        /// Device address (IOVA) at which the range begins.
        iova: u64,
        /// The error of the mapping.
        source: MemoryError,
    },
    /// The memory would exceed the limit of locked memory.
    #[error(
        "cannot lock {bytes} bytes for DMA at device address {iova:#x} in addition to the {mapped} \
         bytes already locked: this process may lock {limit} bytes (RLIMIT_MEMLOCK); raise the \
         limit with `ulimit -l {kib}`, or run with CAP_IPC_LOCK",
        kib = mapped.saturating_add(*bytes).div_ceil(1024)
    )]
    LockedMemory {
        /// Device address (IOVA) at which the range begins.
        iova: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// Number of bytes that are mapped for DMA already.
        mapped: u64,
        /// Maximum number of bytes that this process may lock (RLIMIT_MEMLOCK).
        limit: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// Devices cannot use the addresses.
    #[error(
        "cannot map {bytes:#x} bytes at device address {iova:#x} for DMA: the IOMMU does not \
         translate all of these addresses, because they are too high or overlap those of \
         interrupts (0xfee00000); give the VM less RAM with --memory"
    )]
    Address {
        /// Device address (IOVA) at which the range begins.
        iova: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refused the mapping.
    #[error("cannot map {bytes:#x} bytes at device address {iova:#x} for DMA")]
    Map {
        /// Device address (IOVA) at which the range begins.
        iova: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// The kernel's error; ENOTTY if no device of the container is open.
        source: io::Error,
    },
    /// The kernel refused to remove the mapping.
    #[error(
        "cannot unmap {bytes:#x} bytes at device address {iova:#x}: devices can still access them"
    )]
    Unmap {
        /// Device address (IOVA) at which the range begins.
        iova: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
}

/// What is mapped.
#[derive(Debug)]
struct Entry {
    iova: u64,
    mapping: Mapping,
    /// Kept, as devices write it.
    _memory: Arc<SharedMemory>,
}

/// Mappings in the order in which they were made. They are undone in the reverse order.
#[derive(Debug)]
pub(crate) struct Ledger {
    translation: Arc<dyn Translation>,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    live: Vec<Entry>,
    made: u64,
}

impl Container {
    /// Maps `bytes` bytes of `memory`, from its byte `offset`, at device address `iova`: devices
    /// can then access them by DMA with the rights `access`. `iova`, `offset` and `bytes` must be
    /// multiples of 4 KiB. The kernel allocates the pages now and locks them in RAM until the
    /// mapping is removed or the last device of the container is closed.
    ///
    /// At least one device must be open in the container, because the kernel selects an IOMMU only
    /// when the first device is opened.
    ///
    /// # Errors
    /// [`DmaError`] if a number is not a multiple of 4 KiB, if the range overlaps a mapping, or if
    /// the kernel refuses. Nothing is mapped then.
    pub fn map_dma(
        &self,
        iova: u64,
        memory: &Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(), DmaError> {
        let mut entries = self.ledger.entries.lock();
        entries.check(iova, bytes)?;
        let mapping = memory
            .map(offset, bytes, access)
            .map_err(|source| DmaError::Memory { iova, source })?;
        let mapped = entries.bytes();
        let host = mapping.as_ptr().as_ptr();
        // SAFETY: the mapping is kept until it was unmapped, and nobody makes references to its
        // content.
        unsafe { self.ledger.translation.map(iova, host, bytes, access) }.map_err(|source| {
            let limit = LockedMemory::of_this_process(&Host::default()).limit;
            map_error(iova, bytes, mapped, limit, source)
        })?;
        entries.made += 1;
        entries.live.push(Entry {
            iova,
            mapping,
            _memory: Arc::clone(memory),
        });
        Ok(())
    }
}

impl Ledger {
    pub(crate) fn new(translation: Arc<dyn Translation>) -> Self {
        Self {
            translation,
            entries: Mutex::default(),
        }
    }

    /// Unmaps everything, the last first.
    ///
    /// # Errors
    /// The first failure; what could not be unmapped is kept.
    pub(crate) fn unmap_all(&self) -> Result<(), DmaError> {
        let mut entries = self.entries.lock();
        let mut result = Ok(());
        for entry in std::mem::take(&mut entries.live).into_iter().rev() {
            let (iova, bytes) = (entry.iova, entry.mapping.bytes());
            if let Err(source) = self.translation.unmap(iova, bytes) {
                entries.live.insert(0, entry);
                result = result.and(Err(DmaError::Unmap {
                    iova,
                    bytes,
                    source,
                }));
            }
        }
        result
    }

    pub(crate) fn statistics(&self) -> DmaStatistics {
        let entries = self.entries.lock();
        DmaStatistics {
            mappings: entries.live.len() as u64,
            bytes: entries.bytes(),
            made: entries.made,
        }
    }
}

impl Entries {
    fn bytes(&self) -> u64 {
        self.live.iter().map(|entry| entry.mapping.bytes()).sum()
    }

    /// Refuses what is not whole pages, or where something is.
    fn check(&self, iova: u64, bytes: u64) -> Result<(), DmaError> {
        let end = iova.checked_add(bytes).filter(|_| bytes != 0);
        let aligned = (iova | bytes).is_multiple_of(PAGE_BYTES);
        let Some(end) = end.filter(|_| aligned) else {
            return Err(DmaError::Unaligned { iova, bytes });
        };
        let overlaps =
            |entry: &&Entry| entry.iova < end && iova < entry.iova + entry.mapping.bytes();
        match self.live.iter().find(overlaps) {
            Some(entry) => Err(DmaError::Overlap {
                iova,
                bytes,
                other: entry.iova,
            }),
            None => Ok(()),
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let Err(e) = self.unmap_all() {
            log::error!("{e}; this memory is not freed until this process ends");
        }
        for entry in std::mem::take(&mut self.entries.lock().live) {
            // A device that can still write them must not find other memory at these addresses.
            std::mem::forget(entry);
        }
    }
}

fn map_error(
    iova: u64,
    bytes: u64,
    mapped: u64,
    limit: Option<u64>,
    source: io::Error,
) -> DmaError {
    match (source.raw_os_error(), limit) {
        (Some(libc::ENOMEM), Some(limit)) => DmaError::LockedMemory {
            iova,
            bytes,
            mapped,
            limit,
            source,
        },
        (Some(libc::EINVAL), _) => DmaError::Address {
            iova,
            bytes,
            source,
        },
        _ => DmaError::Map {
            iova,
            bytes,
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTranslation;
    use causeway_memory::PageSize;

    fn memory() -> Arc<SharedMemory> {
        Arc::new(SharedMemory::new("test", 16 * PAGE_BYTES, PageSize::Small).unwrap())
    }

    #[test]
    fn mappings_are_undone_in_the_reverse_order_and_keep_their_memory_until_then() {
        let translation = Arc::new(FakeTranslation::default());
        let container = translation.container();
        let memory = memory();
        for (iova, access) in [
            (0, Access::ReadWrite),
            (0x10_0000, Access::Read),
            (0x5000, Access::ReadWrite),
        ] {
            container
                .map_dma(iova, &memory, PAGE_BYTES, 2 * PAGE_BYTES, access)
                .unwrap();
        }
        assert_eq!(Arc::strong_count(&memory), 4);
        let mapped: Vec<_> = translation
            .mapped()
            .iter()
            .map(|r| (r.0, r.2, r.3))
            .collect();
        let bytes = 2 * PAGE_BYTES;
        assert_eq!(
            mapped,
            [
                (0, bytes, Access::ReadWrite),
                (0x10_0000, bytes, Access::Read),
                (0x5000, bytes, Access::ReadWrite)
            ]
        );
        let statistics = container.statistics();
        assert_eq!((statistics.mappings, statistics.bytes), (3, 3 * bytes));
        drop(container);
        assert_eq!(translation.unmapped(), [0x5000, 0x10_0000, 0]);
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_the_kernel_is_asked() {
        let translation = Arc::new(FakeTranslation::default());
        let container = translation.container();
        let memory = memory();
        let map = |iova, offset, bytes| {
            container.map_dma(iova, &memory, offset, bytes, Access::ReadWrite)
        };
        map(0x4000, 0, 0x2000).unwrap();
        for (iova, bytes) in [(0x5000, 0x1000), (0x3000, 0x2000), (0, 0x8000)] {
            assert!(matches!(
                map(iova, 0, bytes),
                Err(DmaError::Overlap { other: 0x4000, .. })
            ));
        }
        for (iova, bytes) in [
            (0x800, 0x1000),
            (0, 0x800),
            (0, 0),
            (u64::MAX - 0xfff, 0x2000),
        ] {
            assert!(matches!(
                map(iova, 0, bytes),
                Err(DmaError::Unaligned { .. })
            ));
        }
        assert!(matches!(
            map(0x8000, 0x10_0000, 0x1000),
            Err(DmaError::Memory { iova: 0x8000, .. })
        ));
        assert_eq!(translation.mapped().len(), 1);
        container.unmap_all_dma().unwrap();
        assert_eq!(translation.mapped(), []);
    }

    #[test]
    fn refusals_say_what_they_mean_and_change_nothing() {
        let translation = Arc::new(FakeTranslation::default());
        let container = translation.container();
        let memory = memory();
        let map = |iova| container.map_dma(iova, &memory, 0, 0x1000, Access::ReadWrite);
        map(0).unwrap();
        translation.refuse(Some(libc::ENOMEM));
        map(0x1000).unwrap_err();
        translation.refuse(Some(libc::EINVAL));
        let error = map(0xfee0_0000).unwrap_err();
        assert!(error.to_string().contains("0xfee00000"), "{error}");
        translation.refuse(Some(libc::ENOTTY));
        assert!(matches!(map(0x1000), Err(DmaError::Map { .. })));
        assert!(matches!(
            container.unmap_all_dma(),
            Err(DmaError::Unmap { .. })
        ));
        assert_eq!(container.statistics().mappings, 1);
        translation.refuse(None);
        container.unmap_all_dma().unwrap();
        assert_eq!(container.statistics().mappings, 0);
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    #[test]
    fn no_memory_means_the_limit_only_where_there_is_one() {
        let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        let error = map_error(0x1000, 8192, 4096, Some(10_000), no_memory());
        let text = error.to_string();
        assert!(matches!(error, DmaError::LockedMemory { .. }), "{text}");
        assert!(
            text.contains("10000") && text.contains("ulimit -l 12"),
            "{text}"
        );
        let error = map_error(0x1000, 8192, 4096, None, no_memory());
        assert!(matches!(error, DmaError::Map { .. }), "{error}");
    }
}
