//! Capabilities, and privileges of programs.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Gives up all capabilities. With [`forbid_new`], the process gets none again.
pub fn drop_capabilities() -> io::Result<()> {
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel has no capability of this number, and of no higher one.
            Err(Errno::INVAL) => break,
            // Without CAP_SETPCAP: what can be gained is decided by `no_new_privs`.
            Err(Errno::PERM) => break,
            Err(e) => return Err(e.into()),
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, none)?)
}

/// Makes programs that this process starts have no more privileges than it has.
pub fn forbid_new() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}
