//! What host and agent of an emulated machine say to each other: messages in checksummed frames.
//!
//! The program of this crate is the machine's first process. It loads modules, then answers
//! requests of the test that booted the machine, over a virtio port that carries nothing else.

pub mod frame;
pub mod message;

/// Name of the virtio port that connects host and agent.
pub const PORT_NAME: &str = "causeway.agent";
/// What the first program of a guest says whose boot is timed.
pub const FIRST_WORD: &str = "first program: running";
/// File that names the kernel modules to load, one path a line, in order.
pub const MODULES_FILE: &str = "/etc/modules";
