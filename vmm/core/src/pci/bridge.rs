//! The host bridge, device 0 of bus 0: where a guest's enumeration begins.

use std::sync::Arc;

use causeway_protocol::pci::VENDOR_ID;
use parking_lot::Mutex;

use super::{ConfigAccess, ConfigSpace, Identity};

/// PCI device ID of the host bridge. Causeway chose the ID; it is not registered, nor is the vendor
/// ID.
const HOST_BRIDGE_DEVICE_ID: u16 = 0x0100;

/// Returns the host bridge of a guest's PCI bus: a function without BARs. Linux looks for a
/// function of this class to find out whether there is a PCI bus.
pub fn host_bridge() -> Arc<dyn ConfigAccess> {
    // Class 0x0600 (PCI Code and ID Assignment, 1.7): host bridge. Linux takes mechanism #1 for
    // real only if it finds one of these, a VGA device, or a vendor it knows
    // (arch/x86/pci/direct.c).
    Arc::new(Mutex::new(ConfigSpace::new(Identity {
        vendor: VENDOR_ID,
        device: HOST_BRIDGE_DEVICE_ID,
        revision: 0,
        class: 0x06,
        subclass: 0x00,
    })))
}

impl ConfigAccess for Mutex<ConfigSpace> {
    fn read_config(&self, offset: u8, into: &mut [u8]) {
        self.lock().read(offset, into);
    }

    fn write_config(&self, offset: u8, from: &[u8]) {
        self.lock().write(offset, from);
    }
}
