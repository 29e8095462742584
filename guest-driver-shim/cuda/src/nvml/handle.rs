//! Handles of devices (`nvmlDevice_t`), and the calls that find one.

use crate::boundary::{Out, Text};
use crate::device::{pci_address, uuid_text};

use super::code::{Answer, Code};
use super::library::{Monitored, call, devices, initialized};

/// Most devices that have handles.
const DEVICES: usize = 64;

/// The address of each byte is the handle of a device.
static HANDLES: [u8; DEVICES] = [0; DEVICES];

/// A handle as a caller passes it, which may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Handle(usize);

impl Handle {
    pub(super) fn of(device: &Monitored) -> Self {
        Self(HANDLES.as_ptr() as usize + device.index)
    }

    /// Returns the device of a handle.
    pub(super) fn device(self) -> Answer<&'static Monitored> {
        let index = self.0.wrapping_sub(HANDLES.as_ptr() as usize);
        devices().get(index).ok_or(Code::INVALID_ARGUMENT)
    }
}

/// Answers a call for a device.
pub(super) fn device_call(
    device: Handle,
    answer: impl FnOnce(&'static Monitored) -> Answer,
) -> u32 {
    call(|_| answer(device.device()?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: Out<u32>) -> u32 {
    initialized(|| Ok(count.set(devices().len() as u32)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount(count: Out<u32>) -> u32 {
    nvmlDeviceGetCount_v2(count)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<Handle>) -> u32 {
    call(|devices| {
        let found = devices.get(index as usize).ok_or(Code::INVALID_ARGUMENT)?;
        Ok(device.set(Handle::of(found))?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex(index: u32, device: Out<Handle>) -> u32 {
    nvmlDeviceGetHandleByIndex_v2(index, device)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(id: Text, device: Out<Handle>) -> u32 {
    call(|devices| {
        let wanted = pci_address(&id.get()?).ok_or(Code::INVALID_ARGUMENT)?;
        found(devices.iter().find(|it| it.pci() == wanted), device)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId(id: Text, device: Out<Handle>) -> u32 {
    nvmlDeviceGetHandleByPciBusId_v2(id, device)
}

/// Takes the UUID with `GPU-` before it, as NVML tells it, or without.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: Text, device: Out<Handle>) -> u32 {
    call(|devices| {
        let given = uuid.get()?;
        let is_named = |it: &&Monitored| {
            let own = uuid_text(it.uuid());
            given == own || Some(given.as_str()) == own.strip_prefix("GPU-")
        };
        found(devices.iter().find(is_named), device)
    })
}

/// No device has a serial number.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleBySerial(serial: Text, device: Out<Handle>) -> u32 {
    call(|_| {
        serial.bytes()?;
        found(None, device)
    })
}

fn found(found: Option<&Monitored>, device: Out<Handle>) -> Answer {
    match found {
        _ if device.is_null() => Err(Code::INVALID_ARGUMENT),
        Some(found) => Ok(device.set(Handle::of(found))?),
        None => Err(Code::NOT_FOUND),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: Handle, index: Out<u32>) -> u32 {
    device_call(device, |device| Ok(index.set(device.index as u32)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_handle_is_none() {
        let first = HANDLES.as_ptr() as usize;
        for forged in [0, 1, first, first - 1, first + DEVICES, usize::MAX] {
            assert_eq!(Handle(forged).device().err(), Some(Code::INVALID_ARGUMENT));
        }
    }
}
