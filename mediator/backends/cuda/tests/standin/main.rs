//! The back end on the stand-in driver: each test in a process of its own, because a fault poisons
//! a process, and because the stand-in is told by the environment what it shall be.
//!
//! With `CAUSEWAY_GPU_TESTS=1`, the same program tests the back end on the system's driver, one
//! test after the other, and says of what needs the stand-in that it is skipped.

mod apart;
mod arrays;
mod arrays_under_way;
mod clients;
mod fabric;
mod faults;
mod gather;
mod hostile;
mod kernels;
mod limits;
#[path = "../machine/mod.rs"]
mod machine;
mod mapping;
mod modules;
mod opening;
mod printing;
mod priorities;
mod pulse;
mod racing;
mod reading;
mod recording;
mod reuse;
#[path = "../../../../core/tests/rig/mod.rs"]
mod rig;
mod room;
mod session;
mod sharing;
mod support;
mod tensors;
mod vulkan;
