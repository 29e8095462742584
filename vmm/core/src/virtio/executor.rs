//! Who executes the requests of a virtio device: a thread of this process, or another process.

use std::io;
use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

use super::device::{Kind, TRANSPORT_FEATURES, VirtioDevice};
use super::thread::{DeviceThread, Shared};
use super::vhost_user::{self, DeviceProcess};
use super::worker;

/// A virtio device with what executes the requests of its guest.
pub enum Device {
    /// A thread of this process does.
    Here(Box<dyn VirtioDevice>),
    /// Another process does.
    Process(Box<DeviceProcess>),
}

debug_by_name!(Device);

impl Device {
    /// Returns the device's type.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Here(device) => device.kind(),
            Self::Process(process) => process.description().kind,
        }
    }

    /// Returns all feature bits that the device offers.
    pub(super) fn features(&self) -> u64 {
        match self {
            Self::Here(device) => device.features() | TRANSPORT_FEATURES,
            Self::Process(process) => process.features(),
        }
    }

    /// Returns the device's configuration structure, which is constant.
    pub(super) fn configuration(&self) -> &[u8] {
        match self {
            Self::Here(device) => device.configuration(),
            Self::Process(process) => &process.description().configuration,
        }
    }

    /// Returns the device's number of queues.
    pub(super) fn queues(&self) -> u16 {
        match self {
            Self::Here(device) => device.queues(),
            Self::Process(process) => process.description().queues,
        }
    }

    /// Prepares the device's thread, called `thread`. Signals of `kicks[n]` say that there are
    /// requests in queue n.
    ///
    /// # Errors
    /// The kernel's error if no descriptor is left.
    pub(super) fn start(
        self,
        thread: &str,
        kicks: &[EventFd],
        shared: Arc<Shared>,
    ) -> io::Result<DeviceThread> {
        match self {
            Self::Here(device) => worker::start(thread, device, kicks, shared),
            Self::Process(process) => vhost_user::start(thread, *process, kicks, shared),
        }
    }
}
