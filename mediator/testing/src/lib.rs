//! Fakes of a GPU, a VMM, a guest and a session, for tests. Only dev-dependencies name this crate.
//!
//! * [`FakeBackend`] executes named closures instead of kernels, counts its live objects, and fails
//!   when a test wants it to.
//! * [`FakeHost`] has guest RAM, an aperture in which placements are noted rather than mapped, and
//!   doorbells that a test rings.
//! * [`Batch`] and [`Producer`] play the guest.
//! * [`FakeSession`] notes what a VMM asks of it.
//! * [`FakeDeviceMemory`] is memory of a device that does not exist.
//!
//! Nothing here is fast.

mod array;
mod backend;
mod behind;
mod device_memory;
mod failures;
mod gate;
mod guest;
mod host;
mod kernel;
mod live;
mod memory;
mod queue;
mod session;
mod space;
mod work;

pub use backend::FakeBackend;
pub use device_memory::FakeDeviceMemory;
pub use guest::{Batch, Producer, ask, ask_as};
pub use host::{FakeHost, FakePlacement};
pub use kernel::{FakeKernel, FakeLaunch};
pub use live::Live;
pub use session::FakeSession;
