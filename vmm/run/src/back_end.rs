//! The back end that `--gpu` names, in this process or in a worker process for each VM.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use causeway_cuda::{Config as CudaConfig, Cuda, Visible};
use causeway_mediator::backend::Backend;
use causeway_mediator::{Mediator, SessionSource};
use causeway_memory::PageSize;
use causeway_software::{Config as SoftwareConfig, LaunchCount, Software};
use causeway_vfio_backend::Vfio;
use causeway_vmm::outcome::VmOutcome;
use causeway_worker::{DeviceUuid, Equipment, ImportDevice, Program, Workers};

use crate::configuration::{Run, unavailable};
use crate::gpu::{Gpu, Isolation, Kind};
use crate::report::{KernelCount, KernelReport};
use crate::visible::VisibleMemory;
use causeway_terminal::{Code, Failure};

/// Most kernels of which a worker tells its counts.
const KERNELS_TOLD_MAX: usize = 256;
/// Longest name of a kernel that it tells, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Who has sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// So many VMs of this process.
    Vms(u32),
    /// Up to so many processes, which are given descriptors of the memory that their sessions use.
    Processes(u32),
}

impl Users {
    /// How many sessions there may be at a time.
    const fn count(self) -> u32 {
        match self {
            Self::Vms(count) | Self::Processes(count) => count,
        }
    }

    /// Page size of the memory of sessions. Processes get descriptors of it, so it must be sealed.
    const fn host_pages(self) -> PageSize {
        match self {
            Self::Vms(_) => PageSize::Large,
            Self::Processes(_) => PageSize::Small,
        }
    }

    /// Refuses more than one in one process on a GPU.
    fn check(self, gpu: &Gpu) -> Result<(), Failure> {
        let count = self.count();
        if gpu.isolation != Isolation::None || !matches!(gpu.kind, Kind::Cuda(_)) || count <= 1 {
            return Ok(());
        }
        let (option, way_out) = match self {
            Self::Vms(_) => ("--vms", "run one VM"),
            Self::Processes(_) => ("--processes", "serve one process at a time (--processes 1)"),
        };
        Err(Failure::usage(format!(
            "invalid value none for --gpu isolation with {option} {count}: on a GPU, a fault of one guest would end \
             the others; leave isolation out, or {way_out}"
        )))
    }
}

/// Why a back end cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The CUDA back end: there is no such GPU, or no driver.
    #[error(transparent)]
    Cuda(#[from] causeway_cuda::OpenError),
    /// The VFIO back end: there is no such device, or it cannot be partitioned.
    #[error(transparent)]
    Vfio(#[from] causeway_vfio_backend::OpenError),
}

/// Where the VMs of a run get their sessions from.
pub enum BackEnd {
    /// One back end for all VMs, in this process.
    Inside(Local, Arc<Mediator>),
    /// One for each VM, in a process of its own.
    Processes(Workers),
}

impl std::fmt::Debug for BackEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackEnd").finish_non_exhaustive()
    }
}

/// A back end in this process.
pub struct Local {
    backend: Arc<dyn Backend>,
    /// The same, if it is the one that counts what kernels do.
    software: Option<Arc<Software>>,
    /// What identifies the device whose memory CPUs can see, if it is one.
    device: Option<DeviceUuid>,
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}

impl BackEnd {
    /// What the arguments ask for. Workers start with their sessions.
    pub fn new(run: &Run) -> Result<Self, Failure> {
        Self::open(&run.gpu, &run.gpu_text, Users::Vms(run.vms))
    }

    /// The same for others. `gpu_text` is what `gpu` was typed as.
    pub fn open(gpu: &Gpu, gpu_text: &str, users: Users) -> Result<Self, Failure> {
        users.check(gpu)?;
        match gpu.isolation {
            Isolation::None => {
                let local = Local::open(gpu, users, 1).map_err(|e| unavailable(gpu_text, e))?;
                let mediator = Mediator::new(Arc::clone(&local.backend));
                Ok(Self::Inside(local, mediator))
            }
            Isolation::Process => {
                let mut arguments = vec!["worker", "--gpu", gpu_text];
                if users.host_pages() == PageSize::Small {
                    arguments.push("--seal");
                }
                let program = Program {
                    path: "/proc/self/exe".into(),
                    arguments: arguments.into_iter().map(Into::into).collect(),
                    environment: environment(gpu.kind),
                };
                let workers = Workers::new(program, import_device(gpu.kind))
                    .map_err(|e| Failure::new(Code::Crashed, "cannot start a thread", e))?;
                Ok(Self::Processes(workers))
            }
        }
    }

    /// Opens sessions.
    pub fn sessions(&self) -> &dyn SessionSource {
        match self {
            Self::Inside(_, mediator) => &**mediator,
            Self::Processes(workers) => workers,
        }
    }

    /// What kernels did, for all VMs.
    pub fn kernels(&self, outcomes: &[VmOutcome]) -> Vec<KernelReport> {
        match self {
            Self::Inside(local, _) => {
                let counts = local.launch_counts().into_iter();
                counts
                    .map(|count| KernelCount::from(count).into())
                    .collect()
            }
            Self::Processes(_) => told(outcomes),
        }
    }
}

impl Local {
    /// Opens the back end for `users`. `session` is the number of their first session, from 1.
    fn open(gpu: &Gpu, users: Users, session: u32) -> Result<Self, OpenError> {
        let host_pages = users.host_pages();
        match gpu.kind {
            Kind::Software(options) => {
                let memory_bytes = gpu.memory_bytes.saturating_mul(users.count().into());
                let software = Arc::new(Software::new(SoftwareConfig {
                    host_pages,
                    ..options.config(memory_bytes)
                }));
                Ok(Self {
                    backend: Arc::clone(&software) as Arc<dyn Backend>,
                    software: Some(software),
                    device: None,
                })
            }
            Kind::Cuda(options) => {
                let (vm, visible) = (session.saturating_sub(1), visible(options.device));
                let cuda = Cuda::open(&CudaConfig {
                    host_pages,
                    ..options.config(gpu.memory_bytes, vm, visible)
                })?;
                Ok(Self {
                    device: cuda.uuid().ok(),
                    backend: cuda,
                    software: None,
                })
            }
            Kind::Vfio(options) => Ok(Self {
                backend: Vfio::open(
                    options,
                    gpu.memory_given.then_some(gpu.memory_bytes),
                    host_pages,
                )?,
                software: None,
                device: None,
            }),
        }
    }

    fn launch_counts(&self) -> Vec<LaunchCount> {
        let software = self.software.as_ref();
        software.map_or_else(Vec::new, |software| software.launch_counts())
    }
}

/// What the worker process of session number `session`, from 1, works with.
///
/// # Errors
/// The GPU is not to be had.
pub fn equipment(gpu: &Gpu, users: Users, session: u32) -> Result<Equipment, OpenError> {
    let local = Local::open(gpu, users, session)?;
    Ok(Equipment {
        backend: Arc::clone(&local.backend),
        device: local.device,
        supplement: Box::new(move || supplement(local.launch_counts())),
    })
}

/// How device memory gets visible to CPUs, where there is a Vulkan at all.
fn visible(device: u32) -> Option<Visible> {
    let memory = VisibleMemory::default();
    let import = move |file, bytes| {
        let gpus = causeway_cuda::identities()?;
        let gpu = gpus.get(device as usize);
        let gpu = gpu.ok_or_else(|| format!("there is no GPU {device}"))?;
        memory.import(gpu.uuid, file, bytes)
    };
    causeway_vulkan_import::is_present().then(|| Arc::new(import) as Visible)
}

/// The same for the VMM of a worker, which says what device it has.
fn import_device(kind: Kind) -> Option<Arc<ImportDevice>> {
    let memory = VisibleMemory::default();
    let import = move |device, file, bytes| memory.import_for_vmm(device, file, bytes);
    matches!(kind, Kind::Cuda(_)).then(|| Arc::new(import) as Arc<ImportDevice>)
}

/// What a back end wants in the environment of its process.
fn environment(kind: Kind) -> Vec<(OsString, OsString)> {
    match kind {
        Kind::Software(_) | Kind::Vfio(_) => Vec::new(),
        Kind::Cuda(_) => {
            let variables = causeway_cuda::ENVIRONMENT.iter();
            variables
                .map(|(name, value)| (name.into(), value.into()))
                .collect()
        }
    }
}

/// Sees to it that a back end can be opened in this process: with what it wants in its environment, which a driver reads
/// when it is loaded. Where that is missing, the program starts once more with it.
///
/// # Errors
/// It cannot start once more.
pub fn settle_environment(gpu: &Gpu) -> std::io::Result<()> {
    let wanted = environment(gpu.kind);
    if wanted
        .iter()
        .all(|(name, value)| std::env::var_os(name).as_ref() == Some(value))
    {
        return Ok(());
    }
    let mut typed = std::env::args_os();
    let name = typed.next().unwrap_or_default();
    Err(Command::new("/proc/self/exe")
        .arg0(name)
        .args(typed)
        .envs(wanted)
        .exec())
}

/// The kernels that took longest, for the VMM's report.
fn supplement(mut counts: Vec<LaunchCount>) -> Vec<u8> {
    counts.sort_by_key(|count| std::cmp::Reverse(count.busy_ns));
    counts.retain(|count| count.kernel.len() <= NAME_BYTES_MAX);
    counts.truncate(KERNELS_TOLD_MAX);
    let counts: Vec<_> = counts.into_iter().map(KernelCount::from).collect();
    serde_json::to_vec(&counts).unwrap_or_default()
}

/// What the workers of all VMs have told, summed up by kernel. They are not trusted: what makes no sense is left out.
fn told(outcomes: &[VmOutcome]) -> Vec<KernelReport> {
    let workers = outcomes.iter().filter_map(|o| o.session.worker.as_ref());
    let mut sums: BTreeMap<String, KernelCount> = BTreeMap::new();
    for supplement in workers.flat_map(|worker| &worker.supplements) {
        let counts = serde_json::from_slice::<Vec<KernelCount>>(supplement).unwrap_or_default();
        for mut count in counts.into_iter().take(KERNELS_TOLD_MAX) {
            count.name.retain(|c| !c.is_control());
            count
                .name
                .truncate(count.name.floor_char_boundary(NAME_BYTES_MAX));
            let sum = sums.entry(count.name.clone()).or_insert(KernelCount {
                name: count.name,
                ..KernelCount::default()
            });
            sum.launches = sum.launches.saturating_add(count.launches);
            sum.thread_instructions = sum
                .thread_instructions
                .saturating_add(count.thread_instructions);
            sum.busy_ns = sum.busy_ns.saturating_add(count.busy_ns);
        }
    }
    sums.into_values().map(Into::into).collect()
}
