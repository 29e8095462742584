//! What stands in rings.

use causeway_mediator::GuestSession;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_protocol::message::{ArrayReply, CreateArray, Opcode};
use causeway_protocol::packet::{self, UNIT_BYTES};
use zerocopy::IntoBytes;

use crate::random::{Random, mutate};
use crate::rig::*;
use crate::{hostile_rig, inputs};

/// A packet that will be executed.
fn good_packet(random: &mut Random, work: &Workplace) -> Vec<u8> {
    let (va, kernel, recording) = (work.va, work.kernel, work.recording);
    let address = va + 8 * (random.next() % 512);
    let number = random.next();
    match random.below(11) {
        0 => launch(kernel, [address, number].as_bytes()),
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
        5 => {
            let side = |address| packet::RectSide {
                address,
                pitch: 128,
                rows: 8,
            };
            let shape = packet::CopyShape {
                destination: side(va),
                source: side(va + random.pick(&[64, 4096])),
                width: random.pick(&[1, 64]),
                height: random.pick(&[1, 8]),
                depth: random.pick(&[1, 4]),
            };
            copy_rect(shape).as_bytes().to_vec()
        }
        6 => packet::FillRect {
            header: header(packet::Opcode::FillRect, 1),
            shape: packet::FillShape {
                destination: va,
                pitch: random.pick(&[64, 128]),
                height: random.pick(&[1, 64]),
                width: random.pick(&[4, 64]),
                pattern: 0x7f,
                element: random.pick(&[1, 2, 4]),
            },
            ..packet::FillRect::default()
        }
        .as_bytes()
        .to_vec(),
        9 => {
            let part = packet::ArrayBox {
                memory: packet::RectSide {
                    address: va,
                    pitch: 64,
                    rows: 8,
                },
                origin: [random.pick(&[0, 4]), random.pick(&[0, 1]), 0],
                width: random.pick(&[4, 32]),
                height: random.pick(&[1, 7]),
                depth: random.pick(&[1, 2]),
            };
            let direction = random.pick(&[0, 1]);
            copy_array(work.array, direction, part).as_bytes().to_vec()
        }
        7 => replay(recording).as_bytes().to_vec(),
        8 => packet::Fence {
            flags: packet::fence_flags::HALF,
            ..release(address + random.pick(&[0, 4]), number >> 32)
        }
        .as_bytes()
        .to_vec(),
        _ => release(address, number).as_bytes().to_vec(),
    }
}

/// What the guest needs to submit work.
struct Workplace {
    space: u32,
    va: u64,
    kernel: u32,
    recording: u32,
    /// Ten numbers of 32 bits in a row, 8 rows, 2 slices.
    array: u32,
    queue: Queue,
}

impl Workplace {
    fn new(guest: &Guest) -> Self {
        let space = guest.space();
        let (va, _view) = guest.buffer(space, 8192);
        let module = guest.load_module(space, "kernel add", 0).unwrap();
        let kernel = guest.kernel(module, "add").unwrap().handle;
        let work = launch(kernel, [va, 3].as_bytes());
        let recording = guest.record(space, &[&work, release(va, 1).as_bytes()]);
        let array = CreateArray {
            space,
            width: 10,
            height: 8,
            depth: 2,
            format: 3,
            channels: 1,
            ..CreateArray::default()
        };
        let array: ArrayReply = guest.ask(Opcode::CreateArray, &array).unwrap();
        Self {
            array: array.handle,
            space,
            va,
            kernel,
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

    /// Whether everything submitted was consumed: a fault ends it, and a mutated fence acquire
    /// waits for ever.
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
        guest.session.report().statistics.launches > inputs() / 20,
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
