//! Processes of this host that serve devices of guests by vhost-user: one for each device and VM.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use causeway_vmm::virtio::Device;
use causeway_vmm::virtio::vhost_user::DeviceProcess;
use causeway_vmm::virtio::{Description, OutsideError, OutsideSource};
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How much of what a process says of a failure is kept, in bytes.
const SAID_BYTES: u64 = 16 << 10;
/// How long a process may take to end by itself when its guest is gone.
const END_LIMIT: Duration = Duration::from_millis(500);
/// How long this process waits for a keeper, which ends later by itself.
const KEEPER_LIMIT: Duration = Duration::from_millis(1500);
/// Time between two looks at a process that is about to end.
const PAUSE: Duration = Duration::from_millis(2);

/// A command that serves devices.
#[derive(Debug)]
pub struct Program {
    /// Name of the command.
    pub name: &'static str,
    /// Where distributions put it, behind `PATH`.
    pub folders: &'static [&'static str],
    /// The option of this command that names another file.
    pub option: &'static str,
    /// What it serves, in words.
    pub serves: &'static str,
    /// How to install it.
    pub install: &'static str,
    /// Of what it prints before it fails, only the last line says why.
    pub last_line_says_why: bool,
    /// How it learns that its guest is gone.
    pub end: End,
}

/// How a process learns that its guest is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its connection ends.
    Connection,
    /// Nobody reads its standard output any more, on which it says nothing.
    Output,
}

impl Program {
    /// Returns the file `named`, or the one of this host.
    ///
    /// # Errors
    /// [`ServiceError::Missing`] if this host has no such command.
    pub fn find(&'static self, named: Option<&Path>) -> Result<PathBuf, ServiceError> {
        let found = named.map(Path::to_owned).or_else(|| self.installed());
        found.ok_or(ServiceError::Missing(self))
    }

    /// Returns what of `lines` says why the process failed.
    fn failure(&self, lines: &[String]) -> String {
        let last = lines.len().saturating_sub(1);
        let first = if self.last_line_says_why { last } else { 0 };
        lines[first..].join("; ")
    }

    fn installed(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let others = self.folders.iter().map(PathBuf::from);
        let folders = std::env::split_paths(&path).chain(others);
        let mut files = folders.map(|folder| folder.join(self.name));
        files.find(|file| {
            let metadata = file.metadata();
            metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        })
    }
}

/// Why a device is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The command is not there.
    #[error(
        "cannot find {}, which serves {}: install it ({}), or name it by {} FILE",
        .0.name, .0.serves, .0.install, .0.option
    )]
    Missing(&'static Program),
    /// The command's file cannot be started.
    #[error("cannot start {} (give {option} another file)", program.display())]
    Start {
        /// File that was to be started.
        program: PathBuf,
        /// The option that names another file.
        option: &'static str,
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
    /// The process does not serve the device.
    #[error("{} does not serve {what}{}", program.display(), quoted(said))]
    Refused {
        /// File that was started.
        program: PathBuf,
        /// What it was to serve, and how.
        what: String,
        /// What it said itself.
        said: String,
        /// What the connection to it showed.
        source: Box<OutsideError>,
    },
}

fn quoted(said: &str) -> String {
    match said.is_empty() {
        true => String::new(),
        false => format!(": it says `{said}`"),
    }
}

/// A device of which each VM has a process.
pub trait Service: fmt::Debug + Send + Sync {
    /// Starts the process for one VM.
    ///
    /// # Errors
    /// Why it does not serve.
    fn start(&self) -> Result<DeviceProcess, ServiceError>;

    /// Returns what the process is called in messages.
    fn name(&self) -> String;
}

/// The processes of a service that wait for their VMs.
#[derive(Debug)]
pub struct Processes<S> {
    service: S,
    ready: Mutex<Vec<DeviceProcess>>,
}

impl<S: Service> Processes<S> {
    /// Starts none yet.
    pub const fn of(service: S) -> Self {
        Self {
            service,
            ready: Mutex::new(Vec::new()),
        }
    }
}

impl<S: Service> OutsideSource for Processes<S> {
    fn prepare(&self, vms: u32) -> Result<(), OutsideError> {
        let started: Result<Vec<_>, _> = (0..vms).map(|_| self.service.start()).collect();
        *self.ready.lock() = started.map_err(|e| OutsideError::Start(Box::new(e)))?;
        Ok(())
    }

    fn connect(&self) -> Result<Device, OutsideError> {
        let ready = self.ready.lock().pop();
        let ready = ready.map(|process| Device::Process(Box::new(process)));
        ready.ok_or_else(|| OutsideError::Ended(self.service.name()))
    }
}

/// How a process is started.
#[derive(Debug)]
pub struct Start {
    /// Which command it is.
    pub kind: &'static Program,
    /// Its file, for messages.
    pub program: PathBuf,
    /// What starts it, with its arguments.
    pub command: Command,
    /// Its standard input: the connection, or a socket on which the connection waits. It inherits
    /// no other descriptor.
    pub input: OwnedFd,
    /// The other end of the connection.
    pub stream: UnixStream,
    /// What it is to serve, and how, for messages.
    pub what: String,
    /// What it repeats of its arguments before it says why it fails: messages leave that out.
    pub echo: String,
}

impl Start {
    /// Starts the process, and has it serve a device.
    ///
    /// # Errors
    /// Why it does not.
    pub fn serving(self, description: Description) -> Result<DeviceProcess, ServiceError> {
        let mut command = self.command;
        let program = || self.program.clone();
        let socket = |source| ServiceError::Socket {
            program: program(),
            source,
        };
        let said = bounded_file().map_err(socket)?;
        command
            .stdin(self.input)
            .stdout(match self.kind.end {
                End::Connection => Stdio::null(),
                End::Output => Stdio::piped(),
            })
            .stderr(said.try_clone().map_err(socket)?);
        let child = command.spawn().map_err(|source| ServiceError::Start {
            program: program(),
            option: self.kind.option,
            source,
        })?;
        // It keeps this process's copy of the input, whose end the other side would not see.
        drop(command);
        let life = Box::new(Life::of(child, self.kind.end));
        let served = DeviceProcess::connect(self.stream, description, life);
        served.map_err(|source| ServiceError::Refused {
            program: program(),
            what: self.what,
            said: self.kind.failure(&lines_of(said)).replace(&self.echo, ""),
            source: Box::new(source),
        })
    }
}

/// Returns a listening socket, and the one connection that waits there already: the process finds
/// it at once, and nobody else can come first. The socket has no path any more.
///
/// # Errors
/// The kernel's error.
pub fn connected_listener() -> io::Result<(UnixListener, UnixStream)> {
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

/// Returns what was written to a [`bounded_file`].
fn lines_of(file: OwnedFd) -> Vec<String> {
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    // What cannot be read was not said.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.trim_end_matches('\0').lines();
    lines.map(|line| line.trim().to_owned()).collect()
}

/// A started process, which ends when its connection or its output does. Dropping this value makes
/// sure of it.
struct Life {
    child: Child,
    end: End,
    /// By which a confined thread may end it; `None` on Linux before 5.3.
    handle: Option<OwnedFd>,
}

impl Life {
    fn of(child: Child, end: End) -> Self {
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        Self {
            handle: handle.ok(),
            end,
            child,
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let begin = Instant::now();
        drop(self.child.stdout.take());
        while let Ok(None) = self.child.try_wait() {
            // A keeper has what it waits for: what a guest has written.
            if self.end == End::Output && begin.elapsed() > KEEPER_LIMIT {
                log::warn!(
                    "process {} still waits for what a disk's daemon writes",
                    self.child.id()
                );
                return;
            }
            if self.end == End::Connection && begin.elapsed() > END_LIMIT {
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
