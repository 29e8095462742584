//! What the device shall be, and why it cannot be.

use std::error::Error;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_memory::{DeviceMemory, PageSize};

use crate::driver::{CudaError, LoadError};

/// Makes memory of the device visible to CPUs: given the descriptor of an allocation and its size in bytes.
pub type Visible = Arc<
    dyn Fn(OwnedFd, u64) -> Result<Arc<dyn DeviceMemory>, Box<dyn Error + Send + Sync>>
        + Send
        + Sync,
>;

/// A part of the GPU's multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sms {
    /// How many, at least 1. Rounded up as the hardware requires.
    pub count: u32,
    /// Which of the groups of that size, from 0. VMs that are to have multiprocessors of their own have different groups.
    pub group: u32,
}

/// What the device shall be: by default all of the first, with nothing of it visible to CPUs.
#[derive(Clone, Default)]
pub struct Config {
    /// Number of the GPU, as the driver counts.
    pub device: u32,
    /// Memory to give out in bytes; all of the GPU's if not given.
    pub memory_bytes: Option<u64>,
    /// Multiprocessors, if not all.
    pub sms: Option<Sms>,
    /// How device memory gets visible to CPUs; without it, allocations of that kind are refused.
    pub visible: Option<Visible>,
    /// Whether each address space has a context of its own, and not the device's primary context. Contexts take turns
    /// on the GPU, so work of the back end itself (scrubbing) does not wait for a kernel that does not end. Each takes
    /// memory of the GPU that no quota counts. With a part of the multiprocessors, the primary context is used in any case.
    pub context_per_space: bool,
    /// Whether each launch is given to the driver by itself, and not many that wait as one graph.
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

/// Why there is no such device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No driver.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No GPU of this number.
    #[error("there is no GPU {wanted}: the driver has {} ({}), counted from 0", .names.len(), .names.join(", "))]
    Index {
        /// Its number.
        wanted: u32,
        /// Those there are, from 0.
        names: Vec<String>,
    },
    /// The GPU lacks what nothing works without.
    #[error("{gpu} cannot be lent out: the driver gives {attribute} as {value}, and 1 is needed")]
    Attribute {
        /// The GPU.
        gpu: String,
        /// The attribute, as cuda.h calls it.
        attribute: &'static str,
        /// Its value.
        value: i32,
    },
    /// More memory than the card has.
    #[error("{gpu} has {has_mib} MiB of memory, not {wanted_mib}: ask for less with memory=")]
    Memory {
        /// The GPU.
        gpu: String,
        /// What it has, in MiB.
        has_mib: u64,
        /// What was asked for, in MiB.
        wanted_mib: u64,
    },
    /// More multiprocessors than the card has.
    #[error("{gpu} has {has} multiprocessors, not {wanted}: ask for less with sms=")]
    Multiprocessors {
        /// The GPU.
        gpu: String,
        /// What it has.
        has: u32,
        /// What was asked for.
        wanted: u32,
    },
    /// Not as many groups of multiprocessors.
    #[error(
        "{gpu} has {total} multiprocessors: {groups} times {each} (sms={wanted}, rounded up as the hardware requires), \
         and {} VMs would need as many: run fewer VMs, or ask for less with sms=", .group + 1
    )]
    Group {
        /// The GPU.
        gpu: String,
        /// What it has.
        total: u32,
        /// What was asked for.
        wanted: u32,
        /// What that is rounded up to.
        each: u32,
        /// How many groups there are.
        groups: u32,
        /// The number of the group that was asked for.
        group: u32,
    },
    /// The driver refused something else.
    #[error("cannot open {gpu}: {doing} failed")]
    Driver {
        /// The GPU.
        gpu: String,
        /// What was being done.
        doing: &'static str,
        /// What the driver said.
        source: CudaError,
    },
}

/// What the environment of a process should have before it opens a device, and why:
///
/// * `CUDA_CACHE_DISABLE`: code compiled for one guest is not kept in a file that another process reads.
/// * `CUDA_MODULE_LOADING`: kernels are loaded with their module. Loading one at its first launch may wait for the whole
///   context (CUDA programming guide, "Lazy Loading"), and so for ever behind a kernel that does not end.
/// * `CUDA_DEVICE_ORDER`: GPUs are counted as `nvidia-smi` counts them.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("CUDA_CACHE_DISABLE", "1"),
    ("CUDA_MODULE_LOADING", "EAGER"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
];
