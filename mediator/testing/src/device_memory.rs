//! Memory of a device that does not exist: an object of the host, mapped as a driver would map it.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_memory::{DeviceMapping, DeviceMemory, Mapping, MemoryError, PageSize, SharedMemory};
use causeway_protocol::Access;

use crate::gate::Gate;

/// Memory of a device, for tests.
#[derive(Debug)]
pub struct FakeDeviceMemory {
    memory: SharedMemory,
    live: Arc<AtomicUsize>,
    mappings_max: AtomicUsize,
    driver: Arc<Gate>,
}

impl FakeDeviceMemory {
    /// Creates `bytes` bytes of device memory.
    ///
    /// # Errors
    /// [`MemoryError::Create`] if the host has no such memory.
    pub fn new(bytes: u64) -> Result<Arc<Self>, MemoryError> {
        Ok(Arc::new(Self {
            memory: SharedMemory::new("fake device memory", bytes, PageSize::Small)?,
            live: Arc::default(),
            mappings_max: AtomicUsize::new(usize::MAX),
            driver: Arc::default(),
        }))
    }

    /// Returns the memory as the device sees it.
    pub fn object(&self) -> &SharedMemory {
        &self.memory
    }

    /// Returns the number of mappings that the driver has not unmapped yet.
    pub fn mappings(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// Makes the driver refuse more than `mappings` mappings.
    pub fn limit_mappings(&self, mappings: usize) {
        self.mappings_max.store(mappings, Ordering::Release);
    }

    /// Makes the driver wait when it maps or unmaps, or lets all go on.
    pub fn hold(&self, hold: bool) {
        self.driver.close(hold);
    }

    /// Returns the number of calls that wait in the driver.
    pub fn held(&self) -> usize {
        self.driver.waiting()
    }
}

impl DeviceMemory for FakeDeviceMemory {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError> {
        if self.mappings() >= self.mappings_max.load(Ordering::Acquire) {
            return Err(MemoryError::Device {
                bytes,
                reason: "the test wants it".to_owned(),
            });
        }
        self.driver.pass();
        let mapping = self.memory.map(offset, bytes, Access::ReadWrite)?;
        self.live.fetch_add(1, Ordering::AcqRel);
        Ok(Box::new(FakeMapping {
            mapping,
            live: Arc::clone(&self.live),
            driver: Arc::clone(&self.driver),
        }))
    }
}

#[derive(Debug)]
struct FakeMapping {
    mapping: Mapping,
    live: Arc<AtomicUsize>,
    driver: Arc<Gate>,
}

impl DeviceMapping for FakeMapping {
    fn as_ptr(&self) -> NonNull<u8> {
        self.mapping.as_ptr()
    }
}

impl Drop for FakeMapping {
    fn drop(&mut self) {
        self.driver.pass();
        self.live.fetch_sub(1, Ordering::AcqRel);
    }
}
