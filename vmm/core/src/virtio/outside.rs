//! Virtio devices whose requests are executed outside of this process: by another process
//! ([`super::vhost_user`]) or by the host's kernel ([`super::vhost_kernel`]).

use std::os::unix::net::UnixStream;
use std::time::Duration;

use vhost::VringConfigData;
use vmm_sys_util::eventfd::EventFd;

use super::device::Kind;
use super::ring::{QUEUE_SIZE, RingPlace};
use crate::memory::RamView;

mod job;

pub(super) use job::start;

/// The usual [`Description::patience`].
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A virtio device as the VMM presents it to the guest while its requests are executed elsewhere.
#[derive(Clone, Debug)]
pub struct Description {
    /// What executes them, as messages call it, such as `virtiofsd of /srv`.
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
    /// The process says what the configuration structure contains, once, when it is connected to;
    /// `configuration` says how long it is.
    pub asks_configuration: bool,
    /// Number of queues of the device, 1 to [`super::QUEUES_MAX`].
    pub queues: u16,
    /// How long a process may take for its answers to one step: connect, begin, or end.
    pub patience: Duration,
}

impl Description {
    /// Returns what the process is called, and how long a step may take.
    pub(super) fn limit(&self) -> (&str, Duration) {
        (&self.process, self.patience)
    }
}

/// Why a process does not execute the requests of a device.
#[derive(Debug, thiserror::Error)]
pub enum OutsideError {
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
    /// The process does not say what the device's configuration structure contains.
    #[error(
        "{process} cannot say how large the device is, or what else drivers read of it: use a \
         newer one"
    )]
    Configuration {
        /// What the process is called.
        process: String,
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

/// A queue that is handed over.
pub struct Queue {
    /// Number of the queue.
    pub number: usize,
    /// Where it lies in guest RAM.
    pub place: RingPlace,
    /// Signalled by KVM when the driver notifies the queue.
    pub kick: EventFd,
    /// Signalled by the back end to interrupt the guest.
    pub call: EventFd,
}

impl Queue {
    /// Returns where the queue lies, as the back end is told, which knows the guest-physical address
    /// zero as `base`.
    pub fn addresses(&self, base: u64) -> VringConfigData {
        let [table, driver, device] = self.place.parts.map(|address| base + address);
        VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: self.place.size,
            flags: 0,
            desc_table_addr: table,
            used_ring_addr: device,
            avail_ring_addr: driver,
            log_addr: None,
        }
    }
}

/// What executes the requests of a device outside of this process.
pub trait BackEnd: Send {
    /// Returns the device as the guest sees it.
    fn description(&self) -> &Description;

    /// Returns the features that the guest is offered, with those of queues.
    fn features(&self) -> u64;

    /// Hands over `queues` of a driver that has accepted `features`. Guest RAM must stay mapped
    /// until they are taken back, or this value is dropped.
    ///
    /// # Errors
    /// Why the back end does not serve them; it is then given up.
    fn serve(&mut self, queues: &[Queue], features: u64, ram: &RamView)
    -> Result<(), OutsideError>;

    /// Takes queues back, by their numbers. Afterwards the back end touches no guest memory.
    ///
    /// # Errors
    /// Why it may still do so; it is then given up.
    fn stop(&mut self, queues: &[usize]) -> Result<(), OutsideError>;

    /// Returns the connection whose end is that of the back end, if there is one.
    fn connection(&self) -> Option<&UnixStream>;

    /// Makes sure that the back end touches no guest memory, because it is given up.
    fn give_up(&mut self);
}
