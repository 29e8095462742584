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

/// Why a VM cannot be made. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// It cannot be like that.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No guest memory.
    #[error(transparent)]
    Memory(#[from] RamCreateError),
    /// The image.
    #[error("cannot boot this image")]
    Image(#[from] LoadError),
    /// The operating system.
    #[error("cannot boot this system")]
    Linux(#[from] linux::SetupError),
    /// KVM refused a call.
    #[error("KVM refused {call}")]
    Kvm {
        /// Name of the ioctl, or of what was made with it.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// No statistics.
    #[error("KVM's statistics cannot be had")]
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
    #[error("the devices of the VM are in each other's way")]
    Bus(#[from] BusError),
    /// No session.
    #[error("the guest has no GPU")]
    Session(#[from] OpenError),
    /// The Causeway function.
    #[error("cannot put the device into the guest's address space")]
    Function(#[from] FunctionError),
    /// A virtio device.
    #[error("cannot give the guest its virtio devices")]
    Virtio(#[from] VirtioError),
    /// Devices of somebody else's.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Devices of the host's.
    #[error("the guest cannot have the devices that were asked for")]
    PassThrough(#[from] PassThroughError),
    /// No interrupt.
    #[error("cannot create an interrupt")]
    Interrupt(#[source] io::Error),
    /// No eventfd.
    #[error("cannot create an eventfd")]
    Event(#[source] io::Error),
}
