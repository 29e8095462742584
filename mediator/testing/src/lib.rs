//! Stand-ins for a GPU, for a VMM and for a guest, for tests of this crate and of VMMs.
//!
//! [`FakeBackend`] executes named closures instead of kernels, counts what is alive, and fails when told
//! to. [`FakeHost`] has guest RAM, an aperture in which placements are noted rather than mapped, and
//! doorbells that a test rings. [`Batch`] and [`Producer`] play the guest. Nothing here is fast.

mod backend;
mod behind;
mod guest;
mod host;
mod space;
mod work;

pub use backend::{FakeBackend, FakeKernel, FakeLaunch, Live};
pub use guest::{Batch, Producer, ask, ask_as};
pub use host::{FakeHost, FakePlacement};
