//! A process that keeps the one that serves a disk: it ends it with the VMM, however that ends, and
//! lets it finish what it has in memory.
//!
//! A daemon for disks does not end with its connection, and has parts of an image in memory that it
//! writes when it ends properly. The keeper is another run of this program, whose standard output
//! nobody reads: it ends when the VMM does, or closes it. The keeper then asks the daemon to end,
//! and waits. The daemon is asked by the kernel if the keeper is killed.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use causeway_sandbox::{Profile, Sandbox, close_inherited, enter};
use causeway_terminal::{Code, Failure};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
};
use vmm_sys_util::signal::unblock_signal;

/// Name of the hidden subcommand.
const KEEPER: &str = "disk-keeper";
/// How long a daemon may take to end when it was asked to: it writes what it has to the disk.
const END_LIMIT: Duration = Duration::from_secs(30);

/// What a daemon may open.
#[derive(Debug)]
pub struct Confinement {
    /// Whether it is confined at all.
    pub sandbox: Sandbox,
    /// The image that it writes, if there is one.
    pub writable: Option<PathBuf>,
    /// Images that it only reads.
    pub read_only: Vec<PathBuf>,
}

/// Arguments of the hidden subcommand.
#[derive(Clone, Debug, Args)]
pub struct KeeperArguments {
    /// How the daemon is confined.
    #[arg(long)]
    sandbox: Sandbox,
    /// Image that the daemon writes.
    #[arg(long)]
    writable: Option<PathBuf>,
    /// Image that it only reads.
    #[arg(long)]
    read_only: Vec<PathBuf>,
    /// This process is to become the daemon, with the keeper of this number as its parent.
    #[arg(long)]
    keeper: Option<u32>,
    /// The daemon's program and its arguments.
    #[arg(last = true, required = true)]
    words: Vec<OsString>,
}

/// Returns the command of a keeper; the program of the daemon and its arguments are to be added.
/// The keeper's standard input is for the daemon.
pub fn command(confinement: &Confinement) -> Command {
    let mut command = this(confinement);
    // A signal of the terminal is for the VMM.
    command.arg("--").process_group(0);
    command
}

/// Returns the hidden subcommand without the daemon.
fn this(confinement: &Confinement) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("causeway");
    command.args([KEEPER, "--sandbox", confinement.sandbox.name()]);
    if let Some(path) = &confinement.writable {
        command.arg("--writable").arg(path);
    }
    for path in &confinement.read_only {
        command.arg("--read-only").arg(path);
    }
    command
}

/// Keeps the daemon, or becomes it.
///
/// # Errors
/// Why there is no daemon.
pub fn run(arguments: &KeeperArguments) -> Result<ExitCode, Failure> {
    let confinement = Confinement {
        sandbox: arguments.sandbox,
        writable: arguments.writable.clone(),
        read_only: arguments.read_only.clone(),
    };
    let program = arguments.words[0].display();
    let failed = |e| Failure::new(Code::Usage, format!("cannot start {program}"), e);
    if let Some(keeper) = arguments.keeper {
        return Err(become_daemon(&confinement, keeper, &arguments.words));
    }
    let mut command = this(&confinement);
    let number = std::process::id().to_string();
    command.args(["--keeper", &number, "--"]);
    command.args(&arguments.words);
    let daemon = command.stdout(Stdio::null()).spawn().map_err(failed)?;
    keep(daemon).map_err(failed)
}

/// Waits until the daemon ends, or this process's standard output is closed; then asks the daemon
/// to end.
fn keep(mut daemon: Child) -> io::Result<ExitCode> {
    let handle = pidfd_open(Pid::from_child(&daemon), PidfdFlags::empty())?;
    let output = io::stdout();
    let mut both = [
        // Errors are told without being asked for: here that nobody reads any more.
        PollFd::new(&output, PollFlags::empty()),
        PollFd::new(&handle, PollFlags::IN),
    ];
    wait(&mut both, None)?;
    if both[1].revents().is_empty() {
        let _ = pidfd_send_signal(&handle, Signal::TERM); // Fails if it has ended.
        if !wait(&mut both[1..], Some(END_LIMIT))? {
            let _ = pidfd_send_signal(&handle, Signal::KILL);
        }
    }
    let status = daemon.wait()?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Waits for an event, for `limit` at most. Returns whether there is one.
fn wait(events: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<bool> {
    let limit = limit.map(|limit| Timespec::try_from(limit).unwrap_or_default());
    loop {
        match poll(events, limit.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return Ok(polled? != 0),
        }
    }
}

/// Confines this process, and makes it the daemon. Returns only if that fails.
fn become_daemon(confinement: &Confinement, keeper: u32, words: &[OsString]) -> Failure {
    let program = words[0].display();
    if let Err(e) = close_inherited() {
        return Failure::new(Code::Usage, format!("cannot start {program}"), e);
    }
    if confinement.sandbox != Sandbox::Off {
        let missing = enter(&profile(confinement, &words[0]));
        if let (Sandbox::Strict, Some(missing)) = (confinement.sandbox, missing.into_iter().next())
        {
            let what = format!("{program} cannot be confined as --sandbox strict demands");
            return Failure::new(Code::Usage, what, missing);
        }
    }
    // The VMM blocks signals, and those that it starts inherit that.
    let heard = unblock_signal(Signal::TERM.as_raw());
    // After the last change of rights, which would clear it.
    let asked = set_parent_process_death_signal(Some(Signal::TERM));
    let failed = |e| Failure::new(Code::Usage, format!("cannot start {program}"), e);
    match (asked, heard) {
        (Err(e), _) => failed(e.into()),
        (_, Err(e)) => failed(io::Error::other(format!("{e:?}"))),
        // It may have ended before the signal was asked for.
        _ if std::os::unix::process::parent_id() != keeper => {
            failed(io::Error::other("its keeper has ended"))
        }
        _ => failed(Command::new(&words[0]).args(&words[1..]).exec()),
    }
}

/// Returns what the daemon may open.
fn profile(confinement: &Confinement, program: &OsString) -> Profile {
    let mut profile = Profile::computation();
    // The dynamic loader is a program, too.
    profile.start = ["/lib", "/lib64", "/nix/store"].map(PathBuf::from).to_vec();
    profile.start.push(PathBuf::from(program));
    let read = ["/usr", "/etc/ld.so.preload", "/sys/devices/system/node"];
    profile.read.extend(read.map(PathBuf::from));
    profile.read.extend(confinement.read_only.iter().cloned());
    profile.rewrite.extend(confinement.writable.clone());
    profile
}
