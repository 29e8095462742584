//! The list of client processes, for monitors.

use std::sync::{Arc, Weak};
use std::time::Instant;

use causeway_mediator::{GuestSession, SessionReport};
use parking_lot::Mutex;

use super::host::ClientHost;
use causeway_publisher::limits::LimitedGuest;
use causeway_publisher::{Guest, Snapshot};

/// A client process. Its weak references are empty after it has disconnected.
struct ServedProcess {
    name: String,
    /// Number of its GPU.
    gpu: u32,
    session: Weak<dyn GuestSession>,
    host: Weak<ClientHost>,
    since: Instant,
}

/// Most reports of sessions that are kept: a program can open any number of them.
const REPORTS_MAX: usize = 4096;

/// What sessions have done that ended, in the order of their ends.
#[derive(Clone, Debug, Default)]
pub struct EndedSessions(Arc<Mutex<Ended>>);

#[derive(Debug, Default)]
struct Ended {
    /// Each with the number of its GPU.
    reports: Vec<(u32, SessionReport)>,
    left_out: u64,
}

impl EndedSessions {
    /// Keeps the report of a session on GPU number `gpu`, if it is among the first 4,096.
    pub fn add(&self, gpu: u32, report: SessionReport) {
        let mut ended = self.0.lock();
        match ended.reports.len() < REPORTS_MAX {
            true => ended.reports.push((gpu, report)),
            false => ended.left_out += 1,
        }
    }

    /// Takes the reports, each with the number of its GPU, and returns them with the number of
    /// sessions whose reports were not kept.
    pub fn take(&self) -> (Vec<(u32, SessionReport)>, u64) {
        let Ended { reports, left_out } = std::mem::take(&mut *self.0.lock());
        (reports, left_out)
    }
}

/// The client processes of the server, for monitors. The server and the thread that answers
/// monitors share this list. Its lock is held only while the list itself is read or changed.
#[derive(Clone, Default)]
pub struct ProcessList(Arc<Mutex<Vec<ServedProcess>>>);

impl ProcessList {
    /// Adds a client process, given by its name and the number of its GPU, with its session and
    /// aperture. Removes the processes that have disconnected.
    pub fn add(
        &self,
        (name, gpu): (&str, u32),
        session: &Arc<dyn GuestSession>,
        host: &Arc<ClientHost>,
    ) {
        let mut list = self.0.lock();
        list.retain(|watched| watched.session.strong_count() != 0);
        list.push(ServedProcess {
            name: name.to_owned(),
            gpu,
            session: Arc::downgrade(session),
            host: Arc::downgrade(host),
            since: Instant::now(),
        });
    }

    /// Returns a snapshot with the current statistics of all client processes. `gpu` is the
    /// server's value of `--gpu`.
    pub fn look(&self, gpu: &str) -> Snapshot {
        type Present = (String, u32, Instant, Arc<dyn GuestSession>, Arc<ClientHost>);
        // Queried without the lock, because a worker process may answer slowly.
        let present: Vec<Present> = {
            let list = self.0.lock();
            let present = |w: &ServedProcess| {
                let (session, host) = (w.session.upgrade()?, w.host.upgrade()?);
                Some((w.name.clone(), w.gpu, w.since, session, host))
            };
            list.iter().filter_map(present).collect()
        };
        let guest = |(name, gpu, since, session, host): Present| Guest {
            gpu_number: gpu,
            rights: (&session.rights()).into(),
            ..Guest::process(name, since, host.usage(), session.activity())
        };
        Snapshot::of("serve", gpu, present.into_iter().map(guest).collect())
    }

    /// Returns the client processes with their sessions.
    pub fn running(&self) -> Vec<LimitedGuest> {
        let list = self.0.lock();
        let present = |process: &ServedProcess| {
            let session = process.session.upgrade()?;
            Some((process.name.clone(), session).into())
        };
        list.iter().filter_map(present).collect()
    }
}
