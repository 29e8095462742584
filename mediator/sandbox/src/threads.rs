//! Confinement of threads, in a process that cannot confine itself as a whole: it has threads
//! before it can give up its rights, or some that need more than others.

use std::io;

use landlock::Scope;

use crate::calls::Filter;
use crate::mechanism::{Mechanism, Missing};
use crate::profile::Profile;
use crate::steps::missing;
use crate::{files, limits, privileges};

/// Takes from the calling thread, and from threads that it will start, what a VMM does not need
/// that has started: capabilities, unless `profile` keeps them, starting programs, reaching other
/// processes and the network, and opening any file but those of `profile`. Returns the mechanisms
/// that the host lacks. There is no way back. Costs a few descriptors, until the process ends.
///
/// Code that has taken over a thread can write the memory of the others. So what all of them may is
/// what one of them may: see to it that no thread is left out.
pub fn confine_thread(profile: &Profile) -> Vec<Missing> {
    limits::keep_locking();
    let capabilities = match profile.keeps_capabilities {
        true => Ok(()),
        false => privileges::drop_capabilities(),
    };
    let privileges = privileges::forbid_new();
    let files = restrict_files(profile);
    let calls = Filter::of_vmm(profile, files.is_ok()).install_here();
    let outcomes = [
        (Mechanism::Capabilities, capabilities),
        (Mechanism::NoNewPrivileges, privileges),
        (Mechanism::Files, files),
        (Mechanism::Calls, calls),
    ];
    let outcomes = outcomes.into_iter();
    outcomes
        .filter_map(|(mechanism, outcome)| missing(mechanism, outcome))
        .collect()
}

fn restrict_files(profile: &Profile) -> io::Result<()> {
    // Not signals: a VMM ends its worker processes.
    files::enforce(files::ruleset(profile, Scope::AbstractUnixSocket.into())?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::trial::in_child;

    fn is_refused(outcome: io::Result<impl Sized>) -> io::Result<()> {
        match outcome {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            _ => Err(io::Error::other("it was not refused")),
        }
    }

    #[test]
    fn a_thread_and_those_that_it_starts_are_confined_and_no_others() {
        in_child(|| {
            let confined = || {
                let missing = confine_thread(&Profile::computation());
                let inherited = std::thread::spawn(|| {
                    is_refused(File::open("/"))?;
                    is_refused(std::process::Command::new("/bin/true").status())?;
                    is_refused(std::os::unix::net::UnixDatagram::unbound())
                });
                let inherited = inherited.join().map_err(|_| io::ErrorKind::Other)?;
                inherited.map(|()| missing)
            };
            let missing = std::thread::scope(|scope| scope.spawn(confined).join());
            let missing = missing.map_err(|_| io::ErrorKind::Other)??;
            if let Some(missing) = missing.into_iter().next() {
                return Err(missing.source);
            }
            File::open("/")?;
            std::os::unix::net::UnixDatagram::unbound().map(drop)
        })
        .unwrap();
    }
}
