//! Devices of the host that guests have: passed through, and partitioned.

mod doorbell;
mod edu;
mod events;
mod mechanisms;
mod partition;
mod random;
mod refusals;

use causeway_nested::Lease;
use causeway_nested::devices::HostDevice;

/// Has the driver take devices by which they are handed out.
#[track_caller]
fn hand_out(machine: &Lease, devices: &[HostDevice]) {
    for device in devices {
        device.bind(machine, "vfio-pci");
    }
}
