//! NVML, the library by which monitors and frameworks look at devices. It is exported from this
//! shared object under its own names, and `libnvidia-ml.so.1` is a link to it
//! (docs/decisions/0020-nvml-in-libcuda.md).
//!
//! There is one device: what this guest, or this process of `causeway serve`, has. What it cannot
//! know, such as a temperature, is `NOT_SUPPORTED`. Names, numbers and structures are those of the
//! NVML API Reference.

mod absent;
mod affinity;
mod code;
mod handle;
mod identity;
mod library;
mod processes;
mod system;
mod topology;
mod usage;
