//! Clocks: that of the device, and what a thread has taken of a core.

pub(crate) use causeway_cpu_queue::clock::{now_ns, thread_ns};
