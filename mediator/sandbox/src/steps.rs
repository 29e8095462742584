//! The two steps in which a process confines itself.

use std::io;

use crate::calls::Filter;
use crate::mechanism::{Mechanism, Missing};
use crate::profile::Profile;
use crate::{files, limits, namespaces, privileges};

/// Takes the first step: everything but the filter of system calls. Returns the mechanisms that the
/// host lacks. Call this before the process has threads: they would keep what this one gives up.
pub fn enter(profile: &Profile) -> Vec<Missing> {
    limits::keep_locking();
    let in_namespace = namespaces::enter_user();
    let limited = limits::limit().and_then(|()| match in_namespace {
        Ok(()) => limits::limit_threads(),
        Err(_) => Ok(()),
    });
    // In this order: the other namespaces take capabilities of the user namespace, and Landlock
    // takes `no_new_privs`.
    let outcomes = [
        (Mechanism::UserNamespace, in_namespace),
        (Mechanism::NetworkNamespace, namespaces::enter_network()),
        (Mechanism::IpcNamespace, namespaces::enter_ipc()),
        (Mechanism::Limits, limited),
        (Mechanism::Capabilities, privileges::drop_capabilities()),
        (Mechanism::NoNewPrivileges, privileges::forbid_new()),
        (Mechanism::Files, files::restrict(profile)),
    ];
    let outcomes = outcomes.into_iter();
    outcomes
        .filter_map(|(mechanism, outcome)| missing(mechanism, outcome))
        .collect()
}

/// Takes the second step: from now on, all threads of this process can make the system calls of
/// `profile` only. A call that nobody expected ends the process, and a line on standard error names
/// it. Returns the filter as missing if the kernel does not take it.
pub fn filter(profile: &Profile) -> Option<Missing> {
    missing(Mechanism::Calls, Filter::new(profile).install())
}

pub(crate) fn missing(mechanism: Mechanism, outcome: io::Result<()>) -> Option<Missing> {
    let source = outcome.err()?;
    Some(Missing { mechanism, source })
}
