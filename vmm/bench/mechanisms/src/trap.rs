//! The emulated device that `host_interface::trap` describes.

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_bench_workloads::host_interface::{forward, trap as wire};
use causeway_bench_workloads::{Kernel, Shape};
use causeway_mediator::va::VaAllocator;
use causeway_vmm::bus::{BusDevice, Refusal, Response};
use parking_lot::Mutex;

use crate::card::{Card, CardError};

/// The device of mechanism `trap`: a card whose memory and registers the guest reaches at two
/// guest-physical ranges, where each access exits.
pub(crate) struct Trap {
    card: Card,
    /// Identifiers of the card's allocations, by their offsets in the range of memory.
    placed: BTreeMap<u64, u64>,
    free: VaAllocator,
    packet: [u64; wire::PACKET_WORDS],
    completed: u64,
    offset: u64,
    address: u64,
}

/// Why a packet has no effect.
#[derive(Debug, thiserror::Error)]
enum PacketError {
    #[error(
        "the emulated device of mechanism `trap` got a malformed packet from the guest: opcode \
         {opcode:#x}, {words} words"
    )]
    Meaningless { words: u64, opcode: u64 },
    #[error(
        "the guest frees the allocation at offset {offset:#x} of the emulated device's memory, but \
         none begins there"
    )]
    NoMemory { offset: u64 },
    #[error(
        "the emulated device of mechanism `trap` has no free range of {bytes} bytes for an \
         allocation"
    )]
    NoRoom { bytes: u64 },
    #[error(transparent)]
    Card(#[from] CardError),
}

impl Trap {
    /// Returns the emulated device of mechanism `trap`, which allocates memory and launches kernels
    /// on `card`.
    pub fn new(card: Card) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            card,
            placed: BTreeMap::new(),
            free: VaAllocator::new(0..wire::MEMORY_BYTES),
            packet: [0; wire::PACKET_WORDS],
            completed: 0,
            offset: wire::FAILED,
            address: 0,
        }))
    }

    /// Returns the memory at an offset of the range, and the offset in it.
    fn find(&self, offset: u64) -> Option<(&causeway_memory::Mapping, u64)> {
        let (start, id) = self.placed.range(..=offset).next_back()?;
        let memory = self.card.memory(*id).ok()?;
        Some((&memory.mapping, offset - start))
    }

    fn poll(&mut self) -> u64 {
        match self.card.completed() {
            Ok(Some(completed)) => self.completed = completed,
            Ok(None) => {}
            Err(error) => {
                log::debug!("trap: {error}");
                self.completed = wire::FAILED;
            }
        }
        self.completed
    }

    fn execute(&mut self, words: u64) {
        if let Err(error) = self.packet(words) {
            log::debug!("trap: {error}");
            self.offset = wire::FAILED;
        }
    }

    fn packet(&mut self, words: u64) -> Result<(), PacketError> {
        let packet = self.packet;
        let (opcode, kernel) = (packet[0] & 0xffff_ffff, packet[0] >> 32);
        let meaningless = PacketError::Meaningless { words, opcode };
        match (opcode, words as usize) {
            (wire::ALLOCATE, 2) => self.allocate(packet[1]),
            (wire::FREE, 2) => self.free(packet[1]),
            (wire::LAUNCH, words @ 3..=wire::PACKET_WORDS) => {
                let kernel = Kernel::from_wire(kernel).ok_or(meaningless)?;
                let shape = Shape {
                    grid: forward::split_pair(packet[1]),
                    block: forward::split_pair(packet[2]),
                };
                Ok(self.card.launch(kernel, shape, &packet[3..words])?)
            }
            _ => Err(meaningless),
        }
    }

    fn allocate(&mut self, bytes: u64) -> Result<(), PacketError> {
        let id = self.card.allocate(bytes)?;
        let memory = self.card.memory(id)?;
        let (bytes, address) = (memory.bytes, memory.address);
        let Some(offset) = self.free.take(bytes) else {
            self.card.free(id)?;
            return Err(PacketError::NoRoom { bytes });
        };
        self.placed.insert(offset, id);
        (self.offset, self.address) = (offset, address);
        Ok(())
    }

    fn free(&mut self, offset: u64) -> Result<(), PacketError> {
        let id = self.placed.get(&offset).copied();
        let id = id.ok_or(PacketError::NoMemory { offset })?;
        let bytes = self.card.memory(id)?.bytes;
        self.card.free(id)?;
        self.placed.remove(&offset);
        self.free.give(offset, bytes);
        Ok(())
    }
}

/// The guest-physical range of the device with its memory.
pub(crate) struct TrapMemory(pub Arc<Mutex<Trap>>);

/// The guest-physical range of the device with its registers.
pub(crate) struct TrapRegisters(pub Arc<Mutex<Trap>>);

impl BusDevice for TrapMemory {
    fn name(&self) -> &'static str {
        "trap"
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        let state = self.0.lock();
        let read = state
            .find(offset)
            .and_then(|(memory, within)| memory.read(within, into).ok());
        hit("memory", read)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let state = self.0.lock();
        let written = state
            .find(offset)
            .and_then(|(memory, within)| memory.write(within, from).ok());
        hit("memory", written)
    }
}

impl BusDevice for TrapRegisters {
    fn name(&self) -> &'static str {
        "trap"
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        let Ok(into) = <&mut [u8; 8]>::try_from(into) else {
            return Response::refused(Refusal::BadSize);
        };
        let mut state = self.0.lock();
        let (name, value) = match offset {
            wire::COMPLETED => ("completed", state.poll()),
            wire::OFFSET => ("offset", state.offset),
            wire::ADDRESS => ("address", state.address),
            _ => return Response::refused(Refusal::NoRegister),
        };
        *into = value.to_le_bytes();
        Response::ok(name)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let Ok(value) = from.try_into().map(u64::from_le_bytes) else {
            return Response::refused(Refusal::BadSize);
        };
        let mut state = self.0.lock();
        if offset == wire::KICK {
            state.execute(value);
            return Response::ok("kick");
        }
        let word = state.packet.get_mut((offset / 8) as usize);
        match word.filter(|_| offset.is_multiple_of(8)) {
            Some(word) => *word = value,
            None => return Response::refused(Refusal::NoRegister),
        }
        Response::ok("packet")
    }
}

fn hit(register: &'static str, done: Option<()>) -> Response {
    done.map_or(Response::refused(Refusal::Hole), |()| {
        Response::ok(register)
    })
}
