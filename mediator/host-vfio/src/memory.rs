//! Memory of a device that can be mapped any number of times, for partitions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_memory::{DeviceMapping, DeviceMemory, MemoryError, check_range};

use crate::Address;
use crate::hardware::Hardware;
use crate::mapping::Mapping;
use crate::region::Region;

/// A range of a region, which [`Mapping::new`] has accepted. The device is held as long
/// as there is one.
#[derive(Debug)]
pub(crate) struct RegionMemory {
    pub(crate) hardware: Arc<dyn Hardware>,
    pub(crate) address: Address,
    pub(crate) region: Region,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl DeviceMemory for RegionMemory {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.hardware.file()
    }

    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError> {
        check_range(offset, bytes, self.bytes)?;
        let from = self.offset + offset;
        let mapping = Mapping::new(&self.hardware, self.address, &self.region, from, bytes);
        let mapping = mapping.map_err(|e| MemoryError::Device {
            bytes,
            reason: e.to_string(),
        })?;
        Ok(Box::new(mapping))
    }
}
