//! Whether a function answers at its memory addresses, for those who share it with somebody who may
//! change that.

use std::sync::Arc;

use super::access::{COMMAND, COMMAND_MEMORY};
use crate::device::Device;
use crate::hardware::Hardware;
use crate::region::RegionIndex;

/// Reads from a device's command register whether the device answers accesses to the memory behind
/// its BARs. The device stays open until this value is dropped.
#[derive(Debug)]
pub struct Decoding {
    hardware: Arc<dyn Hardware>,
    /// Where the command register is in the device's file.
    file_offset: u64,
}

impl Device {
    /// Returns a value that can tell at any time whether the device answers accesses to the memory
    /// behind its BARs; `None` if the device's configuration space cannot be read.
    pub fn decoding(&self) -> Option<Decoding> {
        let config = self.region(RegionIndex::Config);
        let config = config.filter(|region| region.readable)?;
        Some(Decoding {
            hardware: Arc::clone(&self.hardware),
            file_offset: config.file_offset + COMMAND,
        })
    }
}

impl Decoding {
    /// Returns whether the device answers accesses to the memory behind its BARs now; false also if
    /// its command register cannot be read. While it does not answer, an access to a
    /// [mapping](crate::Mapping) raises SIGBUS in this process.
    pub fn is_on(&self) -> bool {
        let mut command = [0; 2];
        let read = rustix::io::pread(self.hardware.file(), &mut command, self.file_offset);
        let on = u16::from_le_bytes(command) & COMMAND_MEMORY != 0;
        read == Ok(command.len()) && on
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHardware;

    #[test]
    fn it_says_what_the_command_register_says_now() {
        let fake = Arc::new(FakeHardware::new().unwrap());
        let device = fake.device("00:03.0".parse().unwrap()).unwrap();
        let decoding = device.decoding().unwrap();
        assert!(!decoding.is_on());
        device.set_memory_decoding(true).unwrap();
        assert!(decoding.is_on());
        device.set_memory_decoding(false).unwrap();
        assert!(!decoding.is_on());
    }
}
