//! Hostile guests by the thousand: whatever comes in, nothing panics, no quota is passed, and closing
//! the session releases everything. `CAUSEWAY_FUZZ_INPUTS` says how many inputs each test takes.

mod rig;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_mediator::fake::Batch;
use causeway_mediator::{Client, Quota};
use causeway_protocol::message::*;
use causeway_protocol::packet::{self, UNIT_BYTES};
use rig::*;
use zerocopy::IntoBytes;

const MEMORY_BYTES: u64 = 1 << 20;
/// Guest-physical address of packets to record.
const PACKETS: u64 = 0x2000;

fn inputs() -> u64 {
    let set = std::env::var("CAUSEWAY_FUZZ_INPUTS").ok();
    set.and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

fn small_quota() -> Quota {
    Quota {
        memory_bytes: MEMORY_BYTES,
        module_bytes: 1 << 16,
        allocations: 24,
        command_buffers: 3,
        objects: 48,
    }
}

fn hostile_rig() -> Rig {
    let rig = Rig::with_quota(small_quota());
    rig.backend.define("add", 16, |launch| {
        launch.store(launch.parameter(0), launch.parameter(8))
    });
    rig.guest
        .host
        .ram_mapping()
        .write(0, b"kernel add")
        .unwrap();
    // A page of packets that can be recorded, and what cannot behind it.
    for at in (PACKETS..PACKETS + 4096).step_by(UNIT_BYTES) {
        let ram = rig.guest.host.ram_mapping();
        ram.write(at, release(0, 1).as_bytes()).unwrap();
    }
    rig
}

/// A word that has a chance to mean something.
fn word(random: &mut Random, handles: &[u32]) -> u32 {
    match random.below(10) {
        0..=2 if !handles.is_empty() => random.pick(handles),
        0..=4 => random.pick(&[0, 1, 2, 3, PREVIOUS]),
        5 | 6 => random.pick(&[4096, 8192, 0x1_0000, 10, 64, 4096 + 16384]),
        7 => random.pick(&[u32::MAX, 0x8000_0000, 4095, 1 << 20]),
        8 => random.next() as u32,
        _ => 0,
    }
}

/// What the guest has learnt so far.
#[derive(Default)]
struct Known {
    spaces: Vec<u32>,
    memories: Vec<u32>,
    modules: Vec<u32>,
    buffers: Vec<u32>,
    recordings: Vec<u32>,
    addresses: Vec<u64>,
    token: Token,
}

impl Known {
    fn of<T: Copy + Default>(random: &mut Random, list: &[T], otherwise: T) -> T {
        match list.is_empty() || random.one_in(16) {
            true => otherwise,
            false => random.pick(list),
        }
    }

    fn space(&self, random: &mut Random) -> u32 {
        Self::of(random, &self.spaces, PREVIOUS)
    }

    fn memory(&self, random: &mut Random) -> u32 {
        Self::of(random, &self.memories, PREVIOUS)
    }

    fn any(&self, random: &mut Random) -> u32 {
        let lists = [
            &self.spaces,
            &self.memories,
            &self.modules,
            &self.buffers,
            &self.recordings,
        ];
        Self::of(random, random_list(random, &lists), 7)
    }

    /// Notes what a message returned.
    fn learn(&mut self, opcode: Opcode, batch: &Batch, message: usize) {
        let handle = batch
            .reply::<HandleReply>(message)
            .map(|reply| reply.handle);
        match opcode {
            Opcode::CreateSpace => self.spaces.extend(handle),
            Opcode::Allocate | Opcode::Import | Opcode::RegisterRam => self.memories.extend(handle),
            Opcode::LoadModule => self.modules.extend(handle),
            Opcode::CreateCommandBuffer => self.buffers.extend(handle),
            Opcode::CreateRecording => self.recordings.extend(handle),
            Opcode::MapGpu | Opcode::MapCpu => {
                let reply = batch.reply::<AddressReply>(message);
                self.addresses.extend(reply.map(|reply| reply.address));
            }
            Opcode::Export => self.token = batch.reply(message).unwrap_or_default(),
            _ => {}
        }
        for list in [
            &mut self.spaces,
            &mut self.memories,
            &mut self.modules,
            &mut self.buffers,
            &mut self.recordings,
        ] {
            list.drain(..list.len().saturating_sub(6));
        }
        self.addresses
            .drain(..self.addresses.len().saturating_sub(12));
    }
}

fn random_list<'a>(random: &Random, lists: &[&'a Vec<u32>]) -> &'a [u32] {
    lists[(random.0 >> 7) as usize % lists.len()]
}

/// A request that may well succeed.
fn plausible(opcode: Opcode, random: &mut Random, known: &Known) -> Vec<u8> {
    let access = random.pick(&[0, 1, 3, 3, 3]);
    let length = random.pick(&[4096, 8192, RING_BYTES, 1 << 16]);
    let offset = random.pick(&[0, 0, 0, 4096, 1 << 40]);
    let (space, allocation) = (known.space(random), known.memory(random));
    let address = Known::of(random, &known.addresses, 0);
    let reserved = 0;
    match opcode {
        Opcode::Hello => Hello {
            major: 1,
            minor: random.pick(&[0, 1, 2]),
            reserved,
        }
        .as_bytes()
        .to_vec(),
        Opcode::QueryAttributes | Opcode::QueryFault | Opcode::CreateSpace => Vec::new(),
        Opcode::DestroySpace
        | Opcode::Free
        | Opcode::UnloadModule
        | Opcode::DestroyCommandBuffer
        | Opcode::DestroyRecording => {
            let handle = known.any(random);
            HandleRequest { handle, reserved }.as_bytes().to_vec()
        }
        Opcode::Allocate => {
            let (size, kind) = (length, random.pick(&[0, 1, 2, 2, 2]));
            Allocate {
                size,
                kind,
                flags: random.pick(&[0, 0, 0, 0, 1]),
            }
            .as_bytes()
            .to_vec()
        }
        Opcode::MapGpu => {
            let address = random.pick(&[0, 0, 0x20_0000, 4096, u64::MAX - 4095]);
            MapGpu {
                space,
                allocation,
                offset,
                length,
                address,
                access,
                reserved,
            }
            .as_bytes()
            .to_vec()
        }
        Opcode::MapCpu => MapCpu {
            allocation,
            access,
            offset,
            length,
        }
        .as_bytes()
        .to_vec(),
        Opcode::UnmapGpu => SpaceAddress {
            space,
            reserved,
            address,
        }
        .as_bytes()
        .to_vec(),
        Opcode::UnmapCpu => SpaceAddress {
            space: 0,
            reserved,
            address,
        }
        .as_bytes()
        .to_vec(),
        Opcode::SetAccess => {
            let space = random.pick(&[0, space]);
            SetAccess {
                space,
                access,
                address,
            }
            .as_bytes()
            .to_vec()
        }
        Opcode::Export => Export { allocation, access }.as_bytes().to_vec(),
        Opcode::Import => {
            let token = known.token.token;
            Import {
                token,
                access,
                reserved,
            }
            .as_bytes()
            .to_vec()
        }
        Opcode::Revoke => known.token.as_bytes().to_vec(),
        Opcode::LoadModule => {
            let in_aperture = APERTURE_ADDRESS | address;
            let image_address = random.pick(&[0, 0, 0, in_aperture, u64::MAX - 9]);
            let image_bytes = random.pick(&[10, 10, 9]);
            let (log_bytes, log_address) = (64, random.pick(&[4096, 4096, in_aperture]));
            LoadModule {
                space,
                log_bytes,
                image_address,
                image_bytes,
                log_address,
            }
            .as_bytes()
            .to_vec()
        }
        Opcode::GetFunction => {
            let module = Known::of(random, &known.modules, PREVIOUS);
            let mut request = GetFunction {
                module,
                name_bytes: 3,
                ..GetFunction::default()
            };
            request.name[..3].copy_from_slice(b"add");
            request.as_bytes().to_vec()
        }
        Opcode::CreateCommandBuffer => {
            let length = RING_BYTES;
            CreateCommandBuffer {
                space,
                allocation,
                offset,
                length,
            }
            .as_bytes()
            .to_vec()
        }
        Opcode::CreateRecording => {
            let address = random.pick(&[PACKETS, PACKETS, APERTURE_ADDRESS | address]);
            let bytes = random.pick(&[64, 640, 4096, 4160, 1 << 20]);
            CreateRecording {
                space,
                reserved,
                address,
                bytes,
            }
            .as_bytes()
            .to_vec()
        }
        Opcode::RegisterRam => {
            let address = random.pick(&[0, 4096, 1 << 20]);
            RegisterRam { address, length }.as_bytes().to_vec()
        }
        Opcode::Notify => {
            let value = random.pick(&[0, 1]);
            Notify {
                space,
                reserved,
                address,
                value,
            }
            .as_bytes()
            .to_vec()
        }
        Opcode::Wait => {
            let (value, timeout_ns) = (random.pick(&[0, 1]), u64::MAX);
            Wait {
                space,
                reserved,
                address,
                value,
                timeout_ns,
            }
            .as_bytes()
            .to_vec()
        }
    }
}

/// A request of the right size, and of anything else.
fn arbitrary(opcode: Opcode, random: &mut Random, known: &Known) -> Vec<u8> {
    let mut body = vec![0; opcode.request_bytes()];
    for bytes in body.chunks_mut(4) {
        bytes.copy_from_slice(&word(random, &known.memories).to_le_bytes());
    }
    body
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = 0xff,
            3 => bytes.truncate(at.max(8)),
            4 => bytes.extend([0; 8]),
            _ => bytes[at] = 0,
        }
    }
}

#[test]
fn no_batch_panics_or_passes_the_quota() {
    let mut random = Random(1);
    let rig = hostile_rig();
    let guest = &rig.guest;
    // A wait must not make the test sleep.
    guest.session.interrupt();
    let (mut known, mut succeeded) = (Known::default(), BTreeSet::new());
    for _ in 0..inputs() {
        let mut batch = Batch::new();
        let opcodes: Vec<_> = (0..1 + random.below(4))
            .map(|_| random.pick(OPCODES))
            .collect();
        for opcode in &opcodes {
            let body = match random.one_in(8) {
                true => arbitrary(*opcode, &mut random, &known),
                false => plausible(*opcode, &mut random, &known),
            };
            batch.push(*opcode, &body[..]);
        }
        let mutated = random.one_in(4);
        if mutated {
            mutate(batch.bytes_mut(), &mut random);
        }
        // Another client that has learnt the names of the first. It may be reset at any time, and the first never notices.
        let other = Client::new(1).unwrap();
        if random.one_in(10) {
            let _ = batch.run_as(&guest.session, other);
            if random.one_in(4) {
                guest.session.reset_client(other);
                assert_eq!(guest.session.owners() & other.bit(), 0);
            }
            continue;
        }
        let _ = batch.run(&guest.session);
        for (message, opcode) in opcodes.iter().enumerate() {
            if !mutated && batch.outcome(message).0 == Some(Status::Ok) {
                known.learn(*opcode, &batch, message);
                succeeded.insert(opcode.name());
            }
        }
        assert!(guest.session.report().memory_used_bytes <= MEMORY_BYTES);
        if random.one_in(500) {
            guest.session.reset();
            guest.hello();
        }
    }
    assert!(rig.backend.peak_bytes() <= MEMORY_BYTES);
    // An interrupted session is busy for ever; all else must have been reached, or this test is blunt.
    assert!(succeeded.len() >= OPCODES.len() - 1, "{succeeded:?}");
    guest.session.close();
    assert_eq!(rig.backend.live(), NOTHING);
    assert!(guest.host.placements().is_empty() && guest.host.doorbells().is_empty());
}

/// A packet that will be executed.
fn good_packet(random: &mut Random, work: &Workplace) -> Vec<u8> {
    let (va, function, recording) = (work.va, work.function, work.recording);
    let address = va + 8 * (random.next() % 512);
    let number = random.next();
    match random.below(7) {
        0 => launch(function, [address, number].as_bytes()),
        1 => packet::Fill {
            header: header(packet::Opcode::Fill, 1),
            destination: va,
            length: random.pick(&[4, 64, 4096, 8192]),
            pattern: 0x7f,
            width: random.pick(&[1, 2, 4]),
            ..packet::Fill::default()
        }
        .as_bytes()
        .to_vec(),
        2 => packet::CopyRange {
            header: header(packet::Opcode::Copy, 1),
            destination: va,
            source: va + 2048,
            length: random.pick(&[1, 64, 2048]),
            ..packet::CopyRange::default()
        }
        .as_bytes()
        .to_vec(),
        3 => fence(packet::Opcode::Timestamp, va, 0).as_bytes().to_vec(),
        4 => header(packet::Opcode::Nop, 1).as_bytes().to_vec(),
        5 => replay(recording).as_bytes().to_vec(),
        _ => release(address, number).as_bytes().to_vec(),
    }
}

/// What the guest needs to submit work.
struct Workplace {
    space: u32,
    va: u64,
    function: u32,
    recording: u32,
    queue: Queue,
}

impl Workplace {
    fn new(guest: &Guest) -> Self {
        let space = guest.space();
        let (va, _view) = guest.buffer(space, 8192);
        let module = guest.load_module(space, "kernel add", 0).unwrap();
        let function = guest.function(module, "add").unwrap().handle;
        let work = launch(function, [va, 3].as_bytes());
        let recording = guest.record(space, &[&work, release(va, 1).as_bytes()]);
        Self {
            space,
            va,
            function,
            recording: recording.unwrap(),
            queue: guest.command_buffer(space),
        }
    }

    /// Puts a fresh command buffer in place of a dead one; a fresh session in place of a lost one.
    fn renew(&mut self, guest: &Guest) {
        let destroyed = guest.by_handle(Opcode::DestroyCommandBuffer, self.queue.handle);
        let freed = guest.free(self.queue.memory);
        if destroyed.and(freed).is_ok()
            && let Ok(queue) = guest.try_command_buffer(self.space)
        {
            self.queue = queue;
            return;
        }
        guest.session.reset();
        guest.hello();
        *self = Self::new(guest);
    }

    /// Whether everything submitted was consumed: a fault ends it, and a mutated fence acquire waits for ever.
    fn consumed(&self) -> bool {
        let producer = &self.queue.producer;
        let deadline = Instant::now() + Duration::from_millis(100);
        while producer.consumed() != producer.position() {
            if producer.fault() != 0 || Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}

#[test]
fn no_ring_content_panics_or_harms_another_session() {
    let mut random = Random(2);
    let rig = hostile_rig();
    let guest = &rig.guest;
    let neighbour = rig.another();
    let neighbours_space = neighbour.space();
    let (neighbours_va, view) = neighbour.buffer(neighbours_space, PAGE);
    let mut neighbours_queue = neighbour.command_buffer(neighbours_space);
    let mut work = Workplace::new(guest);
    let mut done = 0;
    while done < inputs() {
        for _ in 0..random.below(12) {
            let packet = good_packet(&mut random, &work);
            work.queue.producer.push(&packet);
            done += 1;
        }
        let mut last = good_packet(&mut random, &work);
        if random.one_in(2) {
            let whole = last.len();
            mutate(&mut last, &mut random);
            last.resize(whole.next_multiple_of(UNIT_BYTES), 0);
        }
        work.queue.submit(&[&last]);
        done += 1;
        if random.one_in(100) {
            let position = random.pick(&[0, 1, u64::MAX, done, 1 << 33]);
            let memory = work.queue.producer.memory();
            memory.store_u64(0, position, Ordering::Release).unwrap();
            guest.host.ring(work.queue.doorbell);
            work.renew(guest);
        } else if !work.consumed() {
            work.renew(guest);
        }
    }
    assert!(
        guest.session.report().launches > inputs() / 20,
        "most packets are executed"
    );
    neighbours_queue.submit(&[release(neighbours_va, 1).as_bytes()]);
    eventually("the neighbour's fence", || {
        view.load_u64(0, Ordering::Acquire) == Ok(1)
    });
    guest.session.close();
    neighbour.session.close();
    assert_eq!(rig.backend.live(), NOTHING);
}
