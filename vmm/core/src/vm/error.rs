//! Why a VM cannot be created.

use std::io;

use causeway_mediator::OpenError;
use causeway_mediator::host::RamError;
use causeway_memory::MemoryError;

use super::attach::AttachError;
use super::config::ConfigError;
use crate::bus::BusError;
use crate::device::FunctionError;
use crate::linux;
use crate::loader::LoadError;
use crate::memory::RamCreateError;
use crate::passthrough::PassThroughError;
use crate::pci::LayoutError;
use crate::statistics::StatisticsError;
use crate::virtio::VirtioError;

/// Why a VM cannot be created. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Guest memory cannot be created.
    #[error(transparent)]
    Memory(#[from] RamCreateError),
    /// The image.
    #[error("cannot load the guest image")]
    Image(#[from] LoadError),
    /// The operating system.
    #[error("cannot load the operating system")]
    Linux(#[from] linux::SetupError),
    /// KVM refused a call.
    #[error("KVM refuses {call}")]
    Kvm {
        /// Name of the ioctl, or of what was made with it.
        call: &'static str,
        /// The error.
        source: io::Error,
    },
    /// No statistics.
    #[error("cannot read KVM's statistics")]
    Statistics(#[from] StatisticsError),
    /// Boot tables do not fit.
    #[error("guest memory has no room for boot tables")]
    Boot(#[from] RamError),
    /// No room for the device.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// No aperture.
    #[error("cannot reserve addresses for an aperture of {bytes} bytes")]
    Aperture {
        /// Size.
        bytes: u64,
        /// Why.
        source: MemoryError,
    },
    /// Two devices want the same addresses.
    #[error("two devices of the VM need the same addresses")]
    Bus(#[from] BusError),
    /// No session.
    #[error("cannot open a GPU session for the guest")]
    Session(#[from] OpenError),
    /// The Causeway function.
    #[error("cannot put the device into the guest's address space")]
    Function(#[from] FunctionError),
    /// A virtio device.
    #[error("cannot give the guest its virtio devices")]
    Virtio(#[from] VirtioError),
    /// The caller's devices cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A host device cannot be passed through.
    #[error("cannot pass the devices through to the guest")]
    PassThrough(#[from] PassThroughError),
    /// No interrupt.
    #[error("cannot create an interrupt")]
    Interrupt(#[source] io::Error),
    /// No eventfd.
    #[error("cannot create an eventfd")]
    Event(#[source] io::Error),
}
