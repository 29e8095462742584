//! `causeway run`: VMs over one mediator, from the arguments to the report.
//!
//! Arguments ([`arguments`]) become a checked [`configuration::Run`]; [`execute`] makes its VMs
//! over a back end ([`back_end`]) and runs them to their end ([`ending`]); [`report`] and [`table`]
//! say what they did. Benchmarks build a `Run` of their own and execute it in the same way.
//! `causeway worker` ([`worker`]) and `causeway initramfs` ([`initramfs`]) are here, too, because
//! `run` needs what they do.

mod applicable;
pub mod arguments;
mod auto;
pub mod back_end;
pub mod boot;
pub mod call_threads;
mod compute;
pub mod configuration;
pub mod control;
pub mod data_path;
pub mod description;
mod device_process;
mod disk;
pub mod disk_keeper;
mod disk_slots;
pub mod ending;
pub mod gpu;
pub mod gpus;
mod guests;
mod host_limits;
pub mod image_opener;
pub mod initramfs;
mod interactive;
mod kernel_counts;
mod last_resort;
pub mod metrics;
pub mod net;
pub mod numa;
pub mod passthrough;
mod patience;
mod placement;
pub mod program;
pub mod progress;
pub mod report;
pub mod rooms;
mod rootfs;
mod run;
pub mod sandbox;
mod share;
mod start;
mod summary;
pub mod table;
pub mod tracepoints;
mod virtiofsd;
mod visible;
mod vsock;
pub mod worker;
pub mod worker_memory;

pub use host_limits::shortage_of;
pub use last_resort::{GRACE, watch_signals};
pub use run::{Extras, RunOutcome, block_signals, block_signals_with, execute, run, unpublished};
pub use start::raise_descriptor_limit;
