//! Two guests share memory: VM 0 exports it, and VM 1 imports it read-only and read-write. The
//! tests check that allowed accesses work, that other accesses are refused, and that a fault of one
//! guest does not disturb the other.
mod exporter;
mod importer;
mod mail;

use crate::platform::Machine;

/// Size of each shared allocation in bytes.
const SHARED_BYTES: u64 = 1 << 20;
/// Bits of the pattern that the importer changes in memory that it may write.
const ANSWER_MASK: u32 = 0xffff_ffff;

/// Runs the part of one CPU.
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
        // Further VMs do not share memory.
        _ => {}
    }
}
