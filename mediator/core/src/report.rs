//! Reports of sessions: what a VMM shows while they run, and when they have ended.

use causeway_protocol::{message, packet};

use crate::quota::Resource;
use crate::rights::{GrantReport, Rights};
use crate::session_inner::SessionInner;
use crate::statistics::{Activity, Statistics};

/// What a session has done so far, for the report that a VMM shows or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionReport {
    /// Number of the session in its mediator, counted from 1.
    pub session: u64,
    /// Name that the VMM gave the session.
    pub name: String,
    /// Values of all statistics of the session.
    pub statistics: Statistics,
    /// How many control messages were executed or refused, indexed by opcode.
    pub messages: [u64; message::Opcode::SLOTS],
    /// How many packets were executed, indexed by opcode.
    pub packets: [u64; packet::Opcode::SLOTS],
    /// What it has exported and imported.
    pub grants: GrantReport,
    /// The fault that lost the session; `None` if it is not lost.
    pub fault: Option<String>,
    /// The worker process that holds the session; `None` if the session is in the VMM's process.
    pub worker: Option<WorkerReport>,
}

/// What a report says about the worker process that holds a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerReport {
    /// Resident memory of the process in bytes, as last measured. Guest RAM and GPU memory are not
    /// included.
    pub rss_bytes: u64,
    /// How many times the VMM has started a new worker process for this session, because the old
    /// one was lost or unusable. Attempts that failed are counted too.
    pub restarts: u64,
    /// Additional data for the report: at most one entry for each worker process that the session
    /// has had. The program that runs as the worker chooses the content and its format.
    pub supplements: Vec<Vec<u8>>,
}

// By hand: arrays of more than 32 elements have no default.
impl Default for SessionReport {
    fn default() -> Self {
        Self {
            session: 0,
            name: String::new(),
            statistics: Statistics::default(),
            messages: [0; message::Opcode::SLOTS],
            packets: [0; packet::Opcode::SLOTS],
            grants: GrantReport::default(),
            fault: None,
            worker: None,
        }
    }
}

impl SessionReport {
    /// Returns the report of a session that has done nothing yet, with number `session` and name
    /// `name`.
    pub fn of(session: u64, name: &str) -> Self {
        Self {
            session,
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the name and the count of each kind of control message that the session has received
    /// at least once.
    pub fn messages_by_name(&self) -> Vec<(&'static str, u64)> {
        let count = |o: &message::Opcode| (o.name(), self.messages[*o as usize]);
        let counts = message::Opcode::ALL.iter().map(count);
        counts.filter(|(_, count)| *count != 0).collect()
    }

    /// Returns the name and the count of each kind of packet that the session has executed at least
    /// once.
    pub fn packets_by_name(&self) -> Vec<(&'static str, u64)> {
        let count = |o: &packet::Opcode| (o.name(), self.packets[*o as usize]);
        let counts = packet::Opcode::ALL.iter().map(count);
        counts.filter(|(_, count)| *count != 0).collect()
    }

    /// Returns this report, with the statistics and counts of `earlier` added. `earlier` is the
    /// report of an earlier session of the same guest. Number, name, fault and worker stay those of
    /// this report.
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
    /// Returns the session's statistics and whether it is lost. Does not lock the session's state,
    /// so that a monitor does not delay the guest's work.
    pub fn activity(&self) -> Activity {
        Activity {
            statistics: self.statistics(),
            lost: self.status.lost(),
        }
    }

    /// Returns what the session has done so far.
    pub fn report(&self) -> SessionReport {
        let fault = self.generation().fault();
        SessionReport {
            session: self.id,
            name: self.name.clone(),
            statistics: self.statistics(),
            messages: self.counters.by_message(),
            packets: self.counters.by_packet(),
            grants: self.grants.report(),
            fault: fault.map(|fault| fault.to_string()),
            worker: None,
        }
    }

    /// Returns the rights that the session has given and has.
    pub fn rights(&self) -> Rights {
        self.peers.exchange.rights(self.id)
    }

    fn statistics(&self) -> Statistics {
        let account = &self.account;
        let depth = self.command_buffers.rings.depth();
        let device_bytes = self.backend.attributes().memory_bytes;
        let compute = self.command_buffers.member.compute();
        Statistics {
            memory_used_bytes: account.used(Resource::MemoryBytes),
            memory_peak_bytes: account.peak_memory_bytes(),
            memory_limit_bytes: account.quota().memory_bytes.min(device_bytes),
            weight: compute.weight.unwrap_or(0).into(),
            share_percent: compute.share_percent.unwrap_or(0).into(),
            allocations: account.used(Resource::Allocations),
            command_buffers: account.used(Resource::CommandBuffers),
            queued_units: depth.queued_units,
            queue_units: depth.units,
            ..self.counters.statistics()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_an_idle_session_has_its_number_and_name() {
        let report = SessionReport::of(7, "vm7");
        assert_eq!((report.session, report.name.as_str()), (7, "vm7"));
        assert!(report.messages_by_name().is_empty() && report.packets_by_name().is_empty());
    }

    #[test]
    fn a_report_goes_on_from_that_of_an_earlier_session() {
        let of = |session, name, count| {
            let mut report = SessionReport::of(session, name);
            report.statistics.faults = count;
            report.messages[1] = count;
            report.packets[1] = count;
            report
        };
        let report = of(7, "vm7", 3).after(&of(6, "vm6", 1));
        assert_eq!((report.session, report.name.as_str()), (7, "vm7"));
        let counts = (report.messages[1], report.packets[1]);
        assert_eq!((report.statistics.faults, counts), (4, (4, 4)));
    }
}
