//! Takes from a process what it does not need, before it runs what it does not trust.
//!
//! A process confines itself, in two steps, because its libraries need more while they start than
//! while they work:
//!
//! 1. [`enter`], while it has one thread and has loaded no driver: namespaces of its own, limits,
//!    no capabilities, no new privileges, and the files of a [`Profile`] only (Landlock).
//! 2. [`filter`], when its libraries have started: the system calls of the profile only (seccomp),
//!    for all of its threads.
//!
//! A process that has threads already, or some that need more than others, can confine one after
//! the other: [`confine_thread`].
//!
//! No step is fatal. Each returns the mechanisms that the host lacks as [`Missing`], and the caller
//! decides what that means: [`Sandbox`] has the choices of users. [`trials`] tries every mechanism
//! in a process of its own, and changes nothing in this one.
//!
//! `docs/decisions/0026-confinement-of-workers.md` says why each part is as it is.

mod calls;
mod descriptors;
mod files;
mod forbidden;
mod limits;
mod mechanism;
mod namespaces;
mod privileges;
mod profile;
mod sandbox;
mod steps;
mod threads;
mod trial;

pub use calls::Calls;
pub use descriptors::{close_inherited, make_room};
pub use mechanism::{Mechanism, Missing};
pub use profile::Profile;
pub use sandbox::Sandbox;
pub use steps::{enter, filter};
pub use threads::confine_thread;
pub use trial::trials;
