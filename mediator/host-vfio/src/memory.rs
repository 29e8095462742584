//! Memory of a device that can be mapped any number of times, for partitions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_memory::{DeviceMapping, DeviceMemory, MemoryError};

use crate::Address;
use crate::hardware::Hardware;
use crate::mapping::{MapError, Mapping};
use crate::region::Region;

/// A range of a region. The device is held as long as there is one.
#[derive(Debug)]
pub(crate) struct RegionMemory {
    hardware: Arc<dyn Hardware>,
    address: Address,
    region: Region,
    offset: u64,
    bytes: u64,
}

impl RegionMemory {
    /// Refuses what could not be mapped.
    pub(crate) fn new(
        hardware: &Arc<dyn Hardware>,
        address: Address,
        region: &Region,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, MapError> {
        Mapping::new(hardware, address, region, offset, bytes)?;
        Ok(Self {
            hardware: Arc::clone(hardware),
            address,
            region: region.clone(),
            offset,
            bytes,
        })
    }
}

impl DeviceMemory for RegionMemory {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.hardware.file()
    }

    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError> {
        let end = offset.checked_add(bytes);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(MemoryError::Range {
                offset,
                bytes,
                size: self.bytes,
            });
        }
        let from = self.offset + offset;
        let mapping = Mapping::new(&self.hardware, self.address, &self.region, from, bytes);
        let mapping = mapping.map_err(|e| MemoryError::Device {
            bytes,
            reason: e.to_string(),
        })?;
        Ok(Box::new(mapping))
    }
}
