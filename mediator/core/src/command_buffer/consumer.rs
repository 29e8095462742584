//! The consumer of a command buffer: one thread that reads the ring, and trusts nothing in it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_protocol::message::Status;
use causeway_protocol::packet::UNIT_BYTES;
use causeway_protocol::ring::Positions;

use super::execute::{Executor, Stop};
use super::idle::Idle;
use super::packet;
use super::ring::Ring;
use crate::backend::Fault;
use crate::bell::Bell;
use crate::generation::{FaultScope, Generation, scope};
use crate::refusal::warn_at_first;
use crate::statistics::{Counters, PacketCounts};

/// Units copied out of the ring at a time: more would leave the processor's nearest cache.
const CHUNK_UNITS: usize = 128;
/// The same where the first packet has more units than that; more than the longest packet has.
const LONG_CHUNK_UNITS: usize = 1024;

const _: () = assert!(LONG_CHUNK_UNITS > causeway_protocol::packet::UNITS_MAX as usize);

/// What the thread needs. Nothing in it takes the session's lock.
pub(super) struct Consumer {
    pub ring: Arc<Ring>,
    pub bell: Arc<Bell>,
    pub generation: Arc<Generation>,
    pub counters: Arc<Counters>,
    /// Names the session and the command buffer in logs.
    pub label: String,
    pub executor: Executor,
}

/// How far the consumer is.
struct Progress {
    /// Position of the packet under way, or of the next.
    position: u64,
    /// Units to copy next: [`LONG_CHUNK_UNITS`] if the next packet did not lie in the last copy.
    chunk_units: usize,
    counted: PacketCounts,
}

impl Consumer {
    /// Executes packets from the ring until [`Bell::stop`] is called or a packet fails. If a packet
    /// fails or the session is lost, writes the status and the position into the ring's header
    /// before returning.
    pub fn run(mut self) {
        // Without it the guest waits longer on a crowded processor, and nothing else changes.
        if let Err(error) = causeway_scheduling::set_slice(causeway_scheduling::SLICE_MIN) {
            log::debug!(
                "{}: cannot set the thread's time slice: {error}",
                self.label
            );
        }
        let mut progress = Progress {
            position: 0,
            chunk_units: CHUNK_UNITS,
            counted: PacketCounts::default(),
        };
        let consumed = std::panic::catch_unwind(AssertUnwindSafe(|| self.consume(&mut progress)));
        let stop = consumed
            .unwrap_or_else(|_| Stop::fault(Status::BackEnd, "the back end panicked".to_owned()));
        self.counters.packets(&mut progress.counted);
        self.conclude(stop, progress.position);
    }

    /// Consumes packets until there is a reason to stop, and returns the reason.
    fn consume(&mut self, progress: &mut Progress) -> Stop {
        let mut chunk = [0; LONG_CHUNK_UNITS * UNIT_BYTES];
        let mut idle = Idle::new();
        while !self.bell.stopped() {
            // A ring that is never empty must not hide that the device has done the work.
            if self.executor.has_watcher()
                && let Err(fault) = self.executor.progress()
            {
                return Stop::Fault(fault);
            }
            let position = progress.position;
            let available = self.ring.producer().wrapping_sub(position);
            if available == 0 {
                let executor = &mut self.executor;
                let how = (&*self.counters, executor.lease.is_metered());
                let progress = || executor.progress();
                let waited = idle.wait(&self.ring, position, &self.bell, how, progress);
                if let Err(fault) = waited {
                    return Stop::Fault(fault);
                }
            } else if available > self.ring.units() {
                if let Err(stop) = self.executor.flush() {
                    return stop;
                }
                let text = format!(
                    "the producer is {available} units past {position}, beyond the ring's size"
                );
                return Stop::fault(Status::BadPosition, text);
            } else if let Err(stop) = self.consume_chunk(&mut chunk, available, progress) {
                return stop;
            }
        }
        Stop::Asked
    }

    /// Copies some units out once, and executes the packets that lie wholly in the copy. The
    /// producer sees the new position at the end, and before a packet that may take long.
    fn consume_chunk(
        &mut self,
        chunk: &mut [u8],
        available: u64,
        progress: &mut Progress,
    ) -> Result<(), Stop> {
        let begin = progress.position;
        let limit = available.min(self.ring.units_to_end(begin));
        let copied = limit.min(progress.chunk_units as u64);
        let chunk = &mut chunk[..copied as usize * UNIT_BYTES];
        self.ring
            .copy_units(begin, chunk)
            .map_err(|e| Stop::fault(Status::BackEnd, e.to_string()))?;
        let executed = self.execute_chunk(chunk, limit, progress);
        self.counters.packets(&mut progress.counted);
        // While the ring holds more, the queue may gather launches over chunks. What came before a
        // packet at fault is right, and begins.
        if executed.is_err() || self.ring.producer() == progress.position {
            self.executor.flush()?;
        }
        executed?;
        // The guest may change a packet between two copies: each is decoded afresh.
        progress.chunk_units = match progress.position == begin {
            true => LONG_CHUNK_UNITS,
            false => CHUNK_UNITS,
        };
        self.ring.set_consumer(progress.position);
        Ok(())
    }

    /// Executes the packets that lie wholly in `chunk`. `limit` units are in the ring, with those
    /// that were not copied.
    fn execute_chunk(
        &mut self,
        chunk: &[u8],
        limit: u64,
        progress: &mut Progress,
    ) -> Result<(), Stop> {
        let begin = progress.position;
        let copied = (chunk.len() / UNIT_BYTES) as u64;
        let mut at = 0;
        while at < copied && !self.bell.stopped() {
            let rest = &chunk[at as usize * UNIT_BYTES..];
            let decoded = packet::decode(rest, limit - at).map_err(|status| {
                let head = &rest[..8];
                Stop::fault(status, format!("invalid packet, first bytes {head:02x?}"))
            })?;
            let Some(decoded) = decoded else {
                break; // It goes on behind the copy: it will be the first of the next.
            };
            if decoded.packet.may_take_long() {
                self.ring.set_consumer(progress.position);
            }
            self.executor.execute(decoded.packet)?;
            let moved_bytes = decoded.packet.moved_bytes();
            progress.counted.count(decoded.opcode, moved_bytes);
            at += decoded.units;
            progress.position = begin + at;
        }
        Ok(())
    }

    /// Writes the end to the ring, and loses the session if the fault is of that kind.
    fn conclude(mut self, stop: Stop, position: u64) {
        self.ring.set_consumer(position);
        if !self.executor.queue.runs_behind() {
            self.executor.end_turn();
        }
        let fault = match stop {
            Stop::Fault(fault) => Some(fault),
            Stop::Asked => self.executor.queue.finish().err(),
        };
        // A fault while work is being stopped is the stop flag's doing. One that a command buffer
        // ends with when nobody but its own end was asked for is real, and ends the session even
        // so.
        let stopped = self.executor.space.stop.load(Ordering::SeqCst);
        let own = fault.filter(|_| !stopped);
        match own {
            Some(fault) => self.report(fault, position),
            None if self.generation.fault().is_some() => {
                self.ring.set_fault(Status::DeviceLost, position);
            }
            None => {}
        }
    }

    fn report(&self, fault: Fault, position: u64) {
        let level = warn_at_first(&self.counters.counted.faults);
        log::log!(
            level,
            "{}: stopped at position {position}: {fault}",
            self.label
        );
        self.ring.set_fault(fault.status, position);
        match scope(fault.status) {
            FaultScope::CommandBuffer => {}
            FaultScope::Session => {
                log::log!(
                    level,
                    "{}: this fault loses the session; the guest must reset the device",
                    self.label
                );
                self.generation.lose(fault);
            }
        }
    }
}
