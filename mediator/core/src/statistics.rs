//! The statistics of a session: one table, from which counters, reports, `causeway stat` and
//! metrics come.
//!
//! To add a counter, add a line to the table below, count where it happens with `Counters::add`,
//! and write `docs/observing.md` again
//! (`CAUSEWAY_BLESS=1 cargo test -p causeway-mediator --test document`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_protocol::{message, packet};

use crate::backend::{Crossed, Moved};
use crate::busy::BusyClock;

/// How a statistic changes while its session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count of events since the session began. It only grows.
    Counter,
    /// The largest value of a gauge so far. It only grows.
    Peak,
    /// A limit, which changes only when somebody sets it (`causeway limit`).
    Limit,
    /// The present value, which may grow or shrink. It is 0 once the session is lost or closed.
    Gauge,
}

/// Describes one statistic that every session keeps: its name, kind, metric and help.
#[derive(Clone, Copy, Debug)]
pub struct Statistic {
    /// Name of the statistic in JSON, which is also the name of its field in [`Statistics`].
    pub name: &'static str,
    /// How the value changes while the session runs.
    pub kind: Kind,
    /// Name of the statistic in OpenMetrics output, without the prefix `causeway_gpu_`. Times,
    /// whose names in JSON end with `_ns`, are in seconds there.
    pub metric: &'static str,
    /// What the statistic counts or shows, in one sentence.
    pub help: &'static str,
}

macro_rules! statistics {
    ($(#[doc = $help:literal] $name:ident: $kind:ident as $metric:literal,)*) => {
        /// One value for each statistic of a session: counts if `T` is `u64`, rates if `T` is
        /// `f64`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics<T = u64> {
            $(#[doc = $help] pub $name: T,)*
        }

        /// Descriptions of all statistics, in the order of the fields of [`Statistics`].
        pub const STATISTICS: [Statistic; STATISTICS_COUNT] = [$(Statistic {
            name: stringify!($name),
            kind: Kind::$kind,
            metric: $metric,
            help: $help.trim_ascii(),
        },)*];

        /// Number of statistics that every session keeps.
        pub const STATISTICS_COUNT: usize = [$(stringify!($name)),*].len();

        impl<T> Statistics<T> {
            /// Makes the structure from one value for each statistic, in the order of
            /// [`STATISTICS`].
            pub fn from_values(values: [T; STATISTICS_COUNT]) -> Self {
                let [$($name),*] = values;
                Self { $($name),* }
            }

            /// Returns the values of all statistics, in the order of [`STATISTICS`].
            pub fn values(&self) -> [&T; STATISTICS_COUNT] {
                [$(&self.$name),*]
            }
        }
    };
}

statistics! {
    /// Control batches executed.
    batches: Counter as "control_batches",
    /// Control messages that failed.
    failed_messages: Counter as "failed_messages",
    /// Control messages that waited for the session's limit of messages in each second.
    request_waits: Counter as "request_waits",
    /// Packets executed, of all kinds.
    packets: Counter as "packets",
    /// Kernels launched by packets of their own, not by a replay.
    launches: Counter as "launches",
    /// Recordings replayed.
    replays: Counter as "replays",
    /// Copies executed.
    copies: Counter as "copies",
    /// Fills executed.
    fills: Counter as "fills",
    /// Bytes that copies and fills were asked to write.
    written_bytes: Counter as "written_bytes",
    /// Bytes that copies from or to memory of a peer GPU have moved, without those of replays.
    direct_bytes: Counter as "direct_copied_bytes",
    /// Time that the device took for these copies; on a GPU, that of short ones is estimated.
    direct_ns: Counter as "direct_copy_seconds",
    /// Bytes that copies have moved through the host's memory, from or to a GPU that is no peer.
    staged_bytes: Counter as "staged_copied_bytes",
    /// Time that the device took for these copies; on a GPU, that of short ones is estimated.
    staged_ns: Counter as "staged_copy_seconds",
    /// Times that the consumer of a command buffer went to sleep.
    sleeps: Counter as "consumer_sleeps",
    /// Times that a consumer that waited for packets found its processor taken by another thread.
    crowded_waits: Counter as "crowded_waits",
    /// Times that a doorbell woke a consumer.
    doorbell_wakeups: Counter as "doorbell_wakeups",
    /// Time of the whole device; on a GPU, of its leases, while others waited or under a cap.
    device_ns: Counter as "device_seconds",
    /// Times that work waited because other sessions used the device, or for the session's cap.
    turn_waits: Counter as "turn_waits",
    /// Time in which work waited so, added up over command buffers.
    turn_wait_ns: Counter as "turn_wait_seconds",
    /// Interrupts raised for fences.
    interrupts: Counter as "interrupts",
    /// Faults that ended a command buffer or the session.
    faults: Counter as "faults",
    /// Time in which the session had kernels, copies or fills under way on the GPU.
    busy_ns: Counter as "busy_seconds",
    /// Time in which kernels were under way, added up over command buffers.
    kernel_ns: Counter as "kernel_seconds",
    /// GPU memory in use, in bytes, including arrays.
    memory_used_bytes: Gauge as "memory_used_bytes",
    /// Largest amount of GPU memory ever in use, in bytes.
    memory_peak_bytes: Peak as "memory_peak_bytes",
    /// GPU memory that the session may use, in bytes.
    memory_limit_bytes: Limit as "memory_limit_bytes",
    /// Weight by which the session gets time of the device; 0 is none.
    weight: Limit as "weight",
    /// Most of the device's time that the session may have, in percent; 0 is no cap.
    share_percent: Limit as "share_percent",
    /// Allocations, arrays, imports and registered ranges of guest RAM.
    allocations: Gauge as "allocations",
    /// Command buffers.
    command_buffers: Gauge as "command_buffers",
    /// Units of 64 bytes that wait in rings and that no consumer has handed to the back end.
    queued_units: Gauge as "queued_units",
    /// Units of 64 bytes that the rings have room for.
    queue_units: Gauge as "queue_units",
}

impl<T: Copy> Statistics<T> {
    /// Iterates over all statistics with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Statistic, T)> {
        STATISTICS.iter().zip(self.values().map(|value| *value))
    }
}

impl Statistics {
    /// Returns these statistics with the counts of `earlier` sessions of the same guest added. A
    /// peak becomes the larger of both values; gauges and limits stay as they are.
    #[must_use]
    pub fn after(&self, earlier: &Self) -> Self {
        let (now, before) = (self.values(), earlier.values());
        Self::from_values(std::array::from_fn(|i| match STATISTICS[i].kind {
            Kind::Counter => now[i].saturating_add(*before[i]),
            Kind::Peak => *now[i].max(before[i]),
            Kind::Limit | Kind::Gauge => *now[i],
        }))
    }

    /// Returns these statistics with all gauges set to 0, for a session that has been lost and no
    /// longer uses anything.
    #[must_use]
    pub fn without_gauges(&self) -> Self {
        let now = self.values();
        Self::from_values(std::array::from_fn(|i| match STATISTICS[i].kind {
            Kind::Gauge => 0,
            _ => *now[i],
        }))
    }
}

/// What a monitor sees of a session at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Values of all statistics of the session.
    pub statistics: Statistics,
    /// Whether the session is lost.
    pub lost: bool,
}

/// The packets that a consumer has executed since it last called [`Counters::packets`].
#[derive(Debug, Default)]
pub(crate) struct PacketCounts {
    packets: [u64; packet::Opcode::SLOTS],
    written_bytes: u64,
}

impl PacketCounts {
    /// Counts one executed packet with opcode `opcode`, which writes `written_bytes` bytes by a
    /// copy or a fill.
    pub fn count(&mut self, opcode: packet::Opcode, written_bytes: u64) {
        self.packets[opcode as usize] += 1;
        self.written_bytes = self.written_bytes.saturating_add(written_bytes);
    }
}

/// The counters of a session, written by vCPU and consumer threads.
#[derive(Debug)]
pub(crate) struct Counters {
    /// The statistics that count events. Statistics that are computed from other data stay 0 here.
    pub counted: Statistics<AtomicU64>,
    /// How long command buffers have had work under way.
    pub busy: Arc<BusyClock>,
    messages: [AtomicU64; message::Opcode::SLOTS],
    packets: [AtomicU64; packet::Opcode::SLOTS],
}

// By hand: arrays of more than 32 elements have no default.
impl Default for Counters {
    fn default() -> Self {
        Self {
            counted: Statistics::default(),
            busy: Arc::default(),
            messages: [const { AtomicU64::new(0) }; message::Opcode::SLOTS],
            packets: [const { AtomicU64::new(0) }; packet::Opcode::SLOTS],
        }
    }
}

impl Counters {
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts time of all units of the device.
    pub fn use_device(&self, used_ns: u64) {
        let counted = &self.counted.device_ns;
        counted.fetch_add(used_ns, Ordering::Relaxed);
    }

    /// Counts what copies between GPUs have moved.
    pub fn cross(&self, crossed: Crossed) {
        let counted = &self.counted;
        for (bytes, time, moved) in [
            (&counted.direct_bytes, &counted.direct_ns, crossed.direct),
            (&counted.staged_bytes, &counted.staged_ns, crossed.staged),
        ] {
            if moved != Moved::default() {
                bytes.fetch_add(moved.bytes, Ordering::Relaxed);
                time.fetch_add(moved.ns, Ordering::Relaxed);
            }
        }
    }

    /// Counts a wait for a turn on the device.
    pub fn wait_for_turn(&self, waited: Duration) {
        Self::add(&self.counted.turn_waits);
        let waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.counted
            .turn_wait_ns
            .fetch_add(waited_ns, Ordering::Relaxed);
    }

    pub fn message(&self, opcode: message::Opcode) {
        Self::add(&self.messages[opcode as usize]);
    }

    /// Adds `counts`, the packets that a consumer has counted, to the session's counters, and sets
    /// `counts` to zero.
    pub fn packets(&self, counts: &mut PacketCounts) {
        for (total, count) in self.packets.iter().zip(&mut counts.packets) {
            if *count != 0 {
                total.fetch_add(std::mem::take(count), Ordering::Relaxed);
            }
        }
        if counts.written_bytes != 0 {
            let bytes = std::mem::take(&mut counts.written_bytes);
            let total = &self.counted.written_bytes;
            total.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the counts of messages by opcode.
    pub fn by_message(&self) -> [u64; message::Opcode::SLOTS] {
        self.messages.each_ref().map(load)
    }

    /// Returns the counts of packets by opcode.
    pub fn by_packet(&self) -> [u64; packet::Opcode::SLOTS] {
        self.packets.each_ref().map(load)
    }

    /// Returns the statistics that count events. Statistics that are computed from other data are 0
    /// in the result.
    pub fn statistics(&self) -> Statistics {
        let packets = self.by_packet();
        let of = |opcode: packet::Opcode| packets[opcode as usize];
        let times = self.busy.times(Instant::now());
        Statistics {
            busy_ns: times.busy_ns,
            kernel_ns: times.kernel_ns,
            packets: packets.into_iter().fold(0, u64::saturating_add),
            launches: of(packet::Opcode::Launch),
            replays: of(packet::Opcode::Replay),
            copies: of(packet::Opcode::Copy) + of(packet::Opcode::CopyRect),
            fills: of(packet::Opcode::Fill) + of(packet::Opcode::FillRect),
            ..Statistics::from_values(self.counted.values().map(load))
        }
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_over_sessions_and_gauges_do_not() {
        let earlier = Statistics {
            sleeps: 3,
            memory_peak_bytes: 9,
            allocations: 5,
            memory_limit_bytes: 1,
            ..Statistics::default()
        };
        let now = Statistics {
            sleeps: u64::MAX - 1,
            memory_peak_bytes: 7,
            allocations: 2,
            memory_limit_bytes: 8,
            ..Statistics::default()
        };
        let all = now.after(&earlier);
        assert_eq!((all.sleeps, all.memory_peak_bytes), (u64::MAX, 9));
        assert_eq!((all.allocations, all.memory_limit_bytes), (2, 8));
        let lost = all.without_gauges();
        assert_eq!((lost.allocations, lost.memory_limit_bytes), (0, 8));
        assert_eq!(lost.sleeps, u64::MAX);
    }

    #[test]
    fn what_crosses_between_gpus_is_counted_by_its_way() {
        let counters = Counters::default();
        let moved = |bytes, ns| Moved { bytes, ns };
        for _ in 0..2 {
            counters.cross(Crossed {
                direct: moved(1, 20),
                staged: moved(0, 0),
            });
        }
        counters.cross(Crossed {
            direct: moved(0, 0),
            staged: moved(4, 50),
        });
        let counted = &counters.counted;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let direct = (value(&counted.direct_bytes), value(&counted.direct_ns));
        let staged = (value(&counted.staged_bytes), value(&counted.staged_ns));
        assert_eq!((direct, staged), ((2, 40), (4, 50)));
    }
}
