//! The CUDA back end: drives an NVIDIA GPU for the mediator.
//!
//! The driver library is loaded at run time, so that one binary runs with and without it.
//! `docs/cuda.md` says what the driver is trusted with and which addresses it never sees;
//! `docs/decisions/0009-cuda-back-end.md` gives the reasons for the design.
//!
//! A fault of a kernel, such as a wild pointer, poisons the process for good: the driver refuses
//! every later call. That is why each VM has a process of its own for this back end.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the CUDA back end is for x86-64 Linux");

mod addresses;
mod ahead;
mod array;
mod config;
mod crossings;
mod cuda;
mod device_memory;
mod driver;
mod error;
mod facts;
mod gate;
mod gather;
mod gpu;
mod guest_ram;
mod host_memory;
mod host_registration;
mod idle;
mod image;
mod keep_alive;
mod marks;
mod module;
mod open;
mod options;
mod others;
mod output;
mod pool;
mod queue;
mod recording;
mod repeats;
mod room;
mod space;
mod support;
mod survey;
mod texture;
mod words;
mod work;

pub use config::{Config, ENVIRONMENT, FABRIC_WAY_OUT, Fabric, OpenError, Sms, Visible};
pub use cuda::Cuda;
pub use driver::{
    CudaError, LoadError, Native, NativeError, NativePeers, PairTrial, Speed, TrialError, try_pairs,
};
pub use options::Options;
pub use room::{Room, rooms};
pub use support::{Attribute, Support};
pub use survey::{
    GpuIdentity, GpuSurvey, Pair, Survey, SurveyError, Trials, Way, identities, link_of, survey,
};
