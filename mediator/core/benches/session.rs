//! What a session adds to the work of a back end and a VMM, both of which are fakes here: control
//! batches, and packets through a command buffer.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_mediator::{Mediator, Quota, Session};
use causeway_mediator_testing::{Batch, FakeBackend, FakeHost, Producer, ask};
use causeway_protocol::Access;
use causeway_protocol::message::{
    AddressReply, Allocate, AllocateReply, CommandBufferReply, CreateCommandBuffer, Empty,
    HandleReply, HandleRequest, Hello, HelloReply, MapCpu, MapGpu, MemoryKind, Opcode, PREVIOUS,
};
use causeway_protocol::packet::{self, Fence, Header};
use causeway_protocol::ring;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use zerocopy::IntoBytes;

/// Bytes of RAM and aperture of the fake guest.
const RAM_BYTES: u64 = 1 << 20;
const APERTURE_BYTES: u64 = 1 << 30;
const RING_UNITS: u64 = 4096;

/// A session that has been opened with hello, with an address space.
struct Guest {
    host: Arc<FakeHost>,
    session: Arc<Session>,
    space: u32,
}

fn guest() -> Guest {
    let host = FakeHost::new(RAM_BYTES, APERTURE_BYTES).expect("host memory");
    let mediator = Mediator::new(FakeBackend::new());
    let session = mediator.open(Arc::clone(&host) as _, Quota::default(), "bench");
    let hello = Hello {
        major: causeway_protocol::VERSION_MAJOR,
        ..Hello::default()
    };
    ask::<_, HelloReply>(&session, Opcode::Hello, &hello).expect("hello");
    let space: HandleReply = ask(&session, Opcode::CreateSpace, &Empty::default()).expect("space");
    Guest {
        host,
        session,
        space: space.handle,
    }
}

fn allocate(size: u64) -> Allocate {
    Allocate {
        size,
        kind: MemoryKind::Host as u32,
        ..Allocate::default()
    }
}

fn control(criterion: &mut Criterion) {
    let guest = guest();
    let mut group = criterion.benchmark_group("control");
    let one = |opcode, request: &Empty| {
        let mut batch = Batch::new();
        batch.push(opcode, request);
        batch
    };
    let query = one(Opcode::QueryAttributes, &Empty::default());
    group.bench_function("query attributes", |bencher| {
        let run = |mut batch: Batch| black_box(batch.run(&guest.session));
        bencher.iter_batched(|| query.clone(), run, BatchSize::SmallInput);
    });
    let mut round = Batch::new();
    let (space, length) = (guest.space, 64 << 10);
    let access = Access::ReadWrite as u32;
    round
        .push(Opcode::Allocate, &allocate(length))
        .push(
            Opcode::MapGpu,
            &MapGpu {
                space,
                allocation: PREVIOUS,
                length,
                access,
                ..MapGpu::default()
            },
        )
        .push(
            Opcode::MapCpu,
            &MapCpu {
                allocation: PREVIOUS,
                length,
                access,
                ..MapCpu::default()
            },
        );
    group.bench_function("allocate 64 KiB, map for GPU and CPU, free", |bencher| {
        let run = |mut batch: Batch| {
            batch.run(&guest.session);
            let made: AllocateReply = batch.reply(0).expect("an allocation");
            ask::<_, Empty>(
                &guest.session,
                Opcode::Free,
                &HandleRequest {
                    handle: made.handle,
                    ..HandleRequest::default()
                },
            )
        };
        bencher.iter_batched(|| round.clone(), run, BatchSize::SmallInput);
    });
    group.finish();
}

/// Makes a command buffer, and a second allocation for its packets to work on. Gives producer and
/// GPU address.
fn command_buffer(guest: &Guest) -> (Producer, u64) {
    let session = &guest.session;
    let length = ring::ring_bytes(RING_UNITS);
    let ring: AllocateReply = ask(session, Opcode::Allocate, &allocate(length)).expect("ring");
    let access = Access::ReadWrite as u32;
    let in_aperture = MapCpu {
        allocation: ring.handle,
        length,
        access,
        ..MapCpu::default()
    };
    let placed: AddressReply = ask(session, Opcode::MapCpu, &in_aperture).expect("placement");
    let create = CreateCommandBuffer {
        space: guest.space,
        allocation: ring.handle,
        length,
        ..CreateCommandBuffer::default()
    };
    ask::<_, CommandBufferReply>(session, Opcode::CreateCommandBuffer, &create)
        .expect("command buffer");
    let data: AllocateReply = ask(session, Opcode::Allocate, &allocate(4096)).expect("data");
    let map = MapGpu {
        space: guest.space,
        allocation: data.handle,
        length: 4096,
        access,
        ..MapGpu::default()
    };
    let mapped: AddressReply = ask(session, Opcode::MapGpu, &map).expect("mapping");
    let memory = guest
        .host
        .map(placed.address)
        .expect("ring in the aperture");
    (Producer::new(memory).expect("a ring"), mapped.address)
}

fn packets(criterion: &mut Criterion) {
    const PACKETS: u64 = 2048;
    let guest = guest();
    let (mut producer, address) = command_buffer(&guest);
    let header = |opcode: packet::Opcode| Header {
        opcode: opcode as u16,
        units: 1,
        ..Header::default()
    };
    let mut nop = [0; packet::UNIT_BYTES];
    nop[..8].copy_from_slice(header(packet::Opcode::Nop).as_bytes());
    let release = Fence {
        header: header(packet::Opcode::FenceRelease),
        address,
        value: 1,
        ..Fence::default()
    };
    let mut group = criterion.benchmark_group("packets through a command buffer");
    group.throughput(Throughput::Elements(PACKETS));
    for (name, unit) in [("no-op", &nop[..]), ("fence release", release.as_bytes())] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                (0..PACKETS).for_each(|_| producer.push(unit));
                if producer.publish() {
                    guest
                        .host
                        .doorbells()
                        .into_iter()
                        .for_each(|index| assert!(guest.host.ring(index), "no doorbell {index}"));
                }
                while producer.consumed() != producer.position() {
                    assert_eq!(producer.fault(), 0, "the consumer stopped");
                    std::hint::spin_loop();
                }
            });
        });
    }
    // The consumer alone: the ring is filled before the clock starts.
    group.bench_function("no-op, consumption alone", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                (0..PACKETS).for_each(|_| producer.push(&nop));
                let begun = Instant::now();
                if producer.publish() {
                    let doorbells = guest.host.doorbells();
                    doorbells.into_iter().for_each(|index| {
                        assert!(guest.host.ring(index), "no doorbell {index}");
                    });
                }
                while producer.consumed() != producer.position() {
                    std::hint::spin_loop();
                }
                spent += begun.elapsed();
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, control, packets);
criterion_main!(benches);
