//! Virtio devices whose requests are executed outside of this process: by another process
//! ([`super::vhost_user`]) or by the host's kernel ([`super::vhost_kernel`]).

use std::os::unix::net::UnixStream;

use vmm_sys_util::eventfd::EventFd;

use super::ring::RingPlace;
use super::vhost_user::{Description, ProcessError};
use crate::memory::RamView;

mod job;

pub(super) use job::start;

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
    -> Result<(), ProcessError>;

    /// Takes queues back, by their numbers. Afterwards the back end touches no guest memory.
    ///
    /// # Errors
    /// Why it may still do so; it is then given up.
    fn stop(&mut self, queues: &[usize]) -> Result<(), ProcessError>;

    /// Returns the connection whose end is that of the back end, if there is one.
    fn connection(&self) -> Option<&UnixStream>;

    /// Makes sure that the back end touches no guest memory, because it is given up.
    fn give_up(&mut self);
}
