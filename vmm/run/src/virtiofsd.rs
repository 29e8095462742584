//! Processes that serve folders of the host to guests: `virtiofsd`.

use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_sandbox::Sandbox;
use causeway_vmm::virtio::Description;
use causeway_vmm::virtio::vhost_user::DeviceProcess;

use crate::device_process::{End, Program, Service, ServiceError, Start, connected_listener};
use crate::share::SharedFolder;

static PROGRAM: Program = Program {
    name: "virtiofsd",
    folders: &["/usr/libexec", "/usr/lib", "/usr/lib/virtiofsd"],
    option: "--virtiofsd",
    serves: "--share and --rootfs",
    install: "Debian 13 and Ubuntu 24.04: apt install virtiofsd; Fedora: dnf install virtiofsd; \
              elsewhere: cargo install virtiofsd",
    last_line_says_why: false,
    end: End::Connection,
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
            program: self.program.clone(),
            command: self.command(sandbox),
            input: listener.into(),
            stream,
            what: format!(
                "{} (with --sandbox={sandbox})",
                self.shared.folder.display()
            ),
            echo: String::new(),
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
