//! Processes that serve folders of the host to guests: `virtiofsd`.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_sandbox::Sandbox;
use causeway_vmm::virtio::Description;
use causeway_vmm::virtio::vhost_user::DeviceProcess;

use crate::device_process::{Program, Service, ServiceError, Start};
use crate::share::SharedFolder;

static PROGRAM: Program = Program {
    name: "virtiofsd",
    folders: &["/usr/libexec", "/usr/lib", "/usr/lib/virtiofsd"],
    option: "--virtiofsd",
    serves: "--share and --rootfs",
    install: "Debian 13 and Ubuntu 24.04: apt install virtiofsd; Fedora: dnf install virtiofsd; \
              elsewhere: cargo install virtiofsd",
    last_line_says_why: false,
};

/// Serves one folder to all VMs of a run, each by a process of its own.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    shared: SharedFolder,
    sandbox: Sandbox,
}

impl Server {
    /// Returns what will serve `shared`, by the command `named` or the one of this host.
    ///
    /// # Errors
    /// [`ServiceError::Missing`] if this host has no such command.
    pub fn new(
        shared: SharedFolder,
        named: Option<&Path>,
        sandbox: Sandbox,
    ) -> Result<Self, ServiceError> {
        Ok(Self {
            program: PROGRAM.find(named)?,
            shared,
            sandbox,
        })
    }

    fn start_with(&self, sandbox: &'static str) -> Result<DeviceProcess, ServiceError> {
        let made = connected_listener().map_err(|source| ServiceError::Socket {
            program: self.program.clone(),
            source,
        });
        let (listener, stream) = made?;
        let start = Start {
            kind: &PROGRAM,
            command: self.command(sandbox),
            input: listener.into(),
            stream,
            what: format!(
                "{} (with --sandbox={sandbox})",
                self.shared.folder.display()
            ),
        };
        start.serving(self.description())
    }

    fn command(&self, sandbox: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--shared-dir")
            .arg(&self.shared.folder)
            .args(["--sandbox", sandbox, "--log-level", "error"])
            .args(["--fd", "0"]);
        if self.shared.share.read_only {
            command.arg("--readonly");
        }
        command
    }

    fn description(&self) -> Description {
        Description::of_file_system(self.name(), &self.shared.share.tag)
    }
}

impl Service for Server {
    /// Confined as far as this host allows.
    fn start(&self) -> Result<DeviceProcess, ServiceError> {
        let (first, others) = ways(self.sandbox);
        let mut started = self.start_with(first);
        for next in others {
            let Err(error @ ServiceError::Refused { .. }) = &started else {
                break;
            };
            log::warn!("{error}: it gets --sandbox={next}, which confines it less");
            started = self.start_with(next);
        }
        started
    }

    fn name(&self) -> String {
        format!("{} of {}", PROGRAM.name, self.shared.folder.display())
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
