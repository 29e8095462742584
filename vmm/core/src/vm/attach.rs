//! Optional devices: what puts them on a VM's buses, and what they learn of the VM.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::aperture::Aperture;
use crate::bus::{BusError, MmioBus, PortBus};
use crate::counters::ExitKey;
use crate::exit_counts::VmExits;
use crate::memory::GuestRam;
use crate::outcome::VmResult;

/// A set of optional devices, such as the test device, that can be added to a VM through
/// [`super::VmConfig::attached`].
///
/// All methods may be called from any thread.
pub trait Attach: Send + Sync + Debug {
    /// Adds the devices to the buses of one VM. [`super::Vm::new`] calls this once, after it has
    /// added the VM's own devices.
    ///
    /// # Errors
    /// [`AttachError::Bus`] if another device has the addresses, [`AttachError::Devices`] if a
    /// device cannot be created.
    fn attach(&self, bay: &Bay<'_>) -> Result<(), AttachError>;

    /// Makes every access of the guest that waits in these devices complete. The VM calls this
    /// after it has set [`Bay::stop`].
    fn wake(&self) {}

    /// Tells the devices that the VM has come to its end. Its virtual CPUs may still run: the host
    /// interrupts them after this call. `exit` is the exit by which the guest ended the VM, which
    /// KVM and the VMM have counted; `None` if the host ends the VM. Several virtual CPUs, and the
    /// host, may each end the VM and call this function. The first call counts.
    fn ending(&self, _exit: Option<ExitKey>) {}

    /// Tells the devices that the VM ended with `result`. The event loop calls this once.
    fn vm_ended(&self, _result: &VmResult) {}

    /// Returns where and why the guest failed, as a clause such as "at main.rs:7: sum is 3"; `None`
    /// if the guest has not told these devices. The clause becomes [`VmResult::Fail::reason`].
    fn failure(&self) -> Option<String> {
        None
    }
}

/// The parts of a VM to which [`Attach::attach`] can connect devices.
#[derive(Clone, Copy)]
pub struct Bay<'a> {
    /// The VM's bus of I/O ports.
    pub ports: &'a PortBus,
    /// The VM's bus of guest-physical addresses.
    pub mmio: &'a MmioBus,
    /// The guest's RAM. The guest can change its content at any time.
    pub ram: &'a Arc<GuestRam>,
    /// The guest's aperture, through which a device can access memory that the guest has mapped
    /// there.
    pub aperture: &'a Arc<Aperture>,
    /// Counters of the VM's exits: KVM's and the VMM's own.
    pub exits: &'a VmExits,
    /// Frequency of the guest's time stamp counter in kHz.
    pub tsc_khz: u32,
    /// Becomes true when the VM must end. A device that keeps an access of the guest waiting must
    /// then complete the access soon.
    pub stop: &'a Arc<AtomicBool>,
}

debug_by_name!(Bay<'_>);

/// Why optional devices cannot be added to a VM.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Another device of the VM has the addresses or ports already.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A device cannot be created.
    #[error("cannot create an additional device of the VM, such as one of a benchmark")]
    Devices(#[source] Box<dyn Error + Send + Sync>),
}
