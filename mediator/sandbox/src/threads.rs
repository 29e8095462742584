//! Confinement of threads, in a process that keeps its rights otherwise.

use std::fmt;
use std::io;

use landlock::{RulesetCreated, Scope};

use crate::calls::Filter;
use crate::mechanism::{Mechanism, Missing};
use crate::profile::Profile;
use crate::steps::missing;
use crate::{files, privileges};

/// What threads of a VMM give up that serve guests: starting programs, reaching other processes and
/// the network, and opening any file but those of a profile.
///
/// Code that has taken over such a thread can write the memory of the others, which are not
/// confined. So this is a hurdle, where a process of its own is a wall.
pub struct ThreadSandbox {
    files: io::Result<RulesetCreated>,
    calls: Filter,
}

impl fmt::Debug for ThreadSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadSandbox").finish_non_exhaustive()
    }
}

impl ThreadSandbox {
    /// Prepares the confinement of threads with the files of `profile`. Costs a few descriptors,
    /// until the process ends.
    pub fn new(profile: &Profile) -> Self {
        // Not signals: these threads end worker processes.
        let scopes = Scope::AbstractUnixSocket.into();
        Self {
            files: files::ruleset(profile, scopes),
            calls: Filter::of_guests_threads(profile.folder),
        }
    }

    /// Confines the calling thread, and the threads that it will start. Returns the mechanisms that
    /// the host lacks. There is no way back.
    pub fn enter(&self) -> Vec<Missing> {
        let outcomes = [
            (Mechanism::NoNewPrivileges, privileges::forbid_new()),
            (Mechanism::Files, self.restrict_files()),
            (Mechanism::Calls, self.calls.install_here()),
        ];
        let outcomes = outcomes.into_iter();
        outcomes
            .filter_map(|(mechanism, outcome)| missing(mechanism, outcome))
            .collect()
    }

    fn restrict_files(&self) -> io::Result<()> {
        match &self.files {
            Ok(files) => files::enforce(files.try_clone()?),
            Err(e) => Err(io::Error::other(e.to_string())),
        }
    }
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
            let sandbox = ThreadSandbox::new(&Profile::computation());
            let confined = || {
                let missing = sandbox.enter();
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
