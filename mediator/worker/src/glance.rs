//! What a session is doing, as it crosses a socket.

use causeway_mediator::Activity;

use crate::wire::Glanced;

impl From<Activity> for Glanced {
    fn from(activity: Activity) -> Self {
        Self {
            batches: activity.batches,
            failed_messages: activity.failed_messages,
            packets: activity.packets,
            launches: activity.launches,
            replays: activity.replays,
            copies: activity.copies,
            fills: activity.fills,
            written_bytes: activity.written_bytes,
            sleeps: activity.sleeps,
            doorbell_wakeups: activity.doorbell_wakeups,
            interrupts: activity.interrupts,
            faults: activity.faults,
            memory_used_bytes: activity.memory_used_bytes,
            memory_peak_bytes: activity.memory_peak_bytes,
            memory_limit_bytes: activity.memory_limit_bytes,
            allocations: activity.allocations,
            command_buffers: activity.command_buffers,
            queued_units: activity.queued_units,
            queue_units: activity.queue_units,
            lost: activity.lost.into(),
        }
    }
}

impl From<Glanced> for Activity {
    fn from(glanced: Glanced) -> Self {
        Self {
            batches: glanced.batches,
            failed_messages: glanced.failed_messages,
            packets: glanced.packets,
            launches: glanced.launches,
            replays: glanced.replays,
            copies: glanced.copies,
            fills: glanced.fills,
            written_bytes: glanced.written_bytes,
            sleeps: glanced.sleeps,
            doorbell_wakeups: glanced.doorbell_wakeups,
            interrupts: glanced.interrupts,
            faults: glanced.faults,
            memory_used_bytes: glanced.memory_used_bytes,
            memory_peak_bytes: glanced.memory_peak_bytes,
            memory_limit_bytes: glanced.memory_limit_bytes,
            allocations: glanced.allocations,
            command_buffers: glanced.command_buffers,
            queued_units: glanced.queued_units,
            queue_units: glanced.queue_units,
            lost: glanced.lost != 0,
        }
    }
}
