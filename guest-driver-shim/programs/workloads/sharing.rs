//! Two guests share memory: VM 0 exports, VM 1 imports read-only and read-write. What is allowed
//! works and is verified by the other side; what is not is refused; and a fault of one is nothing
//! to the other.
mod exporter;
mod importer;
mod mail;

use crate::platform::Machine;

/// Bytes of each shared allocation.
const SHARED_BYTES: u64 = 1 << 20;
/// What the importer flips in the pattern where it may write.
const ANSWER_MASK: u32 = 0xffff_ffff;

/// One CPU's part.
pub fn run(machine: &Machine) {
    assert!(
        machine.vms() >= 2,
        "the guest 'sharing' needs two VMs and has {}: run it with --vms 2",
        machine.vms()
    );
    if machine.cpu() != 0 {
        return;
    }
    match machine.vm() {
        0 => exporter::run(machine),
        1 => importer::run(machine),
        // More VMs than two have nothing to do with each other.
        _ => {}
    }
}
