//! Executes control batches, message by message.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_protocol::message::{Opcode, Status, message_bytes};

use crate::client_session::ClientSession;
use crate::decode::{self, HEADER_BYTES, Previous};
use crate::operations;
use crate::quota::{Quota, Resource};
use crate::refusal::Refusal;
use crate::statistics::Counters;

/// How often a message that waits for its turn looks whether the session is halted, at least.
const PACE_LOOK: Duration = Duration::from_millis(100);

/// Executes a batch and writes the replies into it. Returns why the batch as a whole was refused,
/// which leaves it unchanged, or `Ok`.
pub(crate) fn execute(session: &ClientSession<'_>, batch: &mut [u8]) -> Status {
    let framing = decode::check_batch(batch);
    if framing == Status::Ok {
        session.execute_messages(batch);
    }
    framing
}

impl ClientSession<'_> {
    fn execute_messages(&self, batch: &mut [u8]) {
        let mut previous = Previous::default();
        let mut failed = None;
        let mut at = 0;
        for index in 0u32.. {
            let Some(rest) = batch.get_mut(at..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let framed = decode::framed_bytes(rest);
            if failed.is_none() {
                self.keep_pace();
            }
            if self.halted.load(Ordering::SeqCst) {
                failed.get_or_insert(index);
            }
            if let Some(first) = failed {
                decode::write_status(rest, Status::NotRun, first);
            } else {
                match self.message(rest, &mut previous) {
                    Ok(()) => decode::write_status(rest, Status::Ok, 0),
                    Err(refusal) => {
                        Counters::add(&self.counters.counted.failed_messages);
                        decode::write_status(rest, refusal.status, refusal.detail);
                        failed = Some(index);
                    }
                }
            }
            let Some(bytes) = framed else { break };
            at += bytes;
        }
    }

    /// Waits until the session may execute another message, or is halted.
    fn keep_pace(&self) {
        let per_second = self.account.limit(Resource::Requests);
        if per_second == Quota::UNLIMITED {
            return;
        }
        let now = Instant::now();
        let begin = self.pace.next(per_second, now);
        if begin > now {
            Counters::add(&self.counters.counted.request_waits);
            let halted = || self.halted.load(Ordering::SeqCst).then_some(());
            // A halt wakes this thread.
            self.signal.wait_looking(begin, PACE_LOOK, halted);
        }
    }

    /// Executes the message at the beginning of `rest`.
    fn message(&self, rest: &mut [u8], previous: &mut Previous) -> Result<(), Refusal> {
        let opcode = decode::check_message(rest)?;
        self.counters.message(opcode);
        self.admit(opcode)?;
        let body = &mut rest[HEADER_BYTES..message_bytes(opcode)];
        let outcome = operations::dispatch(self, opcode, body, previous);
        if let Err(refusal) = &outcome {
            log::debug!(
                "session {} ({}) client {}: {}: {refusal}",
                self.id,
                self.name,
                self.client.number(),
                opcode.name()
            );
        }
        outcome
    }

    /// Refuses `opcode` if the state of the session does not allow it.
    fn admit(&self, opcode: Opcode) -> Result<(), Refusal> {
        let state = self.lock();
        let after_loss = matches!(opcode, Opcode::Hello | Opcode::QueryFault);
        if state.closed || (state.generation.ended() && !after_loss) {
            return Err(Refusal::new(Status::DeviceLost));
        }
        let greeted = state.greeted & self.client.bit() != 0;
        if !greeted && opcode != Opcode::Hello && !state.generation.ended() {
            return Err(Refusal::new(Status::NoHello));
        }
        Ok(())
    }
}
