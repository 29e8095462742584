//! What a session is doing, for those who watch it while it runs.
//!
//! Everything here is read from counters with relaxed loads, and from the positions of rings: no lock is taken that the
//! session's own work takes, but for the list of its rings, which changes with command buffers.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_protocol::packet::Opcode;

use crate::quota::Resource;
use crate::session_inner::SessionInner;

/// A session at one moment. Counts are from its beginning, and only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Control batches executed.
    pub batches: u64,
    /// Control messages that failed.
    pub failed_messages: u64,
    /// Packets executed, of all kinds.
    pub packets: u64,
    /// Kernels launched by packets of their own; those of a replay are not in it.
    pub launches: u64,
    /// Recordings replayed.
    pub replays: u64,
    /// Copies executed.
    pub copies: u64,
    /// Fills executed.
    pub fills: u64,
    /// Bytes that copies and fills were to write.
    pub written_bytes: u64,
    /// Times that a consumer went to sleep.
    pub sleeps: u64,
    /// Times that a doorbell woke a consumer.
    pub doorbell_wakeups: u64,
    /// Interrupts raised for fences.
    pub interrupts: u64,
    /// Faults that ended a command buffer or the session.
    pub faults: u64,
    /// GPU memory in use, in bytes.
    pub memory_used_bytes: u64,
    /// Most GPU memory ever in use, in bytes.
    pub memory_peak_bytes: u64,
    /// GPU memory that the session may have, in bytes.
    pub memory_limit_bytes: u64,
    /// Allocations, imports and registered ranges of guest RAM that there are.
    pub allocations: u64,
    /// Command buffers that there are.
    pub command_buffers: u64,
    /// Units of 64 bytes that are written into rings and not taken out yet. What a consumer has handed to the back end is not
    /// in it, wherever that is in its execution.
    pub queued_units: u64,
    /// Units that all rings together have room for.
    pub queue_units: u64,
    /// Whether the guest has lost the device, and has not reset it since.
    pub lost: bool,
}

impl Activity {
    /// Adds what was counted by `earlier` sessions of the same guest; what is there now stays as it is.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        Self {
            batches: self.batches.saturating_add(earlier.batches),
            failed_messages: self.failed_messages.saturating_add(earlier.failed_messages),
            packets: self.packets.saturating_add(earlier.packets),
            launches: self.launches.saturating_add(earlier.launches),
            replays: self.replays.saturating_add(earlier.replays),
            copies: self.copies.saturating_add(earlier.copies),
            fills: self.fills.saturating_add(earlier.fills),
            written_bytes: self.written_bytes.saturating_add(earlier.written_bytes),
            sleeps: self.sleeps.saturating_add(earlier.sleeps),
            doorbell_wakeups: self
                .doorbell_wakeups
                .saturating_add(earlier.doorbell_wakeups),
            interrupts: self.interrupts.saturating_add(earlier.interrupts),
            faults: self.faults.saturating_add(earlier.faults),
            memory_peak_bytes: self.memory_peak_bytes.max(earlier.memory_peak_bytes),
            ..self
        }
    }
}

impl SessionInner {
    /// What the session is doing.
    pub fn activity(&self) -> Activity {
        let counters = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let account = &self.account;
        let depth = self.command_buffers.rings.depth();
        let device_bytes = self.backend.attributes().memory_bytes;
        Activity {
            batches: load(&counters.batches),
            failed_messages: load(&counters.failed_messages),
            packets: counters.packets_in_all(),
            launches: counters.packet_count(Opcode::Launch),
            replays: counters.packet_count(Opcode::Replay),
            copies: counters.packet_count(Opcode::Copy),
            fills: counters.packet_count(Opcode::Fill),
            written_bytes: load(&counters.written_bytes),
            sleeps: load(&counters.sleeps),
            doorbell_wakeups: load(&counters.wakeups),
            interrupts: load(&counters.interrupts),
            faults: load(&counters.faults),
            memory_used_bytes: account.used(Resource::MemoryBytes),
            memory_peak_bytes: account.peak_memory_bytes(),
            memory_limit_bytes: account.quota().memory_bytes.min(device_bytes),
            allocations: account.used(Resource::Allocations),
            command_buffers: account.used(Resource::CommandBuffers),
            queued_units: depth.queued_units,
            queue_units: depth.units,
            lost: self.status.lost(),
        }
    }
}
