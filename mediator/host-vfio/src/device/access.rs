//! Reads and writes of regions through the kernel: checked, and either whole or an error.

use std::io;

use crate::device::Device;
use crate::region::{AccessError, Region, RegionIndex};
use crate::statistics::Counters;

/// The command register in configuration space (PCI Local Bus Specification 3.0, 6.2.2).
pub(super) const COMMAND: u64 = 4;
/// Command register: the function may do DMA, and send message-signalled interrupts.
const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Command register: the function answers at the memory addresses in its BARs.
pub(super) const COMMAND_MEMORY: u16 = 1 << 1;

const READ: &str = "read";
const WRITTEN: &str = "written";

impl Device {
    /// Reads `into.len()` bytes at `offset` of the region `index` into `into`. The kernel splits
    /// the read into aligned accesses of 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// [`AccessError`]: the region is absent, not readable or too short, or the kernel refuses. The
    /// content of `into` then has no meaning.
    pub fn read(
        &self,
        index: RegionIndex,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), AccessError> {
        let bytes = into.len() as u64;
        Counters::add(&self.counters.reads, 1);
        let result = self.checked(index, offset, bytes, READ).and_then(|region| {
            let done = rustix::io::pread(self.file(), into, region.file_offset + offset);
            self.complete(index, offset, bytes, READ, done)
        });
        self.count_refused(result)
    }

    /// Writes `from` at `offset` of the region `index`. The kernel splits the write into aligned
    /// accesses of 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// [`AccessError`]: the region is absent, not writable or too short, or the kernel refuses. A
    /// part of `from` may have been written then.
    pub fn write(&self, index: RegionIndex, offset: u64, from: &[u8]) -> Result<(), AccessError> {
        let bytes = from.len() as u64;
        Counters::add(&self.counters.writes, 1);
        let result = self
            .checked(index, offset, bytes, WRITTEN)
            .and_then(|region| {
                let done = rustix::io::pwrite(self.file(), from, region.file_offset + offset);
                self.complete(index, offset, bytes, WRITTEN, done)
            });
        self.count_refused(result)
    }

    /// Reads the byte at `offset` of the region `index`.
    ///
    /// # Errors
    /// [`AccessError`], in the same cases as for [`Self::read`].
    pub fn read_u8(&self, index: RegionIndex, offset: u64) -> Result<u8, AccessError> {
        Ok(self.read_bytes::<1>(index, offset)?[0])
    }

    /// Reads the little-endian 16-bit word at `offset` of the region `index`.
    ///
    /// # Errors
    /// [`AccessError`], in the same cases as for [`Self::read`].
    pub fn read_u16(&self, index: RegionIndex, offset: u64) -> Result<u16, AccessError> {
        Ok(u16::from_le_bytes(self.read_bytes(index, offset)?))
    }

    /// Reads the little-endian 32-bit word at `offset` of the region `index`.
    ///
    /// # Errors
    /// [`AccessError`], in the same cases as for [`Self::read`].
    pub fn read_u32(&self, index: RegionIndex, offset: u64) -> Result<u32, AccessError> {
        Ok(u32::from_le_bytes(self.read_bytes(index, offset)?))
    }

    fn read_bytes<const N: usize>(
        &self,
        index: RegionIndex,
        offset: u64,
    ) -> Result<[u8; N], AccessError> {
        let mut bytes = [0; N];
        self.read(index, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets (`true`) or clears (`false`) the bus-master bit in the command register of the device.
    /// While it is clear, as it is after [`Self::open`], the device cannot perform DMA or send
    /// message-signalled interrupts.
    ///
    /// # Errors
    /// [`AccessError`], as for [`Self::read`] and [`Self::write`].
    pub fn set_bus_mastering(&self, on: bool) -> Result<(), AccessError> {
        self.set_command(COMMAND_BUS_MASTER, on)
    }

    /// Sets (`true`) or clears (`false`) the memory-space bit in the command register of the
    /// device. While it is clear, the device ignores accesses to the memory behind its BARs. The
    /// bit is set after [`Self::open`].
    ///
    /// While the bit is clear, an access to a [mapping](crate::Mapping) raises SIGBUS in this
    /// process.
    ///
    /// # Errors
    /// [`AccessError`], as for [`Self::read`] and [`Self::write`].
    pub fn set_memory_decoding(&self, on: bool) -> Result<(), AccessError> {
        self.set_command(COMMAND_MEMORY, on)
    }

    fn set_command(&self, bit: u16, on: bool) -> Result<(), AccessError> {
        let command = self.read_u16(RegionIndex::Config, COMMAND)?;
        let wanted = if on { command | bit } else { command & !bit };
        if wanted == command {
            return Ok(());
        }
        self.write(RegionIndex::Config, COMMAND, &wanted.to_le_bytes())
    }

    /// Returns the region, if it can be read or written there.
    fn checked(
        &self,
        index: RegionIndex,
        offset: u64,
        bytes: u64,
        how: &'static str,
    ) -> Result<&Region, AccessError> {
        let (address, region) = (self.address, index);
        let found = self.region(index);
        let found = found.ok_or(AccessError::Absent { address, region })?;
        let allowed = if how == READ {
            found.readable
        } else {
            found.writable
        };
        if !allowed {
            return Err(AccessError::Forbidden {
                address,
                region,
                how,
            });
        }
        if !found.has(offset, bytes) {
            return Err(AccessError::Range {
                address,
                region,
                offset,
                bytes,
                size: found.bytes,
            });
        }
        Ok(found)
    }

    /// Refuses what was not carried out whole.
    fn complete(
        &self,
        region: RegionIndex,
        offset: u64,
        bytes: u64,
        how: &'static str,
        done: rustix::io::Result<usize>,
    ) -> Result<(), AccessError> {
        let address = self.address;
        match done {
            Ok(done) if done as u64 == bytes => Ok(()),
            Ok(done) => Err(AccessError::Short {
                address,
                region,
                how,
                offset,
                bytes,
                done: done as u64,
            }),
            Err(e) => Err(AccessError::Failed {
                address,
                region,
                how,
                offset,
                bytes,
                source: io::Error::from(e),
            }),
        }
    }

    fn count_refused(&self, result: Result<(), AccessError>) -> Result<(), AccessError> {
        result.inspect_err(|_| Counters::add(&self.counters.refused, 1))
    }
}
