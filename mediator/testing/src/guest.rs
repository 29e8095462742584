//! The guest's half of the protocol, as far as tests need it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use causeway_mediator::{Client, GuestSession};
use causeway_memory::Mapping;
use causeway_protocol::message::{Header, Opcode, Status, message_bytes};
use causeway_protocol::packet;
use causeway_protocol::packet::UNIT_BYTES;
use causeway_protocol::ring::{
    self, CONSUMER, FAULT_STATUS, HEADER_BYTES, PRODUCER, Positions, WAKE,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

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

    /// Executes the batch for the client of page 0.
    pub fn run(&mut self, session: &Arc<impl GuestSession + ?Sized>) -> Status {
        self.run_as(session, Client::FIRST)
    }

    /// Executes the batch for a client.
    pub fn run_as(&mut self, session: &Arc<impl GuestSession + ?Sized>, client: Client) -> Status {
        session.execute(client, &mut self.bytes)
    }

    /// Returns the bytes, which a test may spoil.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the status of a message (`None` if the number is no status) and its detail.
    pub fn outcome(&self, message: usize) -> (Option<Status>, u32) {
        let at = self.messages.get(message).copied().unwrap_or(usize::MAX);
        let head = self.bytes.get(at..).unwrap_or_default();
        match Header::read_from_prefix(head) {
            Ok((header, _)) => (Status::from_wire(header.status), header.detail),
            Err(_) => (None, 0),
        }
    }

    /// Returns the reply of a message.
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
    session: &Arc<impl GuestSession + ?Sized>,
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
    session: &Arc<impl GuestSession + ?Sized>,
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

/// The producer of a ring, as a guest is one.
#[derive(Debug)]
pub struct Producer {
    memory: Mapping,
    units: u64,
    /// Next position to write.
    position: u64,
    /// Position published last.
    published: u64,
}

impl Producer {
    /// Creates a producer in the memory of a command buffer; `None` if the memory has not the size
    /// of a ring.
    pub fn new(memory: Mapping) -> Option<Self> {
        let units = ring::capacity_units(memory.bytes())?;
        Some(Self {
            memory,
            units,
            position: 0,
            published: 0,
        })
    }

    /// Returns the ring's memory, which a test may spoil.
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

    /// Returns the position up to which the consumer has consumed.
    pub fn consumed(&self) -> u64 {
        self.load(CONSUMER)
    }

    /// Returns the position up to which packets were written.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the fault status word; zero while there is no fault.
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
