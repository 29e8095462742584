//! A machine with KVM that is emulated by QEMU, for tests of what runs on a KVM of the hardware
//! kind.
//!
//! [`Machine`] boots a kernel with an initramfs that is made in memory, and runs programs in it for
//! the test that asked. Most tests share one machine, because booting takes seconds: [`shared`].
//! Nothing of a machine outlives the process that started it, and it has no file: kernel log and
//! requests go over sockets without names, the initramfs is a memory object.
//!
//! See `docs/nested.md`.

mod command;
mod contents;
pub mod devices;
mod doorbell;
mod emulator;
mod link;
mod log;
mod machine;
pub mod nodes;
mod pool;
mod requirements;
mod shared;

pub use causeway_nested_agent::FIRST_WORD;
pub use causeway_nested_agent::message::{Process, Survey, Terminal, TerminalModes};
pub use command::{Command, Outcome};
pub use contents::{Contents, ContentsError, first_word_initramfs};
pub use link::{Job, RequestError};
pub use machine::{BootError, Machine, Shape};
pub use requirements::{Missing, Requirements};
pub use shared::{Lease, is_required, shared};

/// Path of a dynamic program for guests that uses CUDA by way of cudarc: `examples/cuda`.
pub const CUDA_CLIENT: &str = env!("NESTED_CUDA_CLIENT");

/// Path of `compute` for Linux guests as a dynamic program: others are static.
pub const DYNAMIC_COMPUTE: &str = env!("NESTED_COMPUTE");
