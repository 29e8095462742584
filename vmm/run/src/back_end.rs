//! The back end that `--gpu` names, in this process or in a worker process for each VM.

mod seen;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use causeway_cuda::{Config as CudaConfig, Cuda, Visible};
use causeway_mediator::backend::Backend;
use causeway_mediator::{GivesUp, Gpus, Mediator, SessionSource};
use causeway_memory::PageSize;
use causeway_sandbox::Sandbox;
use causeway_software::{Config as SoftwareConfig, LaunchCount, Software};
use causeway_vfio_backend::Vfio;
use causeway_vmm::numa::Node;
use causeway_vmm::outcome::VmOutcome;
use causeway_vmm::waits::Wait;
use causeway_worker::{DeviceUuid, Equipment, ImportDevice, MemoryGroups, Program, Workers};

use crate::configuration::Run;
use crate::gpu::{Gpu, Isolation, Kind};
use crate::gpus::unavailable;
use crate::kernel_counts::{summed, supplement, told};
use crate::report::{KernelCount, KernelReport};
use crate::sandbox;
use crate::visible::{VisibleInVmm, VisibleMemory};
use causeway_terminal::{Code, Failure};
use seen::{Device, SAME_MEMORY};

/// Who uses a back end: VMs or client processes. Each user has one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// This number of VMs, all run by this process.
    Vms(u32),
    /// Up to this number of client processes of `causeway serve`. Each receives file descriptors of
    /// its session's memory.
    Processes(u32),
}

impl Users {
    /// Returns the largest number of sessions at a time.
    pub const fn count(self) -> u32 {
        match self {
            Self::Vms(count) | Self::Processes(count) => count,
        }
    }

    /// Returns the page size of the sessions' memory. Processes receive descriptors of it, so it
    /// must be sealed.
    const fn host_pages(self) -> PageSize {
        match self {
            Self::Vms(_) => PageSize::Large,
            Self::Processes(_) => PageSize::Small,
        }
    }

    /// Refuses several users of a GPU that share one process.
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
            "invalid value none for --gpu isolation with {option} {count}: on a GPU, a fault of \
             one guest would end the other guests; leave isolation out, or {way_out}"
        )))
    }
}

/// Why a back end cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The CUDA back end has no driver, or not the GPU that was named.
    #[error(transparent)]
    Cuda(#[from] causeway_cuda::OpenError),
    /// The VFIO back end does not find the PCI device, or cannot partition its memory.
    #[error(transparent)]
    Vfio(#[from] causeway_vfio_backend::OpenError),
}

/// Opens a session for each VM or client process of a command: on a back end in this process, or in
/// worker processes.
pub enum BackEnd {
    /// One back end for all users, in this process.
    Inside(Local, Arc<Mediator>),
    /// One back end for each user, in a worker process.
    Processes(Workers),
}

/// A back end that is open in this process.
pub struct Local {
    backend: Arc<dyn Backend>,
    /// The software back end, which counts what kernels do; `None` on other back ends.
    software: Option<Arc<Software>>,
    /// UUID of the GPU whose memory CPUs can map, if there is one.
    device: Option<DeviceUuid>,
}

causeway_vmm::debug_by_name!(BackEnd, Local, Conditions<'_>);

/// The back ends of a run: one for each of its GPUs.
pub struct BackEnds(Vec<BackEnd>);

causeway_vmm::debug_by_name!(BackEnds);

impl BackEnds {
    /// Opens the back ends of `run` for its VMs: in this process, or in worker processes, each of
    /// which starts when its session is opened.
    ///
    /// # Errors
    /// As for [`BackEnd::open`].
    pub fn new(run: &Run) -> Result<Self, Failure> {
        let settings = &run.settings;
        let users = Users::Vms(settings.vms);
        let gpus: Vec<(&Gpu, &str)> = run.gpus().collect();
        let groups = settings.worker_groups.as_ref();
        if let Some(Err(e)) = groups.map(MemoryGroups::prepare) {
            let what = "the value of --worker-cgroup cannot be used";
            return Err(Failure::new(Code::Usage, what, e));
        }
        let conditions = Conditions {
            sandbox: settings.sandbox,
            groups,
            node_of: &|gpu| run.node_of_users(gpu),
        };
        BackEnd::open_all(&gpus, users, conditions).map(Self)
    }

    /// Returns what opens a session on each GPU, in their order.
    pub fn sessions(&self) -> impl Iterator<Item = &dyn SessionSource> {
        self.0.iter().map(BackEnd::sessions)
    }

    /// Returns the counts of each GPU kernel, summed over all VMs; none unless the back end is
    /// software. `outcomes` are the results of the VMs, which contain what their worker processes
    /// counted.
    pub fn kernels(&self, outcomes: &[VmOutcome]) -> Vec<KernelReport> {
        let inside = self.0.iter().filter_map(|back_end| match back_end {
            BackEnd::Inside(local, _) => Some(local.launch_counts()),
            BackEnd::Processes(_) => None,
        });
        let counts: Vec<KernelCount> = inside.flatten().map(KernelCount::from).collect();
        summed(counts.into_iter().chain(told(outcomes)))
    }
}

/// How what serves VMs or processes is confined, bounded and placed.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    /// Whether worker processes confine themselves.
    pub sandbox: Sandbox,
    /// What bounds their host memory.
    pub groups: Option<&'a MemoryGroups>,
    /// Returns the NUMA node of the VMs that have the GPU with this number. Threads and processes
    /// that execute their work run there.
    pub node_of: &'a dyn Fn(u32) -> Option<&'a Node>,
}

impl BackEnd {
    /// Opens the back end `gpu` in this process for `users`, or prepares to start a worker process
    /// for each user. `gpu_text` is the value of `--gpu` from which `gpu` was parsed: worker
    /// processes get it as an argument, and failures name it. `sandbox` says how they confine
    /// themselves.
    ///
    /// # Errors
    /// A usage failure if `gpu` has `isolation=none` on a CUDA GPU with several users, because a
    /// fault of one session would end the others, or if `sandbox` is strict and there are no worker
    /// processes; a GPU failure if the back end is not available to
    /// this process; a failure with [`Code::Crashed`] if worker processes cannot be prepared.
    pub fn open(
        gpu: &Gpu,
        gpu_text: &str,
        users: Users,
        sandbox: Sandbox,
    ) -> Result<Self, Failure> {
        let only = Device {
            gpus: &[(gpu, gpu_text)],
            number: 0,
            groups: None,
        };
        Self::open_beside(None, only, users, sandbox)
    }

    /// As [`Self::open`], for each of several GPUs, which can be peers. `gpus` are they, each with
    /// its text in the syntax of `--gpu`.
    ///
    /// # Errors
    /// As for [`Self::open`]; a failure with [`Code::Crashed`] if the kernel refuses a NUMA node.
    pub fn open_all(
        gpus: &[(&Gpu, &str)],
        users: Users,
        conditions: Conditions<'_>,
    ) -> Result<Vec<Self>, Failure> {
        let Conditions {
            sandbox, groups, ..
        } = conditions;
        let mut opened: Vec<Self> = Vec::new();
        for number in 0..gpus.len() {
            let device = Device {
                gpus,
                number,
                groups,
            };
            // Threads and processes that are started meanwhile stay there.
            let node = (conditions.node_of)(number as u32);
            let visit = node.map(Node::visit).transpose();
            let _visit = visit.map_err(|e| {
                let what = "cannot place what executes the work of VMs on their NUMA node";
                Failure::new(Code::Crashed, what, e)
            })?;
            opened.push(Self::open_beside(opened.first(), device, users, sandbox)?);
        }
        Ok(opened)
    }

    /// As [`Self::open`], for one of several GPUs. `first` is the back end of the first of them.
    fn open_beside(
        first: Option<&Self>,
        device: Device<'_>,
        users: Users,
        sandbox: Sandbox,
    ) -> Result<Self, Failure> {
        let (gpu, gpu_text) = device.gpus[device.number];
        users.check(gpu)?;
        sandbox::check(sandbox, gpu, gpu_text)?;
        match gpu.isolation {
            Isolation::None => {
                let _wait = Wait::begin(format!("the driver of --gpu {gpu_text} to start"));
                let local = Local::open((gpu, Vec::new()), users, 0, false)
                    .map_err(|e| unavailable(gpu_text, e))?;
                let (backend, gpus) = (
                    Arc::clone(&local.backend),
                    device.seen(|_, _| Some(SAME_MEMORY)),
                );
                let mediator = match first {
                    Some(Self::Inside(_, first)) => first.beside(backend, gpus),
                    _ => Mediator::on(backend, gpus),
                };
                Ok(Self::Inside(local, mediator))
            }
            Isolation::Process => {
                let number = device.number.to_string();
                let mut arguments =
                    vec!["worker", "--sandbox", sandbox.name(), "--number", &number];
                for (_, text) in device.gpus {
                    arguments.extend(["--gpu", text]);
                }
                let logs = causeway_terminal::log_arguments();
                if users.host_pages() == PageSize::Small {
                    arguments.push("--seal");
                }
                let program = Program {
                    path: "/proc/self/exe".into(),
                    arguments: arguments.into_iter().map(Into::into).chain(logs).collect(),
                    environment: environment(gpu.kind),
                    starter: vec!["starter".into()],
                    groups: device.groups.cloned(),
                };
                let begin = match users {
                    Users::Vms(_) => sandbox::confine_driver_thread(sandbox),
                    // A server is not confined.
                    Users::Processes(_) => sandbox::confine_driver_thread(Sandbox::Off),
                };
                let import = import_device(gpu.kind, begin)?;
                let workers = match first {
                    Some(Self::Processes(first)) => {
                        first.beside(device.number as u32, &program, import)
                    }
                    _ => Workers::new(&program, import),
                };
                workers.map(Self::Processes).map_err(|e| {
                    Failure::new(Code::Crashed, "cannot prepare to start worker processes", e)
                })
            }
        }
    }

    /// Returns the object that opens a session for each user.
    pub fn sessions(&self) -> &dyn SessionSource {
        match self {
            Self::Inside(_, mediator) => &**mediator,
            Self::Processes(workers) => workers,
        }
    }

    /// Starts worker processes until `count` of them wait for a session to come. Does nothing for a
    /// back end in this process.
    ///
    /// # Errors
    /// The kernel's error, if a process cannot be started.
    pub fn prepare(&self, count: u32) -> std::io::Result<()> {
        match self {
            Self::Inside(..) => Ok(()),
            Self::Processes(workers) => workers.prepare(count as usize),
        }
    }

    /// Waits until the first worker process that [`Self::prepare`] has started has its back end.
    ///
    /// # Errors
    /// The error of the session that it could not open.
    pub fn await_prepared(
        &self,
        gives_up: GivesUp<'_>,
    ) -> Result<(), causeway_mediator::OpenError> {
        match self {
            Self::Inside(..) => Ok(()),
            Self::Processes(workers) => workers.await_prepared(gives_up),
        }
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        if let Self::Processes(workers) = self {
            workers.stop_starting();
        }
    }
}

impl Local {
    /// Opens the back end for `users`. `devices` are the numbers of the run's GPUs on the back end,
    /// if they have worker processes. `partition` is the number of the GPU's partition that they
    /// get, from 0. `owns_output` says whether nothing else writes to the process's standard
    /// output, so that it can take what kernels print.
    fn open(
        (gpu, devices): (&Gpu, Vec<u32>),
        users: Users,
        partition: u32,
        owns_output: bool,
    ) -> Result<Self, OpenError> {
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
                let visible = visible(options.device);
                let cuda = Cuda::open(&CudaConfig {
                    host_pages,
                    captures_output: owns_output,
                    devices_of_run: devices,
                    ..options.config(gpu.memory_bytes, partition, visible)
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

/// Opens the back end of GPU number `number` of `gpus` for `users` in a worker process, and returns
/// it as [`causeway_worker::serve`] needs it. `partition` is the number of the GPU's partition that
/// the session holds, from 0; with key `sms` of CUDA, it decides which multiprocessors the session
/// gets.
///
/// # Errors
/// [`OpenError`] if the back end is not available on this host.
pub fn equipment(
    gpus: &[Gpu],
    number: usize,
    users: Users,
    partition: u32,
) -> Result<Equipment, OpenError> {
    let (gpu, with_texts) = (&gpus[number], gpus.iter().map(|gpu| (gpu, "")));
    let owns_output = gpu.isolation == Isolation::Process;
    let devices = gpus.iter().map(Gpu::device).collect();
    let local = Local::open((gpu, devices), users, partition, owns_output)?;
    let device = Device {
        gpus: &with_texts.collect::<Vec<_>>(),
        number,
        groups: None,
    };
    let seen = match gpu.kind {
        Kind::Cuda(_) => device.seen(causeway_cuda::link_of),
        Kind::Software(_) | Kind::Vfio(_) => device.seen(|_, _| Some(SAME_MEMORY)),
    };
    Ok(equipped(local, seen))
}

/// Opens the back end `gpu` for one VM in this process, whose standard output stays as it is.
///
/// # Errors
/// [`OpenError`] if the back end is not available on this host.
pub fn equipment_here(gpu: &Gpu) -> Result<Equipment, OpenError> {
    let local = Local::open((gpu, Vec::new()), Users::Vms(1), 0, false)?;
    Ok(equipped(local, Gpus::default()))
}

fn equipped(local: Local, gpus: Gpus) -> Equipment {
    Equipment {
        backend: Arc::clone(&local.backend),
        gpus,
        device: local.device,
        supplement: Box::new(move || supplement(local.launch_counts())),
    }
}

/// Returns the functions that make memory of GPU `device` visible to CPUs, if Vulkan is installed.
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

/// Returns the function by which the VMM of a worker process makes GPU memory visible to CPUs. The
/// worker process names the GPU. A thread that will call Vulkan calls `begin` first.
fn import_device(
    kind: Kind,
    begin: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<Option<Arc<ImportDevice>>, Failure> {
    match kind {
        Kind::Software(_) | Kind::Vfio(_) => Ok(None),
        Kind::Cuda(_) => {
            let memory = VisibleInVmm::start(begin)?;
            let import = move |device, file, bytes| memory.import(device, file, bytes);
            Ok(Some(Arc::new(import)))
        }
    }
}

/// Returns the environment variables that a back end needs in its process.
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

/// Ensures that this process has the environment variables that the driver of back end `gpu` reads
/// when it is loaded. If one is missing or different, this function sets them all and executes the
/// program again, with the same arguments, in this process.
///
/// # Errors
/// The error of execve(2) if the program cannot be started again.
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
