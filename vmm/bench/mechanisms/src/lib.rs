//! Other ways to virtualize a GPU, to be measured beside Causeway's own.
//!
//! A `Card` is a session of a benchmark on a back end: an address space, a queue and some memory.
//! Three ways to use a card are compared:
//!
//! * `Trap`: an emulated device, of which each access to memory and registers exits to the VMM;
//! * `Forward`: a device to which the guest sends calls with their data;
//! * `Native`: no guest; the host runs the workloads itself.
//!
//! A [`PassthroughDevice`] uses no card: it is a PCI device of the host, which the guest drives.
//!
//! [`Mechanisms`] puts the devices on the buses of a VM and keeps the samples that its guest sends.

mod attachment;
mod card;
mod copy;
mod forward;
mod native;
mod own;
mod passthrough;
mod samples;
mod singles;
mod trap;

pub use attachment::Mechanisms;
pub use card::CardError;
pub use passthrough::{PassedDeviceError, PassthroughDevice};
pub use samples::Measurement;
pub use singles::SingleTimes;
