//! The device's clock, and the clock of a thread's processor time.

pub(crate) use causeway_cpu_queue::clock::{now_ns, thread_ns};
