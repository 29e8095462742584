//! Sockets between Linux guests and this host: `--vsock CID`.

use causeway_terminal::Failure;
use causeway_vmm::virtio::Device;
use causeway_vmm::virtio::vhost_kernel::{CID_MIN, KernelDevice};
use causeway_vmm::virtio::{OutsideError, OutsideSource};
use parking_lot::Mutex;

/// Sockets of each VM of a run, which the host's kernel serves.
#[derive(Debug)]
pub struct Vsock {
    first: u32,
    ready: Mutex<Vec<KernelDevice>>,
}

/// Why the guests have no sockets.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot give a guest the address {cid} of --vsock; it needs the kernel's module vhost_vsock \
     (modprobe vhost_vsock), the right to open its device, and an address that no other VM of this \
     host has"
)]
struct VsockError {
    cid: u32,
    source: OutsideError,
}

impl Vsock {
    /// Checks the value of `--vsock`. The first VM has the address `first`, the next one that
    /// behind it.
    ///
    /// # Errors
    /// A usage failure if there are no such addresses.
    pub fn new(first: u32, vms: u32) -> Result<Self, Failure> {
        // The last one means any address.
        let end = first.checked_add(vms).filter(|end| *end < u32::MAX);
        if first < CID_MIN || end.is_none() {
            return Err(Failure::usage(format!(
                "invalid value {first} for --vsock: the first guest's address can be {CID_MIN} to \
                 {}",
                u32::MAX - 1 - vms
            )));
        }
        let ready = Mutex::default();
        Ok(Self { first, ready })
    }
}

impl OutsideSource for Vsock {
    fn prepare(&self, vms: u32) -> Result<(), OutsideError> {
        let cids = self.first..self.first + vms;
        // VMs are built in their order, and each takes the last element.
        let opened = cids.rev().map(|cid| {
            let failed = |source| OutsideError::Start(Box::new(VsockError { cid, source }));
            KernelDevice::vsock(cid).map_err(failed)
        });
        *self.ready.lock() = opened.collect::<Result<_, _>>()?;
        Ok(())
    }

    fn connect(&self) -> Result<Device, OutsideError> {
        let ready = self.ready.lock().pop();
        let device = ready.ok_or_else(|| OutsideError::Ended(String::from("vhost-vsock")))?;
        Ok(Device::Kernel(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_guests_cannot_have_are_refused_with_those_that_they_can() {
        for (first, vms) in [
            (0, 1),
            (2, 1),
            (u32::MAX, 1),
            (u32::MAX - 1, 1),
            (u32::MAX - 8, 8),
        ] {
            let failure = Vsock::new(first, vms).unwrap_err().text();
            assert!(failure.contains("address can be 3 to"), "{failure}");
            assert!(failure.contains(&first.to_string()), "{failure}");
        }
        for (first, vms) in [(3, 1), (u32::MAX - 2, 1), (u32::MAX - 9, 8)] {
            assert!(Vsock::new(first, vms).is_ok(), "{first}, {vms}");
        }
    }
}
