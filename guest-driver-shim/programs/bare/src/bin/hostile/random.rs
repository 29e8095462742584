//! Attacks with thousands of random messages and packets, from a fixed seed.

use causeway_guests::Required;
use causeway_protocol::message::{Header, OPCODES, Opcode, Status, message_bytes};
use causeway_protocol::ring;
use causeway_shim::{Buffer, CommandBuffer, Device, MemoryKind, Transport, Unit};
use zerocopy::IntoBytes;

use crate::batches::{execute, header};
use crate::target::{Target, works};

/// Number of random batches.
const BATCHES: u32 = 2000;
/// Number of random command buffers, and of packets in each.
const RINGS: u32 = 100;
const PACKETS: u32 = 64;

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators,
/// scrambled").
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns a word that is likely to matter: small, a handle, aligned, near a limit, or any
    /// word.
    fn word(&mut self) -> u64 {
        let word = self.next();
        match self.below(6) {
            0 => word & 0xf,
            1 => word & 0x3_000f,
            2 => word & 0xffff_f000,
            3 => u64::MAX - (word & 0xfff),
            4 => word & 0xffff_ffff,
            _ => word,
        }
    }
}

/// Executes batches of messages with valid heads and random bodies, and batches of random bytes.
pub fn messages(target: &mut Target) {
    let transport = target.transport;
    let mut random = Random::new(0x5eed);
    for batch in 0..BATCHES {
        if batch.is_multiple_of(100) {
            Target::fresh(&transport);
        }
        let mut room = [0; 4096];
        let bytes = if batch.is_multiple_of(8) {
            room[..512]
                .chunks_mut(8)
                .for_each(|w| w.copy_from_slice(&random.next().to_le_bytes()));
            512
        } else {
            nonsense(&mut random, &mut room)
        };
        let area = transport.control_area();
        area.window
            .write(0, &room[..bytes])
            .required("the control area");
        let status = execute(target, area.address, bytes as u32);
        assert!(
            matches!(status, Some(Status::Ok | Status::BadLength)),
            "random batch {batch}: {status:?}"
        );
        target.survived();
    }
}

/// Writes a few messages with random bodies, and returns their size in bytes.
fn nonsense(random: &mut Random, room: &mut [u8]) -> usize {
    let mut at = 0;
    for _ in 0..1 + random.below(5) {
        let opcode = OPCODES[random.below(OPCODES.len() as u64) as usize];
        let bytes = message_bytes(opcode);
        let Some(message) = room.get_mut(at..at + bytes) else {
            break;
        };
        let (head, body) = message.split_at_mut(size_of::<Header>());
        head.copy_from_slice(header(opcode).as_bytes());
        for word in body[..opcode.request_bytes()].chunks_mut(8) {
            word.copy_from_slice(&random.word().to_le_bytes()[..word.len()]);
        }
        tame(opcode, body);
        at += bytes;
    }
    at
}

/// Removes long waits, which would only cost time.
fn tame(opcode: Opcode, body: &mut [u8]) {
    if opcode == Opcode::Wait {
        body[4..8].fill(0);
        body[24..32].copy_from_slice(&1000_u64.to_le_bytes());
    }
}

/// Submits random packets, most of which have valid heads.
pub fn packets(target: &mut Target) {
    let transport = target.transport;
    let mut random = Random::new(0xbad_5eed);
    for _ in 0..RINGS {
        let device = Target::fresh(&transport);
        ring_of_nonsense(&device, &mut random);
        target.survived();
    }
    let device = Target::fresh(&transport);
    let space = device.create_space().required("an address space");
    works(&device, &space, "rings full of nonsense");
}

fn ring_of_nonsense<'d>(device: &'d Device<'d>, random: &mut Random) {
    let space = device.create_space().required("an address space");
    let memory = Buffer::new(device, &space, 1 << 16, MemoryKind::Host).required("memory");
    let base = memory.gpu.address();
    let Ok(mut commands) = CommandBuffer::new(&space, ring::UNITS_MIN) else {
        panic!("no command buffer")
    };
    for _ in 0..PACKETS {
        let mut unit: Unit = core::array::from_fn(|_| match random.below(4) {
            0 => base + random.below(1 << 17),
            1 => random.below(4096),
            _ => 0,
        });
        unit[0] = random.below(9) | random.below(40).saturating_sub(37) << 32 | 1 << 32;
        if commands.push(unit).is_err() {
            break;
        }
        commands.submit();
    }
    // The command buffer stops, or waits for a fence that is never released; in both cases the
    // device must end it.
}
