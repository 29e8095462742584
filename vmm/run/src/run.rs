//! `causeway run`: VMs over one mediator, and their report.

use std::error::Error;
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{Builder, available_parallelism};
use std::time::{Duration, Instant};

use causeway_mediator::backend::Attributes;
use causeway_mediator::{OpenError, Quota};
use causeway_testdev::{self as testdev, Counterpart, Mailboxes, RunContext, TestDevice};
use causeway_vmm::console::ConsoleOutput;
use causeway_vmm::event_loop::{self, Limits};
use causeway_vmm::observer::VmObserver;
use causeway_vmm::outcome::VmOutcome;
use causeway_vmm::passthrough::DeviceSource;
use causeway_vmm::signals::Signals;
use causeway_vmm::virtio::DiskSlot;
use causeway_vmm::vm::{Attach, Boot, Vm, VmConfig, VmError, VmGpu};
use causeway_vmm::waits::Wait;
use kvm_ioctls::Kvm;

use crate::applicable::refuse_contradictions;
use crate::arguments::RunArguments;
use crate::back_end::BackEnds;
use crate::call_threads::CallThreads;
use crate::configuration::{Run, RunSettings};
use crate::control::control;
use crate::disk_slots::Slots;
use crate::ending::{RunCode, Verdict, explain, explain_counts, verdict};
use crate::gpu::Gpu;
use crate::gpus::unavailable;
use crate::host_limits::shortage_of;
use crate::image_opener::Opener;
use crate::interactive::{self, Interactive};
use crate::last_resort::{GRACE, watch_signals};
use crate::passthrough;
use crate::patience::Patience;
use crate::progress::{Caption, Watch};
use crate::report::Report;
use crate::start::{Later, Opened, Start, When};
use crate::summary::{boot_us, report};
use crate::table;
use causeway_publisher::control::Disks;
use causeway_publisher::limits::LimitedGuest;
use causeway_publisher::{Doors, Guest, PublishError, Published, Publisher, Snapshot};
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure, Origin, ReportFile, shown_path};

/// Aperture of each VM in bytes.
const APERTURE_BYTES: u64 = 64 << 30;

/// What a run that ended has produced.
#[derive(Debug)]
pub struct RunOutcome {
    /// How each VM ended and what it counted, in the order of the VMs.
    pub outcomes: Vec<VmOutcome>,
    /// What each guest reported to its test device, in the order of the VMs.
    pub guest_reports: Vec<testdev::Report>,
    /// The report for users. Its field `outcome` is "fail", and `reason` is empty: the caller sets
    /// both when it knows whether the run passed.
    pub report: Report,
}

/// Runs the guests that `arguments` describe, prints the report, and returns the exit code. With
/// `--print-config`, prints the arguments as a description file and runs nothing. `started` is when
/// this process was started, for the boot time in the report.
///
/// # Errors
/// A failure, with the exit code of the command, if an argument is invalid, if KVM, the back end or
/// a device is not available, if a VM cannot be created, or if the report cannot be written. If the
/// argument is from a description file, the message names its place there.
pub fn run(arguments: &RunArguments, started: Instant) -> Result<ExitCode, Failure> {
    let described = &arguments.described;
    let ended = match arguments.print_config {
        true => refuse_contradictions(arguments)
            .and_then(|()| terminal::print_results(described.text()))
            .map(|()| ExitCode::SUCCESS),
        false => run_guests(arguments, started),
    };
    ended.map_err(|failure| described.explain(failure))
}

fn run_guests(arguments: &RunArguments, started: Instant) -> Result<ExitCode, Failure> {
    let run = Run::check(arguments)?;
    terminal::refuse_same_file(&[
        ("--json", arguments.json.as_deref()),
        (
            "--metrics-socket",
            arguments.metrics.metrics_socket.as_deref(),
        ),
        ("--control", arguments.control.as_deref()),
    ])?;
    let signals = Signals::block().map_err(unprepared)?;
    let report_file = ReportFile::prepare(arguments.json.as_deref())?.kept()?;
    let confined = execute_confined(&run, started, signals)?;
    // Until the report is written, the signals end this process in order.
    let (outcome, _signals) = confined;
    let RunOutcome {
        outcomes,
        mut report,
        ..
    } = outcome;
    let Verdict { code, reason } = verdict(
        run.promise,
        &outcomes,
        &report,
        arguments.require_zero_exits,
    );
    if code.is_none() {
        report.outcome = "pass";
    }
    report.reason = reason;
    let mut printed = Ok(());
    if !report_file.is_output() {
        printed = terminal::print_results(&table::render(&report, terminal::output_width()));
    }
    explain(&run, &outcomes);
    explain_counts(code, &report);
    // Written even if the table could not be printed.
    report_file.write(&report)?;
    printed?;
    Ok(code.map_or(ExitCode::SUCCESS, RunCode::into))
}

/// Blocks the signals that end a run (SIGINT, SIGTERM, SIGHUP, SIGPIPE), and returns the object
/// that receives them. A command that has not ended two seconds after a signal is ended, whatever
/// it waits for. Call this function before any thread starts, because threads inherit the mask of
/// blocked signals.
///
/// # Errors
/// A failure with [`Code::Crashed`] if a system call fails.
pub fn block_signals() -> Result<Signals, Failure> {
    block_signals_with(GRACE)
}

/// As [`block_signals`], for a command that has `grace` to end.
///
/// # Errors
/// A failure with [`Code::Crashed`] if a system call fails.
pub fn block_signals_with(grace: Duration) -> Result<Signals, Failure> {
    watch_signals(Signals::block().map_err(unprepared)?, grace)
}

fn unprepared(error: std::io::Error) -> Failure {
    let what = "cannot prepare to handle signals such as SIGINT (Ctrl-C), so the command does not \
                start";
    Failure::new(Code::Crashed, what, error)
}

/// Settings of a run that benchmarks need and that no option of `run` sets.
#[derive(Default)]
pub struct Extras {
    /// Repeats the guests' timed operations on the host, for comparison; `None` to compare nothing.
    pub counterpart: Option<Arc<dyn Counterpart>>,
    /// Devices that the benchmark adds to each VM; `None` to add none.
    pub attached: Option<Arc<dyn Attach>>,
    /// Opens the PCI devices that are passed through. With `None`, those of `--vfio` are opened
    /// through the host's VFIO driver.
    pub devices: Option<Arc<dyn DeviceSource>>,
    /// Returns the text of the progress line. With `None`, the text is the name of the guest and
    /// the number of VMs.
    pub caption: Option<Caption>,
}

causeway_vmm::debug_by_name!(Extras);

/// Creates the VMs of `run` and runs them until they end, the time limit is reached, or `signals`
/// receives a signal. `started` is when this process was started, for the boot time in the report;
/// `extras` is what a benchmark adds to the run. A thread does that which confines itself, and not
/// the calling one.
///
/// # Errors
/// A failure, with the exit code of the command, if KVM, the back end or a device is not available,
/// or if a VM cannot be created.
pub fn execute(
    run: &Run,
    started: Instant,
    signals: &mut Signals,
    extras: &Extras,
) -> Result<RunOutcome, Failure> {
    std::thread::scope(|outside| {
        // Without a name, which logs take for the first thread: that waits for it.
        let executing = Builder::new().spawn_scoped(outside, || {
            std::thread::scope(|scope| {
                let when = match extras.attached {
                    Some(_) => When::BeforeGuests,
                    None => When::First,
                };
                let times = (started, Origin::now());
                let start = Start::new(run, when, scope)?;
                execute_in(start, run, times, signals, extras)
            })
        });
        let executing = executing.map_err(|e| {
            Failure::new(
                Code::Crashed,
                "cannot start the thread that runs the VMs",
                e,
            )
        })?;
        executing
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Runs VMs as [`execute`] does, in the calling thread, which is confined from then on. No other
/// thread exists yet: those that watch the blocked `signals` are confined, too.
fn execute_confined(
    run: &Run,
    started: Instant,
    signals: Signals,
) -> Result<(RunOutcome, Signals), Failure> {
    let origin = Origin::now();
    std::thread::scope(|scope| {
        let start = Start::new(run, When::First, scope)?;
        let mut signals = watch_signals(signals, GRACE)?;
        let times = (started, origin);
        let outcome = execute_in(start, run, times, &mut signals, &Extras::default())?;
        Ok((outcome, signals))
    })
}

fn execute_in(
    start: Start<'_>,
    run: &Run,
    (started, origin): (Instant, Origin),
    signals: &mut Signals,
    extras: &Extras,
) -> Result<RunOutcome, Failure> {
    let cpus = available_parallelism().map_or(1, usize::from);
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    warn_of(run.crowding(cpus).as_deref());
    warn_of(run.shortage().as_deref());
    let mut patience = Patience::new(run.settings.timeout_s, signals);
    let Opened {
        kvm,
        host,
        back_ends,
        doors,
        trace,
        opener,
        later,
        free,
    } = start.opened()?;
    let slots = disk_slots(run);
    let (vms, test_devices) = create(run, &kvm, &back_ends, &slots, extras, &mut patience)?;
    // Only now, because it does not concern a kernel that cannot boot.
    warn_of(run.settings.interpretation(|| host.kvm));
    let attributes = attributes(run, &vms);
    // Monitors get no answers after this value is dropped.
    let _publisher = publish(run, &vms, doors, disks(run, opener, &vms, slots))?;
    let interactive = interactive(run, &free, &vms)?;
    free.end();
    later.map_or(Ok(()), Later::confine)?;
    let watch = watch(run, interactive.is_some(), extras)?;
    let limits = Limits {
        timeout: patience.left(),
    };
    let outcomes = event_loop::run_all(vms, &limits, signals);
    drop(interactive);
    let outcomes =
        outcomes.map_err(|e| Failure::new(Code::Crashed, "cannot continue to run the VMs", e))?;
    let mut report = Report {
        boot_us: boot_us(&outcomes, started),
        kernels: back_ends.kernels(&outcomes),
        tracepoints: trace.map(|trace| trace.report(&outcomes, run.settings.vcpus)),
        ..report(run, attributes, watch.finish(), (origin.ended(), host))
    };
    let guest_reports: Vec<_> = test_devices.iter().map(|device| device.report()).collect();
    for (vm, (outcome, reported)) in (0..).zip(outcomes.iter().zip(&guest_reports)) {
        report.add(vm, run, outcome, reported);
    }
    report.count_data_path();
    Ok(RunOutcome {
        outcomes,
        guest_reports,
        report,
    })
}

/// Returns what VMs see of each GPU of the run; `None` for one that no VM has.
fn attributes(run: &Run, vms: &[Vm]) -> Vec<Option<Attributes>> {
    let mut seen: Vec<_> = run.gpus().map(|_| None).collect();
    for (index, vm) in (0..).zip(vms) {
        for ((number, ..), attributes) in run.gpus_of(index).zip(vm.gpus()) {
            seen[number as usize].get_or_insert(attributes);
        }
    }
    seen
}

fn warn_of(problem: Option<&str>) {
    problem.iter().for_each(|problem| log::warn!("{problem}"));
}

/// Starts to watch the memory of this process, and shows the progress line unless the run is
/// interactive.
fn watch(run: &Run, interactive: bool, extras: &Extras) -> Result<Watch, Failure> {
    let RunSettings { guest, vms, .. } = &run.settings;
    let plural = if *vms == 1 { "" } else { "s" };
    let shown = format!("{guest} in {vms} VM{plural}");
    let usual: Caption = Arc::new(move || shown.clone());
    let caption = extras.caption.clone().unwrap_or(usual);
    Watch::start((!interactive).then_some(caption)).map_err(|e| {
        Failure::new(
            Code::Crashed,
            "cannot start the thread that shows the progress",
            e,
        )
    })
}

fn create(
    run: &Run,
    kvm: &Kvm,
    back_ends: &BackEnds,
    slots: &[DiskSlots],
    extras: &Extras,
    patience: &mut Patience<'_>,
) -> Result<(Vec<Vm>, Vec<Arc<TestDevice>>), Failure> {
    let settings = &run.settings;
    let mailboxes = settings.mailboxes.then(Arc::<Mailboxes>::default);
    let sessions: Vec<_> = back_ends.sessions().collect();
    let create = |index| {
        let test_device = Arc::new(TestDevice::new(RunContext {
            vm: index,
            vms: settings.vms,
            mailboxes: mailboxes.clone(),
            counterpart: extras.counterpart.clone(),
        }));
        let mut attached: Vec<Arc<dyn Attach>> = vec![test_device.clone()];
        attached.extend(extras.attached.clone());
        let config = VmConfig {
            name: format!("vm{index}"),
            index,
            vms: settings.vms,
            vcpus: settings.vcpus,
            memory_bytes: settings.memory_bytes(),
            boot: boot_with(settings.boot.clone(), slots.get(index as usize)),
            aperture_bytes: APERTURE_BYTES,
            large_pages: !settings.small_pages,
            node: run.node_of(index).cloned(),
            devices: extras
                .devices
                .clone()
                .or_else(|| passthrough::source(run, index)),
            attached,
        };
        let console = console(run, &config.name);
        let _wait = Wait::begin(format!("the GPU session of {} to open", config.name));
        let gpu = |(number, gpu, _): (u32, &Gpu, _)| VmGpu {
            number,
            sessions: sessions[number as usize],
            quota: Quota {
                compute: gpu.compute(index),
                ..gpu.quota(run.sessions())
            },
        };
        let gpus: Vec<_> = run.gpus_of(index).map(gpu).collect();
        let vm = Vm::new_unless(kvm, &config, &gpus, console, &mut || patience.ended());
        let vm = vm.map_err(|e| match (e, patience.end()) {
            (VmError::Interrupted, Some(end)) => end.failure(run, index),
            (e, _) => refused(run, index, e),
        })?;
        Ok((vm, test_device))
    };
    (0..settings.vms).map(create).collect()
}

/// The disks of a VM that get their images while it runs.
type DiskSlots = Arc<[Arc<DiskSlot>]>;

/// Returns the disks of each VM that get their images while it runs.
fn disk_slots(run: &Run) -> Vec<DiskSlots> {
    let folder = run.settings.disk_folder.as_ref();
    let all = folder.map(|folder| (0..run.settings.vms).map(|_| folder.disks()).collect());
    all.unwrap_or_default()
}

fn boot_with(mut boot: Boot, slots: Option<&DiskSlots>) -> Boot {
    if let (Boot::Linux(linux), Some(slots)) = (&mut boot, slots) {
        linux.slots = Arc::clone(slots);
    }
    boot
}

/// Returns what the control socket does with `slots`, if there are any.
fn disks(
    run: &Run,
    opener: Option<Opener>,
    vms: &[Vm],
    slots: Vec<DiskSlots>,
) -> Option<Box<dyn Disks>> {
    let (folder, opener) = (run.settings.disk_folder.as_ref()?, opener?);
    let names = vms.iter().map(|vm| vm.name().to_owned());
    let slots = Slots::new(folder, opener, names.zip(slots));
    Some(Box::new(slots))
}

/// Returns the failure of VM number `vm`, which cannot be created, with its exit code.
fn refused(run: &Run, vm: u32, error: VmError) -> Failure {
    match error {
        VmError::Image(error) => not_an_image(run, error),
        VmError::Linux(error) => not_an_image(run, error),
        VmError::Session {
            gpu,
            source: error @ OpenError::Unavailable { .. },
        } => {
            let text = run.gpus_of(vm).nth(gpu).map_or("", |(.., text)| text);
            unavailable(text, error)
        }
        VmError::PassThrough(error) => passthrough::unavailable(error),
        VmError::Config(error) => {
            Failure::new(Code::Usage, "a VM cannot have this configuration", error)
        }
        error => Failure::new(Code::Crashed, "cannot create the VM", error),
    }
}

fn not_an_image(run: &Run, error: impl Error + Send + Sync + 'static) -> Failure {
    Failure::new(
        Code::Image,
        format!("cannot boot {}", run.settings.guest),
        error,
    )
}

/// Guests print to standard error, line by line unless the terminal is theirs; results alone go to
/// standard output.
fn console(run: &Run, name: &str) -> ConsoleOutput {
    if interactive::is_wanted(run) {
        return ConsoleOutput::Raw(interactive::output());
    }
    let name = name.to_owned();
    ConsoleOutput::Lines(Arc::new(move |line| {
        terminal::say(&format!("{name}| {line}"));
    }))
}

/// Publishes the statistics of the VMs to monitors, and lets the user change their limits.
fn publish(
    run: &Run,
    vms: &[Vm],
    doors: Doors,
    disks: Option<Box<dyn Disks>>,
) -> Result<Publisher, Failure> {
    let observers: Vec<_> = vms.iter().flat_map(Vm::observers).collect();
    let gpus: Vec<_> = run.gpus().map(|(_, text)| text).collect();
    let gpu = gpus.join(" ");
    let known = observers.clone();
    let published = Published {
        look: Box::new(move || {
            let seen = observers.iter().filter_map(VmObserver::observe);
            Snapshot::of("run", &gpu, seen.map(Guest::vm).collect())
        }),
        guests: Box::new(move || {
            let running = known.iter().filter_map(VmObserver::running);
            running.map(LimitedGuest::from).collect()
        }),
        shortage: shortage_of,
        control: (run.settings.control.as_ref()).map(|_| control(run, vms).with_disks(disks)),
    };
    doors.publish(published).map_err(unpublished)
}

/// Returns the failure of a command that cannot publish the statistics of its guests.
pub fn unpublished(error: PublishError) -> Failure {
    match error {
        PublishError::Metrics { path, source } => {
            Failure::usage_from("--metrics-socket", &shown_path(&path), source)
        }
        PublishError::Control { path, source } => {
            Failure::usage_from("--control", &shown_path(&path), source)
        }
        PublishError::Address { address, source } => {
            Failure::usage_from("--metrics", &address.to_string(), source)
        }
        PublishError::Thread(e) => Failure::new(
            Code::Crashed,
            "cannot start the thread that publishes statistics",
            e,
        ),
    }
}

/// Connects the terminal to the guest if the run is interactive.
fn interactive(
    run: &Run,
    free: &CallThreads<'_>,
    vms: &[Vm],
) -> Result<Option<Interactive>, Failure> {
    let Some(vm) = vms.first().filter(|_| interactive::is_wanted(run)) else {
        return Ok(None);
    };
    // It starts a process.
    let raw = free.call(Interactive::enter);
    raw.and_then(|raw| Interactive::start(raw, Arc::clone(vm.console())))
        .map(Some)
        .map_err(|e| Failure::new(Code::Crashed, "cannot connect the terminal to the guest", e))
}
