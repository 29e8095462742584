//! The guest's half, as far as tests need it.

use std::sync::atomic::{Ordering, fence};

use causeway_memory::Mapping;
use causeway_protocol::message::{Header, Opcode, Status, message_bytes};
use causeway_protocol::packet;
use causeway_protocol::packet::UNIT_BYTES;
use causeway_protocol::ring::{
    self, CONSUMER, FAULT_STATUS, HEADER_BYTES, PRODUCER, Positions, WAKE,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Client, GuestSession};

/// A control batch under construction, and then with its replies.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    messages: Vec<usize>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a message. A request shorter than the body is filled up with zeros.
    pub fn push<Q: IntoBytes + Immutable + ?Sized>(
        &mut self,
        opcode: Opcode,
        request: &Q,
    ) -> &mut Self {
        let at = self.bytes.len();
        let header = Header {
            opcode: opcode as u16,
            length: message_bytes(opcode) as u32,
            ..Header::default()
        };
        self.messages.push(at);
        self.bytes.extend(header.as_bytes());
        self.bytes.extend(request.as_bytes());
        self.bytes.resize(at + message_bytes(opcode), 0);
        self
    }

    /// Executes it for the client of page 0.
    pub fn run(&mut self, session: &(impl GuestSession + ?Sized)) -> Status {
        self.run_as(session, Client::FIRST)
    }

    /// Executes it for a client.
    pub fn run_as(&mut self, session: &(impl GuestSession + ?Sized), client: Client) -> Status {
        session.execute(client, &mut self.bytes)
    }

    /// The bytes, to be spoilt.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// How a message ended: status (none if it means nothing) and detail.
    pub fn outcome(&self, message: usize) -> (Option<Status>, u32) {
        let at = self.messages.get(message).copied().unwrap_or(usize::MAX);
        let head = self.bytes.get(at..).unwrap_or_default();
        match Header::read_from_prefix(head) {
            Ok((header, _)) => (Status::from_wire(header.status), header.detail),
            Err(_) => (None, 0),
        }
    }

    /// The reply of a message.
    pub fn reply<P: FromBytes>(&self, message: usize) -> Option<P> {
        let at = self.messages.get(message)? + size_of::<Header>();
        P::read_from_prefix(self.bytes.get(at..)?)
            .ok()
            .map(|(reply, _)| reply)
    }
}

/// Executes one message for the client of page 0.
///
/// # Errors
/// Its status, if that is not `Ok`, and detail.
pub fn ask<Q: IntoBytes + Immutable, P: FromBytes>(
    session: &(impl GuestSession + ?Sized),
    opcode: Opcode,
    request: &Q,
) -> Result<P, (Status, u32)> {
    ask_as(session, Client::FIRST, opcode, request)
}

/// Executes one message for a client.
///
/// # Errors
/// As [`ask`].
pub fn ask_as<Q: IntoBytes + Immutable, P: FromBytes>(
    session: &(impl GuestSession + ?Sized),
    client: Client,
    opcode: Opcode,
    request: &Q,
) -> Result<P, (Status, u32)> {
    let mut batch = Batch::new();
    let taken = batch.push(opcode, request).run_as(session, client);
    if taken != Status::Ok {
        return Err((taken, 0));
    }
    match batch.outcome(0) {
        (Some(Status::Ok), _) => batch.reply(0).ok_or((Status::BadLength, 0)),
        (status, detail) => Err((status.unwrap_or(Status::BackEnd), detail)),
    }
}

/// The producer of a ring, as a guest would be one.
pub struct Producer {
    memory: Mapping,
    units: u64,
    /// Next position to write.
    position: u64,
    /// Position published last.
    published: u64,
}

impl Producer {
    /// A producer in the memory that was made a command buffer; nothing if it is not of a ring's size.
    pub fn new(memory: Mapping) -> Option<Self> {
        let units = ring::capacity_units(memory.bytes())?;
        Some(Self {
            memory,
            units,
            position: 0,
            published: 0,
        })
    }

    /// The ring's memory, to be spoilt.
    pub fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// Writes a packet (whole units), without publishing it; waits for room.
    pub fn push(&mut self, packet: &[u8]) {
        let units = packet.len().div_ceil(UNIT_BYTES) as u64;
        let to_end = self.units - self.position % self.units;
        if units > to_end {
            let nop = packet::Header {
                opcode: packet::Opcode::Nop as u16,
                reserved: 0,
                units: to_end as u32,
            };
            self.put(nop.as_bytes(), to_end);
        }
        self.put(packet, units);
    }

    fn put(&mut self, bytes: &[u8], units: u64) {
        while self.position + units > self.consumed() + self.units && self.fault() == 0 {
            std::hint::spin_loop();
        }
        let at = HEADER_BYTES + self.position % self.units * UNIT_BYTES as u64;
        let _ = self.memory.write(at, bytes);
        self.position += units;
    }

    /// Publishes what was pushed. True if the doorbell must be rung.
    #[must_use]
    pub fn publish(&mut self) -> bool {
        let old = std::mem::replace(&mut self.published, self.position);
        ring::publish(self, old, self.position)
    }

    /// Position up to which the consumer has consumed.
    pub fn consumed(&self) -> u64 {
        self.load(CONSUMER)
    }

    /// Position up to which packets were written.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Fault status word; zero while all is well.
    pub fn fault(&self) -> u64 {
        self.load(FAULT_STATUS)
    }

    fn load(&self, word: usize) -> u64 {
        let word = self.memory.load_u64(word as u64, Ordering::Acquire);
        word.unwrap_or(u64::MAX)
    }
}

impl Positions for Producer {
    fn producer(&self) -> u64 {
        self.load(PRODUCER)
    }

    fn set_producer(&self, position: u64) {
        let _ = self
            .memory
            .store_u64(PRODUCER as u64, position, Ordering::Release);
    }

    fn wake(&self) -> u64 {
        self.load(WAKE)
    }

    fn set_wake(&self, position: u64) {
        let _ = self
            .memory
            .store_u64(WAKE as u64, position, Ordering::Relaxed);
    }

    fn full_fence(&self) {
        fence(Ordering::SeqCst);
    }
}
