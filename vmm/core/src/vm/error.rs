//! Why a VM cannot be created.

use std::io;

use causeway_mediator::OpenError;
use causeway_mediator::host::RamError;
use causeway_memory::MemoryError;

use super::attach::AttachError;
use super::config::ConfigError;
use crate::bus::BusError;
use crate::device::FunctionError;
use crate::kvm::CallError;
use crate::linux;
use crate::loader::LoadError;
use crate::memory::RamCreateError;
use crate::numa::VisitError;
use crate::passthrough::PassThroughError;
use crate::pci::LayoutError;
use crate::statistics::StatisticsError;
use crate::virtio::OutsideError;
use crate::virtio::VirtioError;

/// Why a VM cannot be created. Anything already created for it has been freed.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// The caller wants no VM any more ([`Vm::new_unless`](super::Vm::new_unless)).
    #[error("the creation of the VM was interrupted")]
    Interrupted,
    /// The VM's configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Guest RAM cannot be created.
    #[error(transparent)]
    Memory(#[from] RamCreateError),
    /// The kernel refuses to move threads and memory to the VM's NUMA node.
    #[error(transparent)]
    Node(#[from] VisitError),
    /// The image of the bare guest cannot be loaded.
    #[error("cannot load the guest image")]
    Image(#[from] LoadError),
    /// The Linux kernel or its initramfs cannot be loaded.
    #[error("cannot load the guest's operating system")]
    Linux(#[from] linux::SetupError),
    /// A system call failed, in most cases an ioctl of KVM.
    #[error("KVM cannot create the VM")]
    Kvm(#[from] CallError),
    /// KVM's statistics of the VM cannot be read.
    #[error("cannot read KVM's statistics of the VM")]
    Statistics(#[from] StatisticsError),
    /// The tables that a bare guest needs do not fit into guest memory.
    #[error(
        "guest memory has no room for the tables that the guest needs to boot: give it more with \
         --memory"
    )]
    Boot(#[from] RamError),
    /// The CPU has too few physical address bits for the addresses of the devices.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// This process has no free address range for the aperture.
    #[error(
        "cannot reserve {bytes} bytes of this process's addresses for the guest's aperture (BAR 2)"
    )]
    Aperture {
        /// Size of the aperture in bytes.
        bytes: u64,
        /// Why the address range cannot be reserved.
        source: MemoryError,
    },
    /// Two devices need the same addresses.
    #[error("two devices of the VM need the same addresses")]
    Bus(#[from] BusError),
    /// KVM has too few memory slots for the apertures of several GPUs.
    #[error(
        "this KVM gives a VM {slots} memory slots, and {gpus} GPUs need {wanted}: use Linux 5.12 or \
         later, or give the VM one GPU"
    )]
    Slots {
        /// Memory slots of a VM.
        slots: u32,
        /// GPUs of the VM.
        gpus: u32,
        /// Memory slots that they need.
        wanted: u32,
    },
    /// PCI bus 0 has no place for the devices of the VM.
    #[error("the guest's PCI bus has no place left for a GPU: give the VM fewer disks or devices")]
    Room,
    /// The mediator does not open a session for the guest.
    #[error("cannot open a GPU session for the guest")]
    Session {
        /// Index of the GPU among those of the VM.
        gpu: usize,
        /// Why not.
        source: OpenError,
    },
    /// The Causeway function cannot be created.
    #[error("cannot create the guest's Causeway device")]
    Function(#[from] FunctionError),
    /// A virtio device cannot be created.
    #[error("cannot create the guest's virtio devices")]
    Virtio(#[from] VirtioError),
    /// The process that is to serve a virtio device does not.
    #[error("cannot connect a device of the guest to the process that serves it")]
    Process(#[from] OutsideError),
    /// An optional device cannot be added.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A device of the host cannot be passed through.
    #[error("cannot pass the devices that --vfio names through to the guest")]
    PassThrough(#[from] PassThroughError),
    /// The interrupt of the serial port cannot be created.
    #[error("cannot create the interrupt of the guest's serial port")]
    Interrupt(#[source] io::Error),
    /// The event that announces the VM's end cannot be created.
    #[error("cannot create the eventfd that signals the end of the VM")]
    Event(#[source] io::Error),
}
