//! The software back end: a GPU that is the host's own cores.
//!
//! Modules are parsed ([`ptx`]), lowered to operations that work on 32 lanes at once, and executed by all
//! cores, block by block. Scalar semantics that are more than a Rust operator are in [`arith`]. Copies, fills
//! and fences work on the same memory, which guests and kernels share: that is [`causeway_cpu_queue`].

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the software back end is for x86-64 Linux");

mod address;
pub mod arith;
mod backend;
mod clock;
mod counts;
mod device;
mod exec;
mod isa;
mod limits;
mod lower;
mod module;
mod options;
mod pool;
mod program;
pub mod ptx;
mod queue;
mod registers;
mod space;
mod space_state;
mod workers;

pub use backend::{Config, Software};
pub use counts::LaunchCount;
pub use exec::Multiprocessors;
pub use module::SoftwareModule;
pub use options::Options;
pub use space::SoftwareSpace;
