//! Other ways to virtualize a GPU, to be measured beside Causeway's own.
//!
//! A `Card` is a small GPU for the mechanisms: an address space, a queue and some memory of a back
//! end. Three front ends drive it, which is what is compared:
//!
//! * `Trap`: a device whose memory and registers trap, as emulated devices do;
//! * `Forward`: a device to which the guest sends calls with their data;
//! * `Native`: no guest: the workloads run by the host.
//!
//! A [`PassthroughDevice`] is no card: it is a host device, which the guest drives itself.
//!
//! [`Mechanisms`] puts the devices on the buses of a VM and keeps the samples that its guest takes.

mod attachment;
mod card;
mod copy;
mod forward;
mod native;
mod own;
mod passthrough;
mod samples;
mod trap;

pub use attachment::Mechanisms;
pub use card::CardError;
pub use passthrough::{PassedDeviceError, PassthroughDevice};
pub use samples::Measurement;
