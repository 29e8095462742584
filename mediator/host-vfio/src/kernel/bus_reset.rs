//! The reset of a whole bus or slot, for functions that have none of their own.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::fd::RawFd;

use crate::Address;
use crate::container::{Container, Kind};
use crate::ioctl;
use crate::reset::{ResetError, ResetMethod, ResetReach};

/// Words of `vfio_pci_hot_reset_info` before its devices: argsz, flags, count.
const INFO_WORDS: usize = 3;
/// More functions than a bus has: 32 devices with 8 functions each.
const FUNCTIONS_MAX: usize = 256;

/// Resets the bus of a device, if that affects only the device and what `reach` includes.
pub(super) fn reset(
    device: BorrowedFd<'_>,
    address: Address,
    container: &Container,
    reach: ResetReach,
) -> Result<ResetMethod, ResetError> {
    let hit = functions_hit(device);
    let hit = hit.map_err(|source| ResetError::Impossible { address, source })?;
    let ours = match reach {
        ResetReach::Alone => vec![address],
        ResetReach::Container => container.devices(),
    };
    let mut others = hit;
    others.retain(|function| !ours.contains(function));
    if !others.is_empty() {
        return Err(ResetError::Shared { address, others });
    }
    let result = group_files(container).and_then(|groups| ioctl::hot_reset(device, &groups));
    result.map_err(|source| ResetError::Failed {
        address,
        method: ResetMethod::Bus,
        source,
    })?;
    Ok(ResetMethod::Bus)
}

/// Returns the functions that a reset of the bus would hit.
fn functions_hit(device: BorrowedFd<'_>) -> io::Result<Vec<Address>> {
    let mut words = [0; INFO_WORDS + 2 * FUNCTIONS_MAX];
    ioctl::hot_reset_info(device, &mut words)?;
    let count = words[2] as usize;
    let (functions, _) = words[INFO_WORDS..].as_chunks::<2>();
    let functions = functions.get(..count);
    let functions = functions.ok_or_else(|| io::Error::other("more functions than a bus has"))?;
    Ok(functions
        .iter()
        .map(|[_, place]| function(*place))
        .collect())
}

/// Returns the second word of `vfio_pci_dependent_device`: segment (16 bits), bus, devfn (8 bits
/// each).
fn function(place: u32) -> Address {
    let [segment_low, segment_high, bus, device_function] = place.to_ne_bytes();
    let segment = u16::from_ne_bytes([segment_low, segment_high]);
    Address::of(segment.into(), bus, device_function)
}

/// Returns the files of all groups of the container, by which it proves that they are its own; none
/// with iommufd, where the devices' own files do.
///
/// vfio-ioctls keeps them to itself. They are this process's, so it finds them among its
/// descriptors, and the lock on the list of open devices keeps them open.
fn group_files(container: &Container) -> io::Result<Vec<RawFd>> {
    if container.kind() == Kind::Iommufd {
        return Ok(Vec::new());
    }
    let groups: BTreeSet<u32> = container.open.lock().values().flatten().copied().collect();
    groups.into_iter().map(group_file).collect()
}

fn group_file(group: u32) -> io::Result<RawFd> {
    let path = format!("/dev/vfio/{group}");
    let mut entries = fs::read_dir("/proc/self/fd")?.flatten();
    let entry = entries.find(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == *path));
    let number = entry.and_then(|entry| entry.file_name().to_str()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("{path} is not open in this process")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_the_kernel_writes_them() {
        let place = u32::from_ne_bytes([1, 0, 0x3d, 0x0a]);
        assert_eq!(function(place).to_string(), "0001:3d:01.2");
    }
}
