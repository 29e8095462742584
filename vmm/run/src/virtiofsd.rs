//! Processes that serve folders of the host to guests: `virtiofsd`.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use causeway_sandbox::Sandbox;
use causeway_vmm::virtio::vhost_user::{Description, DeviceProcess, ProcessError, ProcessSource};
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::share::SharedFolder;

/// Name of the command.
const NAME: &str = "virtiofsd";
/// Where distributions put it, behind `PATH`.
const FOLDERS: [&str; 3] = ["/usr/libexec", "/usr/lib", "/usr/lib/virtiofsd"];
/// How much of what it says of a failure is kept, in bytes.
const SAID_BYTES: u64 = 16 << 10;
/// How long it may take to end by itself when its guest is gone.
const END_LIMIT: Duration = Duration::from_millis(500);
/// Time between two looks at a process that is about to end.
const PAUSE: Duration = Duration::from_millis(2);

/// Why a folder is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The command is not there.
    #[error(
        "cannot find virtiofsd, which serves --share and --rootfs: install it (Debian 13 and \
         Ubuntu 24.04: apt install virtiofsd; Fedora: dnf install virtiofsd; elsewhere: cargo \
         install virtiofsd), or name it by --virtiofsd FILE"
    )]
    Missing,
    /// The file of `--virtiofsd` cannot be started.
    #[error("cannot start {} (give --virtiofsd another file)", program.display())]
    Start {
        /// File that was to be started.
        program: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A socket or a file for the process cannot be made.
    #[error("cannot make the socket by which {} serves its guest", program.display())]
    Socket {
        /// File that was to be started.
        program: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The process does not serve the folder.
    #[error(
        "{} does not serve {} (with --sandbox={sandbox}){}",
        program.display(), folder.display(), quoted(said)
    )]
    Refused {
        /// File that was started.
        program: PathBuf,
        /// Folder that it was to serve.
        folder: PathBuf,
        /// How it was to confine itself.
        sandbox: &'static str,
        /// What it said itself.
        said: String,
        /// What the connection to it showed.
        source: Box<ProcessError>,
    },
}

fn quoted(said: &str) -> String {
    match said.is_empty() {
        true => String::new(),
        false => format!(": it says `{said}`"),
    }
}

/// Serves one folder to all VMs of a run, each by a process of its own.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    shared: SharedFolder,
    sandbox: Sandbox,
    ready: Mutex<Vec<DeviceProcess>>,
}

impl Server {
    /// Returns what will serve `shared`, by the command `named` or the one of this host.
    ///
    /// # Errors
    /// [`ServerError::Missing`] if this host has no such command.
    pub fn new(
        shared: SharedFolder,
        named: Option<&Path>,
        sandbox: Sandbox,
    ) -> Result<Self, ServerError> {
        let program = match named {
            Some(program) => program.to_owned(),
            None => find().ok_or(ServerError::Missing)?,
        };
        Ok(Self {
            program,
            shared,
            sandbox,
            ready: Mutex::default(),
        })
    }

    /// Starts one process, confined as far as this host allows.
    fn start(&self) -> Result<DeviceProcess, ServerError> {
        let (first, others) = ways(self.sandbox);
        let mut started = self.start_with(first);
        for next in others {
            let Err(error @ ServerError::Refused { .. }) = &started else {
                break;
            };
            log::warn!("{error}: it gets --sandbox={next}, which confines it less");
            started = self.start_with(next);
        }
        started
    }

    fn start_with(&self, sandbox: &'static str) -> Result<DeviceProcess, ServerError> {
        let program = || self.program.clone();
        let socket = |source| ServerError::Socket {
            program: program(),
            source,
        };
        let (listener, stream) = connected_listener().map_err(socket)?;
        let said = bounded_file().map_err(socket)?;
        let child = self
            .command(sandbox, listener, said.try_clone().map_err(socket)?)
            .spawn()
            .map_err(|source| ServerError::Start {
                program: program(),
                source,
            })?;
        let life = Box::new(Life::of(child));
        let served = DeviceProcess::connect(stream, self.description(), life);
        served.map_err(|source| ServerError::Refused {
            program: program(),
            folder: self.shared.folder.clone(),
            sandbox,
            said: text_of(said),
            source: Box::new(source),
        })
    }

    fn command(&self, sandbox: &str, listener: UnixListener, said: OwnedFd) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--shared-dir")
            .arg(&self.shared.folder)
            .args(["--sandbox", sandbox, "--log-level", "error"])
            // Its standard input is the socket: no other descriptor is inherited.
            .args(["--fd", "0"])
            .stdin(OwnedFd::from(listener))
            .stdout(Stdio::null())
            .stderr(said);
        if self.shared.share.read_only {
            command.arg("--readonly");
        }
        command
    }

    fn description(&self) -> Description {
        let process = format!("{NAME} of {}", self.shared.folder.display());
        Description::of_file_system(process, &self.shared.share.tag)
    }
}

impl ProcessSource for Server {
    fn prepare(&self, vms: u32) -> Result<(), ProcessError> {
        let started: Result<Vec<_>, _> = (0..vms).map(|_| self.start()).collect();
        *self.ready.lock() = started.map_err(|e| ProcessError::Start(Box::new(e)))?;
        Ok(())
    }

    fn connect(&self) -> Result<DeviceProcess, ProcessError> {
        let ready = self.ready.lock().pop();
        ready.ok_or_else(|| ProcessError::Ended(self.description().process))
    }
}

/// Returns how the process confines itself: first the best way that `sandbox` allows, then those
/// for hosts that lack it. A folder in a namespace of its own needs one that may be changed, which
/// an initramfs is not.
const fn ways(sandbox: Sandbox) -> (&'static str, &'static [&'static str]) {
    match sandbox {
        Sandbox::Strict => ("namespace", &[]),
        Sandbox::On => ("namespace", &["chroot", "none"]),
        Sandbox::Off => ("none", &[]),
    }
}

/// Finds the command on this host.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(NAME));
    files.find(|file| {
        let metadata = file.metadata();
        metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    })
}

/// Returns a listening socket, and the one connection that waits there already: the process finds
/// it at once, and nobody else can come first. The socket has no path any more.
fn connected_listener() -> io::Result<(UnixListener, UnixStream)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("causeway-socket-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let path = folder.join("socket");
    let connected = UnixListener::bind(&path).and_then(|listener| {
        let stream = UnixStream::connect(&path)?;
        std::fs::remove_file(&path)?;
        Ok((listener, stream))
    });
    std::fs::remove_dir_all(&folder)?;
    connected
}

/// Returns a file without a name that keeps [`SAID_BYTES`] bytes: a process that says more is not
/// held up, and takes no more memory.
fn bounded_file() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("causeway-said", flags)?;
    ftruncate(&file, SAID_BYTES)?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// Returns what was written to a [`bounded_file`], on one line.
fn text_of(file: OwnedFd) -> String {
    use std::io::Seek;
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    // What cannot be read was not said.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.trim_end_matches('\0').lines();
    lines.map(str::trim).collect::<Vec<_>>().join("; ")
}

/// A started process, which ends when its connection does. Dropping this value makes sure of it.
struct Life {
    child: Child,
    /// By which a confined thread may end it; `None` on Linux before 5.3.
    handle: Option<OwnedFd>,
}

impl Life {
    fn of(child: Child) -> Self {
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        Self {
            handle: handle.ok(),
            child,
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let begin = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if begin.elapsed() > END_LIMIT {
                log::debug!("process {} does not end by itself", self.child.id());
                let handle = self.handle.as_ref();
                let killed = handle.map(|handle| pidfd_send_signal(handle, Signal::KILL));
                if matches!(killed, Some(Ok(()))) {
                    let _ = self.child.wait();
                }
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}
