//! Who executes the requests of a virtio device: a thread of this process, another process, or the
//! host's kernel.

use std::fmt;
use std::io;
use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

use super::device::{Kind, TRANSPORT_FEATURES, VirtioDevice};
use super::outside::{self, BackEnd, Description, OutsideError};
use super::thread::{DeviceThread, Shared};
use super::vhost_kernel::KernelDevice;
use super::vhost_user::DeviceProcess;
use super::worker;

/// A virtio device with what executes the requests of its guest.
pub enum Device {
    /// A thread of this process does.
    Here(Box<dyn VirtioDevice>),
    /// Another process does.
    Process(Box<DeviceProcess>),
    /// The host's kernel does.
    Kernel(KernelDevice),
}

debug_by_name!(Device);

/// Starts, or finds, what executes the requests of one device in several VMs.
pub trait OutsideSource: fmt::Debug + Send + Sync {
    /// Starts or opens one for each of `vms` VMs, and connects to it. Called once, while this
    /// process may still start others.
    ///
    /// # Errors
    /// Why there is a process too few. Those that were started end.
    fn prepare(&self, vms: u32) -> Result<(), OutsideError>;

    /// Returns the device of one VM. A VM asks for it once, when it is built.
    ///
    /// # Errors
    /// Why there is none.
    fn connect(&self) -> Result<Device, OutsideError>;
}

impl Device {
    /// Returns what says how the guest sees the device.
    fn described(&self) -> Result<&dyn VirtioDevice, &Description> {
        match self {
            Self::Here(device) => Ok(&**device),
            Self::Process(process) => Err(process.description()),
            Self::Kernel(kernel) => Err(kernel.back_end().description()),
        }
    }

    /// Returns the device's type.
    pub(super) fn kind(&self) -> Kind {
        let kind = |it: &Description| it.kind;
        self.described().map_or_else(kind, VirtioDevice::kind)
    }

    /// Returns all feature bits that the device offers.
    pub(super) fn features(&self) -> u64 {
        match self {
            Self::Here(device) => device.features() | TRANSPORT_FEATURES,
            Self::Process(process) => process.features(),
            Self::Kernel(kernel) => kernel.back_end().features(),
        }
    }

    /// Returns the device's configuration structure as the function has it first.
    pub(super) fn configuration(&self) -> &[u8] {
        match self.described() {
            Ok(device) => device.configuration(),
            Err(description) => &description.configuration,
        }
    }

    /// Returns the device's number of queues.
    pub(super) fn queues(&self) -> u16 {
        let queues = |it: &Description| it.queues;
        self.described().map_or_else(queues, VirtioDevice::queues)
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
            Self::Here(device) => {
                if let Some(notice) = device.notice() {
                    let guest = Arc::downgrade(&shared);
                    notice.connect(move |first| {
                        if let Some(guest) = guest.upgrade() {
                            guest.configuration.change(first, &guest.interrupts);
                        }
                    });
                }
                worker::start(thread, device, kicks, shared)
            }
            Self::Process(process) => outside::start(thread, process, kicks, shared),
            Self::Kernel(kernel) => outside::start(thread, kernel.into_back_end(), kicks, shared),
        }
    }
}
