//! Optional devices: what puts them on a VM's buses, and what they learn of the VM.

use std::error::Error;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::aperture::Aperture;
use crate::bus::{BusError, MmioBus, PortBus};
use crate::exit_counts::VmExits;
use crate::memory::GuestRam;
use crate::outcome::VmResult;

/// One or more devices that are not a VM's own. [`super::VmConfig::attached`] lists them.
///
/// All methods may be called from any thread.
pub trait Attach: Send + Sync + Debug {
    /// Puts the devices on the buses of one VM. [`super::Vm::new`] calls this once, after it has
    /// put its own devices there.
    ///
    /// # Errors
    /// [`AttachError::Bus`] if the addresses are taken, [`AttachError::Devices`] if a device cannot
    /// be made.
    fn attach(&self, bay: &Bay<'_>) -> Result<(), AttachError>;

    /// Wakes every access that waits in these devices. The VM calls this after it has set
    /// [`Bay::stop`].
    fn wake(&self) {}

    /// Learns how the VM ended. The event loop calls this once, when the VM has ended.
    fn vm_ended(&self, _result: &VmResult) {}

    /// Returns where and why the guest failed, if the guest has told these devices, as a clause
    /// such as "at main.rs:7: sum is 3". It becomes [`VmResult::Fail::reason`].
    fn failure(&self) -> Option<String> {
        None
    }
}

/// The places of a VM to which [`Attach`] can connect devices.
#[derive(Clone, Copy)]
pub struct Bay<'a> {
    /// I/O ports.
    pub ports: &'a PortBus,
    /// Guest-physical addresses.
    pub mmio: &'a MmioBus,
    /// RAM of the guest, which writes it at any time.
    pub ram: &'a Arc<GuestRam>,
    /// The aperture, and the memory that the guest has mapped there.
    pub aperture: &'a Arc<Aperture>,
    /// Counts of the VM's exits, by KVM and by the VMM.
    pub exits: &'a VmExits,
    /// Frequency of the guest's time stamp counter in kHz.
    pub tsc_khz: u32,
    /// Set when the VM is to end: an access that is under way must then return soon.
    pub stop: &'a Arc<AtomicBool>,
}

impl fmt::Debug for Bay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bay").finish_non_exhaustive()
    }
}

/// Why devices cannot be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Another device has the addresses.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A device cannot be made.
    #[error("cannot make the devices to attach")]
    Devices(#[source] Box<dyn Error + Send + Sync>),
}
