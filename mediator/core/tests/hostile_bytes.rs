//! Generated batches and packets by the thousand, or as many as `CAUSEWAY_FUZZ_INPUTS` says: no
//! panic, no memory beyond the quota, and nothing left when the session ends. `fuzz/README.md` says
//! more.

#[path = "../../../tests/fuzz/src/control.rs"]
#[allow(
    dead_code,
    reason = "shared with the fuzz targets, which use all of it"
)]
mod control;
#[path = "../../../tests/fuzz/src/packets.rs"]
#[allow(
    dead_code,
    reason = "shared with the fuzz targets, which use all of it"
)]
mod packets;
#[path = "../../../tests/fuzz/src/seeded.rs"]
#[allow(dead_code, reason = "shared with other tests, which use all of it")]
mod seeded;

use std::collections::BTreeMap;

use causeway_protocol::message::{Header, OPCODES, Opcode, PREVIOUS, allocate_flags};
use causeway_protocol::packet::{
    self, ArrayBox, CopyArray, CopyRange, CopyRect, CopyShape, Fence, Fill, FillRect, FillShape,
    Launch, LaunchOptions, LaunchShape, RectSide, Replay, UNIT_BYTES,
};
use control::{Control, message};
use packets::Packets;
use seeded::Random;
use zerocopy::{FromBytes, IntoBytes};

/// Batches that one session lives through.
const BATCHES: u64 = 200;

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

/// What a field of a request wants.
#[derive(Clone, Copy)]
enum Field {
    /// 32 bits: a handle of the kind that this opcode creates.
    Of(Opcode),
    /// 32 bits: access rights.
    Access,
    /// 32 bits: a small number.
    Small,
    /// 32 bits: a priority.
    Priority,
    /// 32 bits: zero, most of the time.
    Reserved,
    /// 64 bits: a size, at most a few MiB.
    Size,
    /// 64 bits: zero, most of the time.
    Zero,
    /// 64 bits: where something is mapped.
    Address,
    /// 64 bits: where packets lie.
    Packets,
    /// 64 bits: a size of packets.
    Units,
    /// 32 bytes that an export gave.
    Token,
    /// 64 bytes that `export_fabric` gave.
    Fabric,
    /// 32 bits: options of an allocation.
    Flags,
    /// 32 bits: the length of a name; 64 bits: the name.
    Name,
    /// 64 bits: elements of an array in one dimension.
    Few,
    /// 32 bits: the format of a channel.
    Format,
    /// 32 bits: a number of channels.
    Channels,
    /// 32 bits: what a texture is made of.
    Source,
}

/// The fields of an opcode's request, in order.
fn fields(opcode: Opcode) -> &'static [Field] {
    use Field::{
        Access, Address, Channels, Fabric, Few, Flags, Format, Name, Of, Packets, Priority,
        Reserved, Size, Small, Source, Token, Units, Zero,
    };
    const SPACE: Field = Of(Opcode::CreateSpace);
    const MEMORY: Field = Of(Opcode::Allocate);
    const MODULE: Field = Of(Opcode::LoadModule);
    match opcode {
        Opcode::Hello => &[Small],
        Opcode::QueryAttributes
        | Opcode::QueryFault
        | Opcode::QueryDevice
        | Opcode::QueryBusy
        | Opcode::QueryGpus
        | Opcode::CreateSpace => &[],
        Opcode::DestroySpace => &[SPACE],
        Opcode::Allocate => &[Size, Small, Flags],
        Opcode::Free => &[MEMORY],
        Opcode::MapGpu => &[SPACE, MEMORY, Zero, Size, Zero, Access],
        Opcode::UnmapGpu => &[SPACE, Reserved, Address],
        Opcode::UnmapCpu => &[Zero, Address],
        Opcode::MapCpu => &[MEMORY, Access, Zero, Size],
        Opcode::SetAccess => &[SPACE, Access, Address],
        Opcode::Export => &[MEMORY, Access, Zero],
        Opcode::Import => &[Token, Access],
        Opcode::Revoke => &[Token],
        Opcode::ExportFabric => &[MEMORY],
        Opcode::ImportFabric => &[Fabric, Size],
        Opcode::LoadModule => &[SPACE, Small, Zero, Size, Zero],
        Opcode::UnloadModule => &[MODULE],
        Opcode::GetKernel | Opcode::GetVariable => &[MODULE, Name],
        Opcode::QueryKernel => &[Of(Opcode::GetKernel)],
        Opcode::KernelName => &[MODULE, Small, Small],
        Opcode::GetKernelAt => &[MODULE, Small],
        Opcode::ReadOutput => &[SPACE],
        Opcode::EncodeTensorMap => &[SPACE, Small, Address, Small, Small],
        Opcode::CreateCommandBuffer => &[SPACE, MEMORY, Zero, Size],
        Opcode::CreatePriorityCommandBuffer => &[SPACE, MEMORY, Zero, Size, Priority],
        Opcode::DestroyCommandBuffer => &[Of(Opcode::CreateCommandBuffer)],
        Opcode::RegisterRam => &[Zero, Size],
        Opcode::Wait => &[SPACE, Reserved, Address, Zero, Size],
        Opcode::Notify => &[SPACE, Reserved, Address, Size],
        Opcode::CreateRecording => &[SPACE, Reserved, Packets, Units],
        Opcode::DestroyRecording => &[Of(Opcode::CreateRecording)],
        Opcode::CreateArray => &[SPACE, Flags, Few, Few, Few, Format, Channels],
        Opcode::DestroyArray => &[Of(Opcode::CreateArray)],
        Opcode::CreateTexture => &[SPACE, Source, Of(Opcode::CreateArray), Reserved, Zero],
        Opcode::DestroyTexture => &[Of(Opcode::CreateTexture)],
    }
}

/// What the session has handed out lately, so that later messages can name it.
#[derive(Default)]
struct Names {
    handles: BTreeMap<&'static str, Vec<u32>>,
    addresses: Vec<u64>,
    tokens: Vec<[u8; 32]>,
    fabric: Vec<[u8; 64]>,
    /// Messages that succeeded, by opcode.
    succeeded: BTreeMap<&'static str, u64>,
}

impl Names {
    /// Reads the replies in a batch that was executed.
    fn learn(&mut self, mut batch: &[u8]) {
        while let Ok((header, body)) = Header::read_from_prefix(batch) {
            if let (Some(opcode), 0) = (Opcode::from_wire(header.opcode), header.status) {
                *self.succeeded.entry(opcode.name()).or_default() += 1;
                self.learn_reply(opcode, body);
            }
            let Some(rest) = batch.get((header.length as usize).max(1)..) else {
                return;
            };
            batch = rest;
        }
    }

    fn learn_reply(&mut self, opcode: Opcode, body: &[u8]) {
        let word = u64::read_from_prefix(body).map_or(0, |(word, _)| word);
        match opcode {
            Opcode::MapGpu | Opcode::MapCpu => remember(&mut self.addresses, word),
            Opcode::Export => {
                let token = <[u8; 32]>::read_from_prefix(body);
                remember(&mut self.tokens, token.map_or([0; 32], |(token, _)| token));
            }
            Opcode::ExportFabric => {
                let handle = <[u8; 64]>::read_from_prefix(body);
                remember(
                    &mut self.fabric,
                    handle.map_or([0; 64], |(handle, _)| handle),
                );
            }
            _ => {
                let kind = match opcode {
                    // Ranges of RAM and imports are memory too.
                    Opcode::Import | Opcode::ImportFabric | Opcode::RegisterRam => Opcode::Allocate,
                    Opcode::CreatePriorityCommandBuffer => Opcode::CreateCommandBuffer,
                    other => other,
                };
                remember(self.handles.entry(kind.name()).or_default(), word as u32);
            }
        }
    }
}

/// Keeps the last few.
fn remember<T>(known: &mut Vec<T>, new: T) {
    known.push(new);
    if known.len() > 6 {
        known.remove(0);
    }
}

/// A message whose fields mostly hold what they should; now and then one holds anything.
fn random_message(random: &mut Random, names: &Names) -> Vec<u8> {
    // Command buffers need most of what else there is, so that few messages about them succeed.
    let opcode = match random.once_in(8) {
        true => *random.pick(&[
            Opcode::CreateCommandBuffer,
            Opcode::CreatePriorityCommandBuffer,
            Opcode::DestroyCommandBuffer,
        ]),
        false => *random.pick(OPCODES),
    };
    let mut bytes = message(opcode);
    let mut body = &mut bytes[size_of::<Header>()..];
    for field in fields(opcode) {
        let value = random_field(random, names, *field);
        let (place, rest) = body.split_at_mut(value.len());
        place.copy_from_slice(&value);
        body = rest;
    }
    bytes
}

fn random_field(random: &mut Random, names: &Names, field: Field) -> Vec<u8> {
    let odd = random.once_in(12).then(|| random.tricky());
    let narrow = |usual: u32| odd.map_or(usual, |odd| odd as u32).to_le_bytes().to_vec();
    let wide = |usual: u64| odd.unwrap_or(usual).to_le_bytes().to_vec();
    match field {
        Field::Of(opcode) => {
            let known = names.handles.get(opcode.name());
            let known = known.map(|handles| *random.pick(handles));
            narrow(if random.once_in(4) {
                PREVIOUS
            } else {
                known.unwrap_or(PREVIOUS)
            })
        }
        Field::Few => wide(*random.pick(&[0, 1, 2, 6, 8])),
        Field::Format => narrow(*random.pick(&[1, 2, 3, 8, 9, 10, 16, 32])),
        Field::Channels => narrow(*random.pick(&[1, 2, 4])),
        Field::Source => narrow(*random.pick(&[0, 0, 3])),
        Field::Access => narrow(*random.pick(&[0, 1, 3])),
        Field::Small => narrow(*random.pick(&[0, 0, 1, 2, 8])),
        Field::Priority => narrow(random.pick(&[0, -1, -5, -99, 7_i32]).cast_unsigned()),
        Field::Reserved => narrow(0),
        Field::Size => wide(*random.pick(&[8, 107, 4096, 20_480, 20_480, 69_632, 69_632, 1 << 20])),
        Field::Zero => wide(0),
        Field::Address if names.addresses.is_empty() => wide(0),
        Field::Address => wide(*random.pick(&names.addresses)),
        Field::Packets => wide(control::PACKETS + 32 * (random.word() % 4)),
        Field::Units => wide(*random.pick(&[64, 128, 4096, 1 << 20, 2 << 20])),
        Field::Name => [narrow(1), wide(u64::from(b'k'))].concat(),
        Field::Flags => narrow(*random.pick(&[0, allocate_flags::FABRIC])),
        Field::Fabric if names.fabric.is_empty() => vec![0; 64],
        Field::Fabric => random.pick(&names.fabric).to_vec(),
        Field::Token if names.tokens.is_empty() => vec![0; 32],
        Field::Token => random.pick(&names.tokens).to_vec(),
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
        if control.execute(&mut batch) {
            names.learn(&batch);
        }
        if index % BATCHES == BATCHES - 1 {
            std::mem::take(&mut control).finish();
            names.handles.clear();
            names.addresses.clear();
        }
        drop(input);
    }
    control.finish();
    // Inputs that are all refused would test little.
    for opcode in OPCODES {
        let succeeded = names.succeeded.get(opcode.name()).copied().unwrap_or(0);
        let wanted = count / 10_000;
        let name = opcode.name();
        assert!(
            succeeded >= wanted,
            "`{name}` succeeded {succeeded} times, not {wanted}"
        );
    }
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
    let opcodes = packet::OPCODES;
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
        packet::Opcode::CopyRect => copy_rect(random, packets, header),
        packet::Opcode::FillRect => FillRect {
            header,
            shape: FillShape {
                destination: address,
                pitch: number(random, 64).wrapping_mul(4),
                height: number(random, 64),
                width: 4 * u64::from(number(random, 32)),
                pattern: random.word() as u32 & 0xff,
                element: *random.pick(&[1, 2, 4]),
            },
            ..FillRect::default()
        }
        .as_bytes()
        .to_vec(),
        packet::Opcode::CopyArray => copy_array(random, packets, header),
        packet::Opcode::Replay => Replay {
            header,
            recording: packets.recording,
            ..Replay::default()
        }
        .as_bytes()
        .to_vec(),
        _ => fence(random, header, opcode, address).as_bytes().to_vec(),
    };
    if random.once_in(64) {
        let at = random.below(bytes.len());
        bytes[at] ^= random.word() as u8;
    }
    bytes
}

fn fence(
    random: &mut Random,
    header: packet::Header,
    opcode: packet::Opcode,
    address: u64,
) -> Fence {
    let is_half = opcode != packet::Opcode::Timestamp && random.once_in(2);
    let value = match opcode {
        packet::Opcode::FenceRelease => random.tricky(),
        _ => 0,
    };
    Fence {
        header,
        // Either half of a word.
        address: address.wrapping_add(u64::from(is_half) * (random.word() & 4)),
        value: if is_half { value & 0xffff_ffff } else { value },
        flags: if random.once_in(64) {
            random.tricky() as u32
        } else {
            u32::from(is_half) * packet::fence_flags::HALF
        },
        condition: match opcode {
            packet::Opcode::FenceAcquire => number(random, 5),
            _ => u32::from(random.once_in(64)),
        },
        ..Fence::default()
    }
}

/// A number below `end`, mostly.
fn number(random: &mut Random, end: u32) -> u32 {
    match random.word() % 64 {
        0 => random.tricky() as u32,
        _ => random.word() as u32 % end,
    }
}

fn copy_rect(random: &mut Random, packets: &Packets, header: packet::Header) -> Vec<u8> {
    let mut side = || RectSide {
        address: random_address(random, packets),
        pitch: number(random, 128),
        rows: number(random, 16),
    };
    let (destination, source) = (side(), side());
    let copy = CopyRect {
        header,
        shape: CopyShape {
            destination,
            source,
            width: u64::from(number(random, 64)),
            height: number(random, 16),
            depth: number(random, 4),
        },
        ..CopyRect::default()
    };
    copy.as_bytes().to_vec()
}

fn copy_array(random: &mut Random, packets: &Packets, header: packet::Header) -> Vec<u8> {
    let copy = CopyArray {
        header,
        array: packets.array,
        direction: number(random, 2),
        part: ArrayBox {
            memory: RectSide {
                address: random_address(random, packets),
                pitch: number(random, 128),
                rows: number(random, 16),
            },
            origin: [4, 4, 2].map(|end| number(random, end)),
            width: number(random, 8).wrapping_mul(4),
            height: number(random, 8),
            depth: number(random, 4),
        },
        ..CopyArray::default()
    };
    copy.as_bytes().to_vec()
}

fn launch(random: &mut Random, packets: &Packets, header: packet::Header) -> Vec<u8> {
    let launch = Launch {
        header,
        kernel: if random.once_in(64) {
            random.tricky() as u32
        } else {
            packets.kernel
        },
        shape: LaunchShape {
            shared_bytes: 0,
            grid: [1, 1, 1 + random.below(3) as u32],
            block: [1, 1, 1],
        },
        parameter_bytes: if random.once_in(64) {
            random.tricky() as u32
        } else {
            16
        },
        options: LaunchOptions {
            flags: number(random, 2),
            cluster: [number(random, 2); 3],
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
