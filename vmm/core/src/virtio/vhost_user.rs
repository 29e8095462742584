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

use std::os::unix::net::UnixStream;

use vhost::vhost_user::Frontend;

use super::outside::{Description, OutsideError};
use conversation::{greet, within_limit};

mod conversation;
mod devices;

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
    /// [`OutsideError`] if the process does not answer in time, or lacks what the
    /// device needs.
    pub fn connect(
        stream: UnixStream,
        mut description: Description,
        life: Box<dyn Send>,
    ) -> Result<Self, OutsideError> {
        let (process, patience) = (description.process.clone(), description.patience);
        let host = |source| OutsideError::Host {
            process: process.clone(),
            source,
        };
        let other = stream.try_clone().map_err(host)?;
        let mut frontend = Frontend::from_stream(other, description.queues.into());
        let (offered, own) = within_limit(&stream, (&process, patience), |at| {
            greet(&mut frontend, &mut description, at)
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
