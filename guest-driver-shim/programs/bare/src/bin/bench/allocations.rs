//! Measures allocations: from a pool of the shim, without an exit; and by the mediator, with one
//! batch to allocate and map, and one to free.

use causeway_bench_workloads::Line;
use causeway_guests::Required;
use causeway_shim::protocol::message::{self, PREVIOUS};
use causeway_shim::{Access, MemoryKind, Pool, PoolStorage, operation};
use causeway_testdev_records::PhasePath;

use crate::Bench;
use crate::line::{Repeat, Sample};

const SIZES: [u64; 2] = [1 << 20, 64 << 20];

/// Size of the memory that a pool takes from the mediator at a time, in bytes.
const CHUNK_BYTES: u64 = 64 << 20;
/// Number of pieces in one sample.
const PIECES: u32 = 100;

pub fn measure(bench: &mut Bench<'_>) {
    for bytes in SIZES {
        pooled(bench, bytes);
    }
    for bytes in SIZES {
        for line in [Line::Allocate, Line::AllocateVmm] {
            let sample = Sample {
                line,
                path: PhasePath::Control,
                operations: 10,
                bytes,
            };
            bench.measure(sample, &mut ByMediator { bytes });
        }
    }
}

/// Measures device memory from a pool, which gets its chunk with the first piece.
fn pooled(bench: &mut Bench<'_>, bytes: u64) {
    if !bench.selection.wants(Line::AllocatePooled) {
        return;
    }
    let mut storage = PoolStorage::<64, 4>::new();
    let pool = Pool::new(bench.space, MemoryKind::Device, CHUNK_BYTES, &mut storage);
    let mut pieces = FromPool {
        pool: pool.required("a pool of memory"),
        bytes,
    };
    let sample = Sample {
        line: Line::AllocatePooled,
        path: PhasePath::Data,
        operations: PIECES,
        bytes,
    };
    bench.measure(sample, &mut pieces);
}

struct FromPool<'s, 'd> {
    pool: Pool<'s, 'd>,
    bytes: u64,
}

impl<'d> Repeat<'d> for FromPool<'_, '_> {
    fn prepare(&mut self, _: &mut Bench<'d>) {}

    fn run(&mut self, bench: &mut Bench<'d>) {
        for _ in 0..PIECES {
            self.one(bench);
        }
    }

    fn finish(&mut self, _: &mut Bench<'d>) {}

    fn one(&mut self, _: &mut Bench<'d>) -> bool {
        let piece = self.pool.allocate(self.bytes, 1).required("a piece");
        self.pool.free(piece).required("freeing it");
        true
    }
}

struct ByMediator {
    bytes: u64,
}

impl<'d> Repeat<'d> for ByMediator {
    fn prepare(&mut self, _: &mut Bench<'d>) {}

    fn run(&mut self, bench: &mut Bench<'d>) {
        for _ in 0..10 {
            self.one(bench);
        }
    }

    fn finish(&mut self, _: &mut Bench<'d>) {}

    fn one(&mut self, bench: &mut Bench<'d>) -> bool {
        let handle = allocate_mapped(bench, self.bytes);
        let request = message::HandleRequest {
            handle,
            reserved: 0,
        };
        let freed = bench.device.call::<operation::Free>(&request);
        freed.required("freeing");
        true
    }
}

/// Measures device memory that is allocated and mapped for the GPU with one exit.
fn allocate_mapped(bench: &Bench<'_>, bytes: u64) -> u32 {
    let mut batch = bench.device.batch();
    let allocated = batch.push::<operation::Allocate>(&message::Allocate {
        size: bytes,
        kind: MemoryKind::Device as u32,
        flags: 0,
    });
    let mapped = batch.push::<operation::MapGpu>(&message::MapGpu {
        space: bench.space.handle(),
        allocation: PREVIOUS,
        offset: 0,
        length: bytes,
        address: 0,
        access: Access::ReadWrite.wire(),
        reserved: 0,
    });
    let replies = batch.execute();
    replies.require(mapped).required("mapping");
    replies.require(allocated).required("allocating").handle
}
