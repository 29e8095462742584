//! Processes that serve disks in QEMU's format qcow2 to guests: `qemu-storage-daemon`.
//!
//! Each has a keeper ([`crate::disk_keeper`]), which confines it to the files of the disk, and ends
//! it with the VMM.

use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_sandbox::Sandbox;
use causeway_vmm::virtio::Description;
use causeway_vmm::virtio::vhost_user::DeviceProcess;
use serde_json::{Value, json};

use super::chain::ImageFile;
use crate::device_process::{End, Program, Service, ServiceError, Start, connected_listener};
use crate::disk_keeper;

static PROGRAM: Program = Program {
    name: "qemu-storage-daemon",
    folders: &["/usr/bin", "/usr/local/bin"],
    option: "--storage-daemon",
    serves: "disks with ,format=qcow2",
    install: "Debian and Ubuntu: apt install qemu-utils; Fedora: dnf install \
              qemu-storage-daemon",
    last_line_says_why: false,
    end: End::Output,
};

/// Serves one disk to all VMs of a run, each by a process of its own.
#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    /// The image, then its backing files.
    files: Vec<ImageFile>,
    read_only: bool,
    sandbox: Sandbox,
}

impl Daemon {
    /// Returns what will serve the disk of `files`, by the command `named` or the one of this host.
    ///
    /// # Errors
    /// [`ServiceError::Missing`] if this host has no such command, `Start` if the file is not
    /// there.
    pub fn new(
        files: Vec<ImageFile>,
        read_only: bool,
        named: Option<&Path>,
        sandbox: Sandbox,
    ) -> Result<Self, ServiceError> {
        let program = PROGRAM.find(named)?;
        let program = program
            .canonicalize()
            .map_err(|source| ServiceError::Start {
                program,
                option: PROGRAM.option,
                source,
            })?;
        Ok(Self {
            program,
            files,
            read_only,
            sandbox,
        })
    }

    fn command(&self) -> Command {
        let mut files = self.files.iter().map(|file| &*file.path);
        let writable = files.next().filter(|_| !self.read_only);
        let image = self.files.first().filter(|_| writable.is_none());
        let read_only = image.map(|file| &*file.path).into_iter().chain(files);
        let mut command = disk_keeper::command(&disk_keeper::Confinement {
            sandbox: self.sandbox,
            writable: writable.map(Path::to_owned),
            read_only: read_only.map(Path::to_owned).collect(),
        });
        let access = if self.read_only { "off" } else { "on" };
        command
            .arg(&self.program)
            .arg("--blockdev")
            .arg(self.node().to_string());
        command.arg("--export").arg(format!(
            "type=vhost-user-blk,id=export,node-name={NODE},writable={access},num-queues=1,\
             addr.type=fd,addr.str=0"
        ));
        command
    }

    /// Returns the disk as the process's option `--blockdev` has it. Each file and its format are
    /// stated, so that nothing is guessed, and nothing that an image names is opened.
    fn node(&self) -> Value {
        let mut node = Value::Null;
        for (number, file) in self.files.iter().enumerate().rev() {
            let read_only = self.read_only || number != 0;
            let discard = if read_only { "ignore" } else { "unmap" };
            let mut this = json!({
                "driver": if file.is_qcow2 { "qcow2" } else { "raw" },
                "read-only": read_only,
                "discard": discard,
                "file": {
                    "driver": "file",
                    "filename": file.path.to_str(),
                    "read-only": read_only,
                    "discard": discard,
                },
            });
            if file.is_qcow2 {
                this["backing"] = node;
            }
            node = this;
        }
        node["node-name"] = NODE.into();
        node
    }
}

/// What the disk is called in the process.
const NODE: &str = "disk";

impl Service for Daemon {
    fn start(&self) -> Result<DeviceProcess, ServiceError> {
        let (listener, stream) = connected_listener().map_err(|source| ServiceError::Socket {
            program: self.program.clone(),
            source,
        })?;
        let start = Start {
            kind: &PROGRAM,
            program: self.program.clone(),
            command: self.command(),
            input: listener.into(),
            stream,
            what: self.files[0].path.display().to_string(),
            echo: format!("--blockdev {}: ", self.node()),
        };
        start.serving(Description::of_disk(self.name()))
    }

    fn name(&self) -> String {
        format!("{} of {}", PROGRAM.name, self.files[0].path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(read_only: bool) -> Daemon {
        let file = |path: &str, is_qcow2| ImageFile {
            path: path.into(),
            is_qcow2,
        };
        let files = vec![file("/a", true), file("/b", true), file("/c", false)];
        Daemon::new(
            files,
            read_only,
            Some(Path::new("/proc/self/exe")),
            Sandbox::On,
        )
        .unwrap()
    }

    #[test]
    fn every_file_is_stated_and_only_the_first_is_written() {
        let node = daemon(false).node();
        let files = [&node, &node["backing"], &node["backing"]["backing"]];
        for (file, (name, driver, read_only)) in files.into_iter().zip([
            ("/a", "qcow2", false),
            ("/b", "qcow2", true),
            ("/c", "raw", true),
        ]) {
            assert_eq!(file["file"]["filename"], name);
            assert_eq!(file["driver"], driver);
            assert_eq!(
                [&file["read-only"], &file["file"]["read-only"]],
                [read_only; 2]
            );
        }
        let alone = Daemon {
            files: daemon(true).files[..1].to_vec(),
            ..daemon(true)
        };
        let node = alone.node();
        // Without a word about it, the process would look into the header.
        assert_eq!(node.get("backing"), Some(&Value::Null));
        assert_eq!([&node["read-only"], &node["file"]["read-only"]], [true; 2]);
    }
}
