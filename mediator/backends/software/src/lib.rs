//! The software back end: a GPU that is the host's own cores.
//!
//! Each layer uses only those before it:
//!
//! | layer | what |
//! |---|---|
//! | `limits`, `address`, `isa`, `registers`, [`arith`] | numbers; single PTX operations |
//! | `texture` | where textures and surfaces have their elements, and what kernels get |
//! | `meaning`, `compiled` | what operations compute, as far as it is compiled; machine code |
//! | `exec` (`context`, `lanes`, `load` …), `program` | operations on 32 lanes; kernels of them |
//! | [`ptx`] | PTX text to a syntax tree |
//! | `lower`, `compile` | the syntax tree to a program; parts of it to machine code |
//! | `exec` (`warp`, `block`, `launch`) | warps, blocks and launches of a program |
//! | `output`, `heap`, `system`, `library` | what kernels call that no module defines |
//! | `device`, `module`, `array`, `queue`, `space`, `backend` | what the mediator drives |
//!
//! Copies, fills and fences work on the memory that guests and kernels share: that is
//! [`causeway_cpu_queue`].

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the software back end is for x86-64 Linux");

mod address;
pub mod arith;
mod array;
mod backend;
mod clock;
mod compile;
mod compiled;
mod counts;
mod device;
mod exec;
mod facts;
mod heap;
mod image;
mod isa;
mod library;
mod limits;
mod lower;
mod meaning;
mod modifiers;
mod module;
mod options;
mod output;
mod pool;
mod program;
pub mod ptx;
mod queue;
mod registers;
mod space;
mod space_state;
mod system;
mod texture;
mod workers;

/// Lets unit tests include `tests/support`, which uses this crate's public name.
#[cfg(test)]
extern crate self as causeway_software;

pub use backend::{Config, Engine, Software};
pub use counts::LaunchCount;
pub use exec::Multiprocessors;
pub use module::SoftwareModule;
pub use options::Options;
pub use space::SoftwareSpace;
