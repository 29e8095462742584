//! What a session has done so far, for reports.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_protocol::{message, packet};

/// What a consumer counts by itself, before others hear of it.
#[derive(Debug, Default)]
pub(crate) struct PacketCounts {
    packets: [u64; packet::Opcode::SLOTS],
    written_bytes: u64,
}

impl PacketCounts {
    /// Counts a packet that was executed, and asked for `written_bytes` bytes to be written.
    pub fn count(&mut self, opcode: packet::Opcode, written_bytes: u64) {
        self.packets[opcode as usize] += 1;
        self.written_bytes = self.written_bytes.saturating_add(written_bytes);
    }
}

/// Counters, written by vCPU and consumer threads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub batches: AtomicU64,
    pub failed_messages: AtomicU64,
    pub sleeps: AtomicU64,
    pub wakeups: AtomicU64,
    pub faults: AtomicU64,
    pub interrupts: AtomicU64,
    pub written_bytes: AtomicU64,
    messages: [AtomicU64; message::Opcode::SLOTS],
    packets: [AtomicU64; packet::Opcode::SLOTS],
}

impl Counters {
    pub fn message(&self, opcode: message::Opcode) {
        self.messages[opcode as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds what a consumer has counted by itself, and empties it.
    pub fn packets(&self, counted: &mut PacketCounts) {
        for (total, counted) in self.packets.iter().zip(&mut counted.packets) {
            if *counted != 0 {
                total.fetch_add(std::mem::take(counted), Ordering::Relaxed);
            }
        }
        if counted.written_bytes != 0 {
            let bytes = std::mem::take(&mut counted.written_bytes);
            self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A session so far: what was asked, what was done, and how often its consumers slept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionReport {
    /// Number of the session in its mediator.
    pub session: u64,
    /// Name given by the VMM.
    pub name: String,
    /// Control batches executed.
    pub batches: u64,
    /// Messages executed or refused, by operation; those that never came are left out.
    pub messages: Vec<(&'static str, u64)>,
    /// Messages that failed.
    pub failed_messages: u64,
    /// Packets executed, by operation; those that never came are left out.
    pub packets: Vec<(&'static str, u64)>,
    /// Kernels launched by packets of their own; those of a replay are not in it.
    pub launches: u64,
    /// Times that a consumer went to sleep.
    pub sleeps: u64,
    /// Times that a doorbell woke a consumer.
    pub doorbell_wakeups: u64,
    /// Faults that ended a command buffer or the session.
    pub faults: u64,
    /// Interrupts raised for fences.
    pub interrupts: u64,
    /// GPU memory in use, in bytes.
    pub memory_used_bytes: u64,
    /// Most GPU memory ever in use, in bytes.
    pub memory_peak_bytes: u64,
    /// What the session was lost to, if it was.
    pub fault: Option<String>,
    /// The process that held the session, if it was one of its own.
    pub worker: Option<WorkerReport>,
}

impl SessionReport {
    /// A report of nothing.
    pub fn of(session: u64, name: &str) -> Self {
        Self {
            session,
            name: name.to_owned(),
            ..Self::default()
        }
    }
}

/// A worker process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerReport {
    /// Memory that it had beyond guest RAM and GPU memory when it was asked last, in bytes.
    pub rss_bytes: u64,
    /// Times that it was replaced by another, after the guest had lost it.
    pub restarts: u64,
    /// What the workers of this session added to their reports.
    pub supplements: Vec<Vec<u8>>,
}

impl Counters {
    pub fn messages_by_name(&self) -> Vec<(&'static str, u64)> {
        let count = |opcode: &message::Opcode| {
            let count = self.messages[*opcode as usize].load(Ordering::Relaxed);
            (count != 0).then_some((opcode.name(), count))
        };
        message::OPCODES.iter().filter_map(count).collect()
    }

    pub fn packets_by_name(&self) -> Vec<(&'static str, u64)> {
        let count = |opcode: &packet::Opcode| {
            let count = self.packet_count(*opcode);
            (count != 0).then_some((opcode.name(), count))
        };
        packet::OPCODES.iter().filter_map(count).collect()
    }

    pub fn packets_in_all(&self) -> u64 {
        let counts = self.packets.iter().map(|n| n.load(Ordering::Relaxed));
        counts.fold(0, u64::saturating_add)
    }

    pub fn packet_count(&self, opcode: packet::Opcode) -> u64 {
        self.packets[opcode as usize].load(Ordering::Relaxed)
    }
}
