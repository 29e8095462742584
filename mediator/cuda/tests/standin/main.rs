//! The back end on the stand-in driver: each test in a process of its own, because a fault spoils a process, and because
//! the stand-in is told by the environment what it shall be.

mod faults;
mod gather;
mod hostile;
mod kernels;
mod limits;
mod mapping;
mod modules;
mod opening;
mod racing;
mod recording;
mod reuse;
#[path = "../../../tests/rig/mod.rs"]
mod rig;
mod session;
mod sharing;
mod support;
