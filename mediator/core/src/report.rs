//! Reports of sessions: what a VMM shows while they run, and when they have ended.

use causeway_protocol::{message, packet};

use crate::quota::Resource;
use crate::session_inner::SessionInner;
use crate::statistics::{Activity, Statistics};

/// What a session has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionReport {
    /// Number of the session in its mediator.
    pub session: u64,
    /// Name given by the VMM.
    pub name: String,
    /// What it has counted and has.
    pub statistics: Statistics,
    /// Messages executed or refused, by opcode.
    pub messages: [u64; message::Opcode::SLOTS],
    /// Packets executed, by opcode.
    pub packets: [u64; packet::Opcode::SLOTS],
    /// Why the session is lost, if it is.
    pub fault: Option<String>,
    /// The worker process that holds the session, if one does.
    pub worker: Option<WorkerReport>,
}

/// A worker process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerReport {
    /// Its memory beyond guest RAM and GPU memory when it last answered, in bytes.
    pub rss_bytes: u64,
    /// Times that another worker took over, after the guest had lost its session.
    pub restarts: u64,
    /// What the workers of this session added to their reports.
    pub supplements: Vec<Vec<u8>>,
}

impl SessionReport {
    /// Returns the report of a session that has done nothing yet.
    pub fn of(session: u64, name: &str) -> Self {
        Self {
            session,
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the messages by name, without those that never came.
    pub fn messages_by_name(&self) -> Vec<(&'static str, u64)> {
        let count = |o: &message::Opcode| (o.name(), self.messages[*o as usize]);
        let counts = message::Opcode::ALL.iter().map(count);
        counts.filter(|(_, count)| *count != 0).collect()
    }

    /// Returns the packets by name, without those that never came.
    pub fn packets_by_name(&self) -> Vec<(&'static str, u64)> {
        let count = |o: &packet::Opcode| (o.name(), self.packets[*o as usize]);
        let counts = packet::Opcode::ALL.iter().map(count);
        counts.filter(|(_, count)| *count != 0).collect()
    }

    /// Adds what an earlier session of the same guest has counted.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        let add = |one: u64, other: u64| one.saturating_add(other);
        Self {
            statistics: self.statistics.after(&earlier.statistics),
            messages: std::array::from_fn(|i| add(self.messages[i], earlier.messages[i])),
            packets: std::array::from_fn(|i| add(self.packets[i], earlier.packets[i])),
            ..self
        }
    }
}

impl SessionInner {
    /// Returns what the session is doing. Takes no lock that the session's work takes, other than
    /// the one on the list of its rings.
    pub fn activity(&self) -> Activity {
        Activity {
            statistics: self.statistics(),
            lost: self.status.lost(),
        }
    }

    /// Returns what the session has done so far.
    pub fn report(&self) -> SessionReport {
        SessionReport {
            session: self.id,
            name: self.name.clone(),
            statistics: self.statistics(),
            messages: self.counters.by_message(),
            packets: self.counters.by_packet(),
            fault: self
                .lock()
                .generation
                .fault()
                .map(|fault| fault.to_string()),
            worker: None,
        }
    }

    fn statistics(&self) -> Statistics {
        let account = &self.account;
        let depth = self.command_buffers.rings.depth();
        let device_bytes = self.backend.attributes().memory_bytes;
        Statistics {
            memory_used_bytes: account.used(Resource::MemoryBytes),
            memory_peak_bytes: account.peak_memory_bytes(),
            memory_limit_bytes: account.quota().memory_bytes.min(device_bytes),
            allocations: account.used(Resource::Allocations),
            command_buffers: account.used(Resource::CommandBuffers),
            queued_units: depth.queued_units,
            queue_units: depth.units,
            ..self.counters.statistics()
        }
    }
}
