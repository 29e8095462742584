//! Generated batches and packets by the thousand, or as many as `CAUSEWAY_FUZZ_INPUTS` says: no panic, no
//! memory beyond the quota, and nothing left when the session ends. `fuzz/README.md` says more.

#[path = "../../fuzz/src/control.rs"]
#[allow(
    dead_code,
    reason = "shared with the fuzz targets, which use all of it"
)]
mod control;
#[path = "../../fuzz/src/packets.rs"]
#[allow(
    dead_code,
    reason = "shared with the fuzz targets, which use all of it"
)]
mod packets;
#[path = "../../fuzz/src/seeded.rs"]
#[allow(dead_code, reason = "shared with other tests, which use all of it")]
mod seeded;

use std::collections::BTreeMap;

use causeway_protocol::message::{Header, OPCODES, Opcode, PREVIOUS};
use causeway_protocol::packet::{self, CopyRange, Fence, Fill, Launch, UNIT_BYTES};
use control::{Control, message};
use packets::Packets;
use seeded::Random;
use zerocopy::{FromBytes, IntoBytes};

/// Batches that one session lives through.
const BATCHES: u64 = 500;

/// Names the input if the thread panics.
struct Input {
    seed: u64,
    index: u64,
}

impl Drop for Input {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("input {} of seed {}", self.index, self.seed);
        }
    }
}

/// What the session has handed out, so that later messages can name it.
#[derive(Default)]
struct Names {
    handles: Vec<u32>,
    addresses: Vec<u64>,
    /// Messages that succeeded, by opcode.
    succeeded: BTreeMap<&'static str, u64>,
}

impl Names {
    /// Reads the replies in a batch that was executed.
    fn learn(&mut self, mut batch: &[u8]) {
        while let Ok((header, _)) = Header::read_from_prefix(batch) {
            let (Some(opcode), Some(body)) = (
                Opcode::from_wire(header.opcode),
                batch.get(size_of::<Header>()..),
            ) else {
                return;
            };
            if header.status == 0 && header.detail == 0 {
                *self.succeeded.entry(opcode.name()).or_default() += 1;
                let word = u64::read_from_prefix(body).map_or(0, |(word, _)| word);
                match opcode {
                    Opcode::MapGpu | Opcode::MapCpu => remember(&mut self.addresses, word),
                    _ => remember(&mut self.handles, word as u32),
                }
            }
            let Some(rest) = batch.get((header.length as usize).max(1)..) else {
                return;
            };
            batch = rest;
        }
    }
}

/// Keeps the last few.
fn remember<T>(known: &mut Vec<T>, new: T) {
    known.push(new);
    if known.len() > 12 {
        known.remove(0);
    }
}

/// A message whose fields are names in use, sizes, rights and zeros more often than not.
fn random_message(random: &mut Random, names: &Names) -> Vec<u8> {
    let mut bytes = message(*random.pick(OPCODES));
    let body = &mut bytes[size_of::<Header>()..];
    for field in body.chunks_exact_mut(8).take(6) {
        let value = match random.word() % 8 {
            0 | 1 => 0,
            2 if !names.addresses.is_empty() => *random.pick(&names.addresses),
            3 => 4096 << (random.word() % 10),
            4 if random.once_in(8) => random.tricky(),
            _ => u64::from(half(random, names)) << 32 | u64::from(half(random, names)),
        };
        field.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// What a field of 32 bits may hold.
fn half(random: &mut Random, names: &Names) -> u32 {
    match random.word() % 8 {
        0..=2 if !names.handles.is_empty() => *random.pick(&names.handles),
        3 => PREVIOUS,
        4 | 5 => *random.pick(&[0, 1, 2, 3, 8]),
        _ => 0,
    }
}

fn random_batch(random: &mut Random, names: &Names) -> Vec<u8> {
    let mut batch = Vec::new();
    for _ in 0..=random.below(4) {
        batch.extend(random_message(random, names));
    }
    if random.once_in(8) {
        let at = random.below(batch.len());
        batch[at] ^= random.word() as u8;
    }
    if random.once_in(64) {
        batch.truncate(random.below(batch.len()));
    }
    batch
}

#[test]
fn control_batches() {
    let seed = seeded::seed();
    let count = seeded::input_count(20_000);
    let (mut control, mut names) = (Control::new(), Names::default());
    for index in 0..count {
        let input = Input { seed, index };
        let mut batch = random_batch(&mut Random::of_input(seed, index), &names);
        control.execute(&mut batch);
        names.learn(&batch);
        if index % BATCHES == BATCHES - 1 {
            std::mem::take(&mut control).finish();
            names.handles.clear();
        }
        drop(input);
    }
    control.finish();
    // Inputs that are all refused at once would test nothing.
    eprintln!("{:?}", names.succeeded);
}

fn random_address(random: &mut Random, packets: &Packets) -> u64 {
    match random.word() % 32 {
        0 => random.tricky(),
        _ => packets.buffer + 8 * (random.word() % 1024),
    }
}

/// A packet that is right more often than not.
fn random_packet(random: &mut Random, packets: &Packets) -> Vec<u8> {
    // Acquire last, and rarely: a fence that never comes costs patience.
    let opcodes = &packet::OPCODES;
    let opcode = *random.pick(opcodes);
    let acquire = opcode == packet::Opcode::FenceAcquire && !random.once_in(256);
    let opcode = if acquire { packet::Opcode::Nop } else { opcode };
    let header = packet::Header {
        opcode: opcode as u16,
        reserved: 0,
        units: if opcode == packet::Opcode::Launch {
            2
        } else {
            1
        },
    };
    let address = random_address(random, packets);
    let mut bytes = match opcode {
        packet::Opcode::Launch => launch(random, packets, header),
        packet::Opcode::Copy => CopyRange {
            header,
            destination: address,
            source: random_address(random, packets),
            length: random.word() % 512,
            ..CopyRange::default()
        }
        .as_bytes()
        .to_vec(),
        packet::Opcode::Fill => Fill {
            header,
            destination: address,
            length: 4 * (random.word() % 128),
            pattern: random.word() as u32 & 0xff,
            width: *random.pick(&[1, 2, 4]),
            ..Fill::default()
        }
        .as_bytes()
        .to_vec(),
        _ => Fence {
            header,
            address,
            value: if opcode == packet::Opcode::FenceRelease {
                random.tricky()
            } else {
                0
            },
            ..Fence::default()
        }
        .as_bytes()
        .to_vec(),
    };
    if random.once_in(64) {
        let at = random.below(bytes.len());
        bytes[at] ^= random.word() as u8;
    }
    bytes
}

fn launch(random: &mut Random, packets: &Packets, header: packet::Header) -> Vec<u8> {
    let launch = Launch {
        header,
        function: if random.once_in(64) {
            random.tricky() as u32
        } else {
            packets.function
        },
        grid: [1, 1, 1 + random.below(3) as u32],
        block: [1, 1, 1],
        parameter_bytes: if random.once_in(64) {
            random.tricky() as u32
        } else {
            16
        },
        ..Launch::default()
    };
    let mut bytes = launch.as_bytes().to_vec();
    bytes.resize(2 * UNIT_BYTES, 0);
    bytes
}

#[test]
fn packets_in_a_ring() {
    let seed = seeded::seed();
    let count = seeded::input_count(20_000);
    let mut packets = Packets::new();
    let mut index = 0;
    while index < count {
        let input = Input { seed, index };
        let mut random = Random::of_input(seed, index);
        if random.once_in(64) {
            packets.claim(random.tricky());
            index += 1;
        } else {
            let inputs = 1 + random.word() % 32;
            let units: Vec<u8> = (0..inputs)
                .flat_map(|_| random_packet(&mut random, &packets))
                .collect();
            packets.submit(&units);
            index += inputs;
        }
        if packets.lost() {
            std::mem::take(&mut packets).finish();
        }
        drop(input);
    }
    packets.finish();
}
