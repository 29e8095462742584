//! Handles of devices (`nvmlDevice_t`), and the calls that find one.

use crate::boundary::{Out, Text};
use crate::device::{Facts, pci_address, uuid_text};

use super::code::{Answer, Code};
use super::library::{call, has_device, initialized};

/// The address of this byte is the handle of the one device.
static DEVICE: u8 = 0;

/// A handle as a caller passes it, which may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Handle(usize);

impl Handle {
    fn of_device() -> Self {
        Self(&raw const DEVICE as usize)
    }

    /// Refuses a handle that is not the device's.
    pub(super) fn check(self) -> Answer {
        match self == Self::of_device() {
            true => Ok(()),
            false => Err(Code::INVALID_ARGUMENT),
        }
    }
}

/// Answers a call for a device.
pub(super) fn device_call(device: Handle, answer: impl FnOnce(&'static Facts) -> Answer) -> u32 {
    call(|facts| {
        device.check()?;
        answer(facts)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: Out<u32>) -> u32 {
    initialized(|| Ok(count.set(u32::from(has_device()))?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount(count: Out<u32>) -> u32 {
    nvmlDeviceGetCount_v2(count)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<Handle>) -> u32 {
    call(|_| match index {
        0 => Ok(device.set(Handle::of_device())?),
        _ => Err(Code::INVALID_ARGUMENT),
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex(index: u32, device: Out<Handle>) -> u32 {
    nvmlDeviceGetHandleByIndex_v2(index, device)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(id: Text, device: Out<Handle>) -> u32 {
    call(|facts| {
        let wanted = pci_address(&id.get()?).ok_or(Code::INVALID_ARGUMENT)?;
        found(wanted == facts.pci(), device)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId(id: Text, device: Out<Handle>) -> u32 {
    nvmlDeviceGetHandleByPciBusId_v2(id, device)
}

/// Takes the UUID with `GPU-` before it, as NVML tells it, or without.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: Text, device: Out<Handle>) -> u32 {
    call(|facts| {
        let (given, own) = (uuid.get()?, uuid_text(facts.uuid()));
        let is_own = given == own || Some(given.as_str()) == own.strip_prefix("GPU-");
        found(is_own, device)
    })
}

/// The device has no serial number.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleBySerial(serial: Text, device: Out<Handle>) -> u32 {
    call(|_| {
        serial.bytes()?;
        found(false, device)
    })
}

fn found(is_found: bool, device: Out<Handle>) -> Answer {
    match is_found {
        _ if device.is_null() => Err(Code::INVALID_ARGUMENT),
        true => Ok(device.set(Handle::of_device())?),
        false => Err(Code::NOT_FOUND),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: Handle, index: Out<u32>) -> u32 {
    device_call(device, |_| Ok(index.set(0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_devices_handle_is_one() {
        let own = Handle::of_device();
        assert_eq!(own.check(), Ok(()));
        for forged in [0, 1, own.0 + 1, usize::MAX] {
            assert_eq!(Handle(forged).check(), Err(Code::INVALID_ARGUMENT));
        }
    }
}
