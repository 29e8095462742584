//! The configuration of the back end, and the errors of opening it.

use std::error::Error;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_memory::{DeviceMemory, PageSize};

use crate::driver::{CudaError, LoadError};

/// Makes an allocation of the device visible to CPUs; takes its exported descriptor and its size in
/// bytes.
pub type Visible = Arc<
    dyn Fn(OwnedFd, u64) -> Result<Arc<dyn DeviceMemory>, Box<dyn Error + Send + Sync>>
        + Send
        + Sync,
>;

/// A part of the GPU's multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sms {
    /// Number of multiprocessors, at least 1; rounded up as the hardware requires.
    pub count: u32,
    /// Number of the group of that size, from 0. VMs with different groups share no multiprocessor.
    pub group: u32,
}

/// Configuration of [`crate::Cuda`]. The default is all of GPU 0, with no memory visible to CPUs.
#[derive(Clone, Default)]
pub struct Config {
    /// Number of the GPU, from 0, as the driver counts.
    pub device: u32,
    /// Memory for allocations in bytes; all memory of the GPU if not given.
    pub memory_bytes: Option<u64>,
    /// The multiprocessors that kernels run on; all if not given.
    pub sms: Option<Sms>,
    /// Makes device memory visible to CPUs; without it, CPU-visible allocations are refused.
    pub visible: Option<Visible>,
    /// Whether each address space has a context of its own, and not the device's primary context.
    /// Contexts take turns on the GPU, so work of the back end itself (scrubbing) does not wait for
    /// a kernel that does not end. Each takes memory of the GPU that no quota counts. With a part
    /// of the multiprocessors, the primary context is used in any case.
    pub context_per_space: bool,
    /// Whether each launch goes to the driver by itself, instead of many waiting launches as one
    /// graph.
    pub single_launches: bool,
    /// Page size of host memory; small where descriptors of it go to strangers.
    pub host_pages: PageSize,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("device", &self.device)
            .field("memory_bytes", &self.memory_bytes)
            .field("sms", &self.sms)
            .field("visible", &self.visible.is_some())
            .field("context_per_space", &self.context_per_space)
            .field("single_launches", &self.single_launches)
            .field("host_pages", &self.host_pages)
            .finish()
    }
}

/// Why the back end cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no usable driver.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is no GPU with this number.
    #[error("there is no GPU {wanted}: the driver has {} ({}), counted from 0", .names.len(), .names.join(", "))]
    Index {
        /// The configured number.
        wanted: u32,
        /// Names of the GPUs that the driver has, from 0.
        names: Vec<String>,
    },
    /// The GPU lacks an attribute that the back end needs.
    #[error("{gpu} cannot be shared: the driver reports {attribute} as {value}, and 1 is needed")]
    Attribute {
        /// The GPU.
        gpu: String,
        /// The attribute, as cuda.h calls it.
        attribute: &'static str,
        /// Its value.
        value: i32,
    },
    /// The configuration asks for more memory than the GPU has.
    #[error("{gpu} has {has_mib} MiB of memory, not {wanted_mib}: choose less with memory=")]
    Memory {
        /// The GPU.
        gpu: String,
        /// Its memory in MiB.
        has_mib: u64,
        /// The configured memory in MiB.
        wanted_mib: u64,
    },
    /// The configuration asks for more multiprocessors than the GPU has.
    #[error("{gpu} has {has} multiprocessors, not {wanted}: choose fewer with sms=")]
    Multiprocessors {
        /// The GPU.
        gpu: String,
        /// Its multiprocessors.
        has: u32,
        /// The configured multiprocessors.
        wanted: u32,
    },
    /// The GPU has too few groups of multiprocessors for this VM.
    #[error(
        "{gpu} has {total} multiprocessors: {groups} times {each} (sms={wanted}, rounded up as the hardware requires), \
         too few for {} VMs: run fewer VMs, or choose fewer multiprocessors with sms=", .group + 1
    )]
    Group {
        /// The GPU.
        gpu: String,
        /// Its multiprocessors.
        total: u32,
        /// The configured multiprocessors.
        wanted: u32,
        /// Multiprocessors of a group: the configured number, rounded up.
        each: u32,
        /// Number of groups.
        groups: u32,
        /// Number of the configured group, from 0.
        group: u32,
    },
    /// Another call of the driver failed.
    #[error("cannot open {gpu}: {doing} failed")]
    Driver {
        /// The GPU.
        gpu: String,
        /// The step that failed.
        doing: &'static str,
        /// The driver's error.
        source: CudaError,
    },
}

/// Environment variables that a process needs before it opens the back end, and why:
///
/// * `CUDA_CACHE_DISABLE`: code compiled for one guest is not kept in a file that another process
///   reads.
/// * `CUDA_MODULE_LOADING`: kernels are loaded with their module. Loading one at its first launch
///   may wait for the whole context (CUDA programming guide, "Lazy Loading"), and so for ever
///   behind a kernel that does not end.
/// * `CUDA_DEVICE_ORDER`: GPUs are counted as `nvidia-smi` counts them.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("CUDA_CACHE_DISABLE", "1"),
    ("CUDA_MODULE_LOADING", "EAGER"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
];
