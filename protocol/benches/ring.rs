//! What a packet costs before and after the memory between the two sides: publishing, taking,
//! decoding.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use causeway_protocol::message::{self, MapGpu};
use causeway_protocol::packet::{
    CopyRange, Fence, Header, Launch, LaunchShape, Opcode, UNIT_BYTES,
};
use causeway_protocol::ring::{Positions, prepare_sleep, publish};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The positions of a ring, on cache lines of their own as in the header page.
#[derive(Default)]
struct Ring {
    producer: Line,
    wake: Line,
}

#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Positions for Ring {
    fn producer(&self) -> u64 {
        self.producer.0.load(Ordering::Acquire)
    }
    fn set_producer(&self, position: u64) {
        self.producer.0.store(position, Ordering::Release);
    }
    fn wake(&self) -> u64 {
        self.wake.0.load(Ordering::Relaxed)
    }
    fn set_wake(&self, position: u64) {
        self.wake.0.store(position, Ordering::Relaxed);
    }
    fn full_fence(&self) {
        fence(Ordering::SeqCst);
    }
}

fn positions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("positions");
    let ring = Ring::default();
    let mut position = 0u64;
    group.bench_function("publish to a consumer that is awake", |bencher| {
        bencher.iter(|| {
            position += 1;
            black_box(publish(black_box(&ring), position - 1, position))
        });
    });
    group.bench_function("prepare to sleep, and find work", |bencher| {
        bencher.iter(|| black_box(prepare_sleep(black_box(&ring), black_box(7))));
    });
    group.finish();
}

/// One unit of ring space with a packet in it.
type Unit = [u8; UNIT_BYTES];

fn unit(packet: &(impl IntoBytes + Immutable)) -> Unit {
    let mut unit = [0; UNIT_BYTES];
    unit.copy_from_slice(packet.as_bytes());
    unit
}

fn header(opcode: Opcode) -> Header {
    Header {
        opcode: opcode as u16,
        units: 1,
        ..Header::default()
    }
}

/// A launch, a copy and a fence, over and over.
fn packets() -> Vec<Unit> {
    let launch = Launch {
        header: header(Opcode::Launch),
        shape: LaunchShape {
            shared_bytes: 0,
            grid: [7; 3],
            block: [32; 3],
        },
        ..Launch::default()
    };
    let copy = CopyRange {
        header: header(Opcode::Copy),
        length: 4096,
        ..CopyRange::default()
    };
    let release = Fence {
        header: header(Opcode::FenceRelease),
        value: 9,
        ..Fence::default()
    };
    [unit(&launch), unit(&copy), unit(&release)]
        .into_iter()
        .cycle()
        .take(1023)
        .collect()
}

/// Reads the head, finds the structure, and takes a number out of it that no step can be dropped
/// for.
fn decode(unit: &Unit) -> Option<u64> {
    let (head, _) = Header::read_from_prefix(unit).ok()?;
    match Opcode::from_wire(head.opcode)? {
        Opcode::Launch => Launch::read_from_bytes(unit)
            .ok()
            .map(|launch| u64::from(launch.shape.grid[0])),
        Opcode::Copy => CopyRange::read_from_bytes(unit)
            .ok()
            .map(|copy| copy.length),
        Opcode::FenceRelease => Fence::read_from_bytes(unit).ok().map(|fence| fence.value),
        _ => None,
    }
}

fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    let packets = packets();
    group.throughput(Throughput::Elements(packets.len() as u64));
    group.bench_function("packets", |bencher| {
        bencher.iter(|| {
            packets
                .iter()
                .map(black_box)
                .filter_map(decode)
                .sum::<u64>()
        });
    });
    let mut map = vec![0; message::message_bytes(message::Opcode::MapGpu)];
    map[0] = message::Opcode::MapGpu as u8;
    group.throughput(Throughput::Elements(1));
    group.bench_function("a control message", |bencher| {
        bencher.iter(|| {
            let (head, body) = message::Header::read_from_prefix(black_box(&map[..])).ok()?;
            let opcode = message::Opcode::from_wire(head.opcode)?;
            let (request, _) = MapGpu::read_from_prefix(body).ok()?;
            Some(request.length + message::message_bytes(opcode) as u64)
        });
    });
    group.finish();
}

criterion_group!(benches, positions, decoding);
criterion_main!(benches);
