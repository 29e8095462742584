//! What the guests share.
#![no_std]

mod cases;
mod expect;
mod numbers;
pub mod pattern;
mod pipeline;
mod refused;
pub mod touch;

pub use cases::{CaseMemory, replay_case, run_case};
pub use expect::Required;
pub use numbers::{median, per};
pub use pipeline::Pipeline;
pub use refused::{Refused, refused};

use causeway_bare::{Machine, PciTransport, Shared};
use causeway_shim::Device;

static TRANSPORT: Shared<PciTransport> = Shared::new();
static DEVICE: Shared<Device<'static>> = Shared::new();

/// Finds and opens the device. Called by one CPU; the others use [`device`].
pub fn open(machine: &Machine) -> (&'static PciTransport, &'static Device<'static>) {
    let transport = TRANSPORT.set(PciTransport::find(machine).required("finding the device"));
    let device = Device::open(transport).required("opening the device");
    (transport, DEVICE.set(device))
}

/// The device, once the CPU that opens it has done so.
pub fn device() -> &'static Device<'static> {
    DEVICE.wait()
}
