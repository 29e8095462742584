//! How a run starts: it opens what it needs, gives up the right to open anything else, and only
//! then has VMs.

use std::path::PathBuf;
use std::thread::Scope;

use causeway_publisher::Doors;
use causeway_sandbox::{Sandbox, make_room};
use causeway_terminal::{Code, Failure};
use causeway_vmm::host::Host;
use causeway_vmm::kvm;
use causeway_vmm::vm::Boot;
use kvm_ioctls::Kvm;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::back_end::BackEnds;
use crate::call_threads::{CallThreads, Pending};
use crate::configuration::Run;
use crate::gpu::{Isolation, Kind};
use crate::image_opener::Opener;
use crate::passthrough;
use crate::run::unpublished;
use crate::sandbox::{Needs, Own, confine_vmm};
use crate::tracepoints::Trace;

/// When the thread that executes a run confines itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// First, while another thread opens what takes long.
    First,
    /// When there are VMs, before they run: devices of a benchmark open drivers.
    BeforeGuests,
}

/// A run while another thread, which is not confined, opens what the run needs.
pub struct Start<'a> {
    run: &'a Run,
    free: CallThreads<'a>,
    opening: Pending<Result<OpenedEarly, Failure>>,
    processes: Option<BackEnds>,
    doors: Doors,
    trace: Option<Trace>,
    later: Option<Later<'a>>,
}

/// A thread that is yet to confine itself.
#[must_use]
pub struct Later<'a> {
    run: &'a Run,
    sockets: Vec<PathBuf>,
}

impl Later<'_> {
    /// Confines the calling thread.
    ///
    /// # Errors
    /// A failure if the host lacks what `--sandbox strict` demands.
    pub fn confine(self) -> Result<(), Failure> {
        let Self { run, sockets } = self;
        let has_devices = !run.devices.is_empty();
        let groups = run.settings.worker_groups.as_ref();
        let own = Own {
            sockets,
            groups: groups.map(|groups| groups.folder.clone()),
        };
        let needs = Needs::of(run.gpus().map(|(gpu, _)| gpu), has_devices);
        confine_vmm(run.settings.sandbox, &run.gpu, needs, own)
    }
}

/// What a run has opened.
pub struct Opened<'a> {
    pub kvm: Kvm,
    pub host: Host,
    pub back_ends: BackEnds,
    pub doors: Doors,
    pub trace: Option<Trace>,
    /// What opens images of `--disk-folder`.
    pub opener: Option<Opener>,
    /// How the calling thread confines itself, if it has not done so.
    pub later: Option<Later<'a>>,
    /// A thread that is not confined. It must have ended when guests run.
    pub free: CallThreads<'a>,
}

impl<'a> Start<'a> {
    /// Confines the calling thread, as `--sandbox` says, now or later. Worker processes end with
    /// this thread, and threads that it starts when it is confined are confined with it.
    ///
    /// # Errors
    /// A failure if the host lacks what `--sandbox strict` demands, if sockets for monitors cannot
    /// be created, or if a process or a thread cannot be started.
    pub fn new(run: &'a Run, when: When, scope: &'a Scope<'a, '_>) -> Result<Self, Failure> {
        // Before there are threads.
        raise_descriptor_limit();
        let free = CallThreads::start_in(scope).map_err(|e| {
            let what = "cannot start the thread that opens what a run needs";
            Failure::new(Code::Crashed, what, e)
        })?;
        let doors = free.begin(|| open_doors(run));
        let opening = free.begin(move || open(run));
        // By the thread that starts the virtual CPUs.
        let trace = run.settings.tracepoints.then(Trace::start);
        let processes = match run.gpu.isolation {
            Isolation::Process => Some(BackEnds::new(run)?),
            Isolation::None => None,
        };
        let doors = doors.wait()?;
        let sockets = doors.folders().map(PathBuf::from).collect();
        let mut later = Some(Later { run, sockets });
        if when == When::First {
            later.take().map_or(Ok(()), Later::confine)?;
        }
        Ok(Self {
            run,
            free,
            opening,
            processes,
            doors,
            trace,
            later,
        })
    }

    /// Waits until everything is open.
    ///
    /// # Errors
    /// A failure if KVM, the back end or a device is not available.
    pub fn opened(self) -> Result<Opened<'a>, Failure> {
        let run = self.run;
        let (kvm, host, opener) = self.opening.wait()?;
        let back_ends = match (self.processes, run.gpu.kind) {
            (Some(processes), _) => processes,
            // Its driver is called by threads that it starts, too.
            (None, Kind::Cuda(_)) => self.free.call(|| BackEnds::new(run))?,
            // The threads that execute kernels have the rights of this one.
            (None, Kind::Software(_) | Kind::Vfio(_)) => BackEnds::new(run)?,
        };
        Ok(Opened {
            kvm,
            host,
            back_ends,
            doors: self.doors,
            trace: self.trace,
            opener,
            later: self.later,
            free: self.free,
        })
    }
}

fn open_doors(run: &Run) -> Result<Doors, Failure> {
    let settings = &run.settings;
    let doors = Doors::open(&settings.metrics, settings.control.as_deref());
    let mut doors = doors.map_err(unpublished)?;
    if settings.sandbox != Sandbox::Off {
        doors.keep().map_err(|e| {
            let what = "cannot start the process that removes the socket of --control or \
                        --metrics-socket";
            Failure::new(Code::Crashed, what, e)
        })?;
    }
    Ok(doors)
}

/// What a thread of its own opens: KVM, what is known of the host, and the opener of
/// `--disk-folder`, if there is such a folder.
type OpenedEarly = (Kvm, Host, Option<Opener>);

fn open(run: &Run) -> Result<OpenedEarly, Failure> {
    let kvm =
        kvm::open().map_err(|e| Failure::new(Code::Kvm, "cannot use KVM, which guests need", e))?;
    passthrough::check(run)?;
    if let Boot::Linux(linux) = &run.settings.boot {
        let mut sources = linux.sources();
        let prepared = sources.try_for_each(|it| it.prepare(run.settings.vms));
        prepared
            .map_err(|e| Failure::new(Code::Crashed, "cannot serve a device of the guest", e))?;
    }
    let folder = run.settings.disk_folder.as_ref();
    let opener = folder.map(|folder| Opener::start(&folder.path)).transpose();
    let opener = opener.map_err(|e| {
        let what = "cannot start the process that opens images of --disk-folder";
        Failure::new(Code::Crashed, what, e)
    })?;
    // What takes long. If it fails, the first VM says so.
    let _ = kvm::supported_cpuid(&kvm);
    Ok((kvm, Host::probe(), opener))
}

/// Raises the limit on this process's file descriptors as far as the host allows, and makes room
/// for some. Best called while the process has one thread.
///
/// Each allocation is a memory object with a descriptor of its own, and all VMs share the
/// descriptors of the process: with the usual limit of 1024, one guest within its quota could leave
/// none to the others.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(e) = setrlimit(Resource::Nofile, raised) {
        log::warn!(
            "cannot raise this process's limit on open files (`ulimit -n`), so its VMs may run out \
             of file descriptors: {e}"
        );
    }
    make_room();
}
