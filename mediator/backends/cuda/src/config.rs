//! The configuration of the back end, and the errors of opening it.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_memory::{DeviceMemory, PageSize};

use crate::driver::{CudaError, LoadError};

/// A function that makes an allocation of GPU memory visible to CPUs. Its arguments are the file
/// descriptor that CUDA exported for the allocation, and the size of the allocation in bytes. It
/// returns an object through which processes can map the memory.
pub type Visible = Arc<
    dyn Fn(OwnedFd, u64) -> Result<Arc<dyn DeviceMemory>, Box<dyn Error + Send + Sync>>
        + Send
        + Sync,
>;

/// Selects a part of the GPU's multiprocessors: the GPU is split into groups of equal size, of
/// which one is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sms {
    /// Multiprocessors in each group, at least 1. The back end rounds this number up to one that
    /// the GPU can split off.
    pub count: u32,
    /// Number of the group to use, from 0. Sessions with different groups share no multiprocessor.
    pub group: u32,
}

/// What guests may do with fabric handles, by which memory is shared with other machines of an
/// NVLink fabric. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    /// Whether guests get handles of their memory. Nobody but the driver knows who uses one, and
    /// nobody takes back what it gives.
    pub export: bool,
    /// Whether guests import memory by handles that they have got, or guess.
    pub import: bool,
}

/// What to do on a machine whose driver refuses fabric handles.
pub const FABRIC_WAY_OUT: &str = "on machines with an NVLink fabric: start nvidia-imex and create \
                                  an IMEX channel (nvidia-modprobe -c 0), which NOT_PERMITTED says \
                                  is missing";

/// Says which GPU [`crate::Cuda`] opens, and how. The default is all of GPU 0, with no GPU memory
/// visible to CPUs.
#[derive(Clone, Default)]
pub struct Config {
    /// Number of the GPU, from 0, counted by PCI address.
    pub device: u32,
    /// Most memory that guests may allocate, in bytes. `None` means all memory of the GPU.
    pub memory_bytes: Option<u64>,
    /// The multiprocessors that run the guests' kernels. `None` means all.
    pub sms: Option<Sms>,
    /// The function that makes GPU memory visible to CPUs. With `None`, allocations of CPU-visible
    /// GPU memory are refused.
    pub visible: Option<Visible>,
    /// What guests may do with fabric handles.
    pub fabric: Fabric,
    /// Whether each address space has a CUDA context of its own, instead of the GPU's primary
    /// context. Contexts take turns on the GPU, so the back end's own work (filling freed memory
    /// with zeros) does not wait for a guest's kernel that does not end. Each context takes GPU
    /// memory that no quota counts. Ignored if `sms` is set: the primary context is used then.
    pub context_per_space: bool,
    /// Whether each launch of a kernel is a driver call of its own. Otherwise, many waiting
    /// launches go to the driver together as one graph.
    pub single_launches: bool,
    /// Whether the process has one session and nothing else to print. Its standard output then
    /// becomes a pipe, and guests get what their kernels print. Otherwise, modules with kernels
    /// that print are refused.
    pub captures_output: bool,
    /// The GPUs of the run, by their numbers there: the number of each counted by PCI address. A
    /// session that imports memory of one that cannot be a peer of its own GPU
    /// ([`Place::Apart`](causeway_mediator::backend::Place::Apart)) gets a CUDA context there, too.
    /// May be empty if there are no others.
    pub devices_of_run: Vec<u32>,
    /// Page size of host memory. Small pages are for processes that pass descriptors of that memory
    /// to programs which Causeway does not trust.
    pub host_pages: PageSize,
}

causeway_memory::debug_fields!(Config {
    device,
    memory_bytes,
    sms
});

/// The reason for which the CUDA back end cannot open its GPU.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The machine has no CUDA driver that this back end can use.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The driver has no GPU with the configured number.
    #[error(
        "there is no GPU {wanted}: the driver has {count} ({list}), counted from 0; choose another \
         with --gpu cuda:N",
        count = .names.len(),
        list = .names.join(", ")
    )]
    Index {
        /// Number of the GPU that the configuration asks for.
        wanted: u32,
        /// Names of the GPUs that the driver has, in the order of their numbers.
        names: Vec<String>,
    },
    /// The GPU lacks an attribute that the back end needs.
    #[error(
        "--gpu cuda cannot use {gpu}: its driver reports {attribute} as {value}, and 1 is needed; \
         use a GPU of the Volta generation or later with a current driver, or --gpu software"
    )]
    Attribute {
        /// Name of the GPU.
        gpu: String,
        /// The attribute's name in cuda.h, without the prefix `CU_DEVICE_ATTRIBUTE_`.
        attribute: &'static str,
        /// The attribute's value, as the driver reports it.
        value: i32,
    },
    /// The configuration asks for more memory than the GPU has.
    #[error(
        "{gpu} has {has_mib} MiB of memory, not {wanted_mib} MiB as asked for: choose at most \
         {has_mib} MiB with --gpu …,memory="
    )]
    Memory {
        /// Name of the GPU.
        gpu: String,
        /// Memory that the GPU has, in MiB.
        has_mib: u64,
        /// Memory that the configuration asks for, in MiB.
        wanted_mib: u64,
    },
    /// The configuration asks for no multiprocessors, or for more than the GPU has.
    #[error(
        "{gpu} has {has} multiprocessors, not {wanted} as asked for: choose 1 to {has} with --gpu \
         …,sms="
    )]
    Multiprocessors {
        /// Name of the GPU.
        gpu: String,
        /// Number of multiprocessors that the GPU has.
        has: u32,
        /// Number of multiprocessors that the configuration asks for.
        wanted: u32,
    },
    /// The GPU cannot be split into enough groups of multiprocessors for all sessions.
    #[error(
        "{gpu} has {total} multiprocessors: with {each} for each VM or process (sms={wanted} is \
         rounded up to {each}), that is enough for {groups} at a time, not for {sessions}; run \
         fewer, or choose fewer multiprocessors with --gpu …,sms=",
        sessions = .group + 1
    )]
    Group {
        /// Name of the GPU.
        gpu: String,
        /// Number of multiprocessors that the GPU has.
        total: u32,
        /// Number of multiprocessors for each session that the configuration asks for.
        wanted: u32,
        /// Number of multiprocessors in each group: `wanted`, rounded up to what the GPU can split
        /// off.
        each: u32,
        /// Number of groups that the GPU can be split into.
        groups: u32,
        /// Number of the group that the configuration asks for, from 0. Each open session uses one
        /// group.
        group: u32,
    },
    /// The configuration asks for fabric handles, which the driver refuses.
    #[error(
        "{gpu} cannot share memory with other machines: {reason}; {FABRIC_WAY_OUT}; or leave \
         fabric= of --gpu out"
    )]
    Fabric {
        /// Name of the GPU.
        gpu: String,
        /// What the driver says.
        reason: String,
    },
    /// A call of the driver failed for another reason.
    #[error("cannot open {gpu}: {doing} failed")]
    Driver {
        /// Name of the GPU, or its number if its name is not known.
        gpu: String,
        /// The step that failed, such as "creating a context".
        doing: &'static str,
        /// The driver's error.
        source: CudaError,
    },
}

/// Names and values of the environment variables that a process must have before it opens the back
/// end:
///
/// * `CUDA_CACHE_DISABLE`: the driver does not keep code that it compiled for one guest in a file
///   that other processes read.
/// * `CUDA_MODULE_LOADING`: the driver loads kernels with their module. If it loaded a kernel at
///   the kernel's first launch, it might wait for all work of the context (CUDA programming guide,
///   "Lazy Loading"), and so for ever behind a kernel that does not end.
/// * `CUDA_DEVICE_ORDER`: the driver counts GPUs as `nvidia-smi` does.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("CUDA_CACHE_DISABLE", "1"),
    ("CUDA_MODULE_LOADING", "EAGER"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
];
