//! Virtio devices whose requests another process of the host executes (vhost-user, as QEMU's
//! documentation of the protocol has it, `docs/interop/vhost-user.rst`).
//!
//! This process keeps the registers, and hands the rest over: guest RAM by its descriptors, each
//! queue's notifications by the eventfd that KVM signals, and its interrupts by the eventfd that
//! KVM turns into a message. So neither a notification nor an interrupt comes to this process.
//!
//! | who waits | for how long |
//! |---|---|
//! | the run's start, for the first messages ([`DeviceProcess::connect`]) | the patience |
//! | a virtual CPU that resets the device, for the process to take queues and let go | twice |
//!
//! The patience is [`Description::patience`].
//!
//! The process gets the event of the MSI-X vector that a queue has when the driver begins, and
//! keeps it: a driver that chooses another vector later, or disables MSI-X, must reset the device
//! before the queue interrupts it there. A queue without a vector interrupts by way of this
//! process, which follows such changes.
//!
//! A process that does not answer in time, or ends, is given up: the device asks for a reset until
//! the VM ends. The VM goes on.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use vhost::vhost_user::Frontend;

use super::device::Kind;
use super::executor::Device;
use conversation::{greet, within_limit};

mod conversation;
mod devices;

/// The usual [`Description::patience`].
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A virtio device as the VMM presents it to the guest while another process executes its requests.
#[derive(Clone, Debug)]
pub struct Description {
    /// What the process is called in messages, such as `virtiofsd of /srv`.
    pub process: String,
    /// The device's type.
    pub kind: Kind,
    /// Feature bits that the guest may be offered if the process has them, 0 to 23.
    pub features: u64,
    /// Feature bits that the guest is offered by this process, and of which the back end does not
    /// learn: those that say what the configuration structure has, and what a tap device does.
    pub own_features: u64,
    /// The device's configuration structure.
    pub configuration: Vec<u8>,
    /// Number of queues of the device, 1 to [`super::QUEUES_MAX`].
    pub queues: u16,
    /// How long the process may take for its answers to one step: connect, begin, or end.
    pub patience: Duration,
}

impl Description {
    /// Returns what the process is called, and how long a step may take.
    fn limit(&self) -> (&str, Duration) {
        (&self.process, self.patience)
    }
}

/// Why a process does not execute the requests of a device.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The connection failed, or an answer is not of the protocol.
    #[error("{process} does not answer as a vhost-user back end must, at {step}")]
    Protocol {
        /// What the process is called.
        process: String,
        /// The message that failed, by the protocol's name.
        step: &'static str,
        /// What the protocol's crate says.
        source: vhost::Error,
    },
    /// The process did not answer in time.
    #[error("{process} did not answer {step} for {limit:?}")]
    Silent {
        /// What the process is called.
        process: String,
        /// The message that failed, by the protocol's name.
        step: &'static str,
        /// How long this process waited.
        limit: Duration,
    },
    /// The process lacks a feature without which there is no device.
    #[error(
        "{process} refuses virtio's version 1 (it offers the features {offered:#x}): use a newer \
         one"
    )]
    OldVersion {
        /// What the process is called.
        process: String,
        /// The feature bits that it offers.
        offered: u64,
    },
    /// The process has too few queues.
    #[error("{process} has {offered} queues, but the device needs {queues}")]
    Queues {
        /// What the process is called.
        process: String,
        /// Number of queues that it has.
        offered: u64,
        /// Number of queues that the device needs.
        queues: u16,
    },
    /// The host refuses a descriptor or a thread.
    #[error("cannot create a file descriptor or thread for {process}")]
    Host {
        /// What the process is called.
        process: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The host's kernel does not serve the device.
    #[error("{device} refuses {step}")]
    Kernel {
        /// What the device is called.
        device: String,
        /// What failed: a file that was to be opened, or an operation by the kernel's name.
        step: &'static str,
        /// The kernel's error.
        source: vhost::Error,
    },
    /// The process does not start.
    #[error(transparent)]
    Start(Box<dyn std::error::Error + Send + Sync>),
    /// The process has ended, or has closed the connection.
    #[error("{0} has ended")]
    Ended(String),
}

/// Starts, or finds, what executes the requests of one device in several VMs.
pub trait ProcessSource: fmt::Debug + Send + Sync {
    /// Starts a process for each of `vms` VMs, and connects to it. Called once, while this process
    /// may still start others.
    ///
    /// # Errors
    /// Why there is a process too few. Those that were started end.
    fn prepare(&self, vms: u32) -> Result<(), ProcessError>;

    /// Returns the device of one VM. A VM asks for it once, when it is built.
    ///
    /// # Errors
    /// Why there is none.
    fn connect(&self) -> Result<Device, ProcessError>;
}

/// The connection to a process that executes the requests of one virtio device.
pub struct DeviceProcess {
    description: Description,
    frontend: Frontend,
    /// The same connection, to notice its end and to end it.
    stream: UnixStream,
    /// Features that the guest is offered.
    offered: u64,
    /// Features that the process has beside them: none, or that of the protocol.
    own: u64,
    /// Dropped with the device, or when the process is given up.
    life: Option<Box<dyn Send>>,
}

debug_by_name!(DeviceProcess);

impl DeviceProcess {
    /// Returns the device that the process at the other end of `stream` serves. `life` is dropped
    /// with the device, or as soon as the process is given up. It ends the process if it can,
    /// because a process that does not answer may go on to write to guest memory.
    ///
    /// # Errors
    /// [`ProcessError`] if the process does not answer in time, or lacks what the
    /// device needs.
    pub fn connect(
        stream: UnixStream,
        description: Description,
        life: Box<dyn Send>,
    ) -> Result<Self, ProcessError> {
        let process = &description.process;
        let host = |source| ProcessError::Host {
            process: process.clone(),
            source,
        };
        let other = stream.try_clone().map_err(host)?;
        let mut frontend = Frontend::from_stream(other, description.queues.into());
        let (offered, own) = within_limit(&stream, description.limit(), |at| {
            greet(&mut frontend, &description, at)
        })?;
        Ok(Self {
            description,
            frontend,
            stream,
            offered,
            own,
            life: Some(life),
        })
    }
}

#[cfg(test)]
mod tests;
