//! Measures the registration of guest RAM and the first stores to host memory.

use causeway_bench_workloads::Line;
use causeway_guests::{Required, touch};
use causeway_shim::protocol::message::{self, PREVIOUS};
use causeway_shim::{Access, Buffer, MemoryKind, Window, operation};
use causeway_testdev_records::PhasePath;

use crate::Bench;
use crate::copies::address;
use crate::line::{Repeat, Sample};

const BYTES: u64 = 64 << 20;

pub fn measure(bench: &mut Bench<'_>) {
    let sample = |line, path| Sample {
        line,
        path,
        operations: 1,
        bytes: BYTES,
    };
    if bench.selection.wants(Line::Register) {
        let ram = bench.machine.ram().window(BYTES as usize);
        let ram = ram.required("64 MiB of guest RAM (--memory 1024 gives enough)");
        let mut register = Register { ram };
        bench.measure(sample(Line::Register, PhasePath::Control), &mut register);
    }
    let mut fresh = FirstWrite { buffer: None };
    bench.measure(sample(Line::FirstWrite, PhasePath::Data), &mut fresh);
    let mut all = AllocateAndWrite;
    bench.measure(sample(Line::AllocateAndWrite, PhasePath::Control), &mut all);
}

/// Registers RAM, maps it for the GPU, and ends both.
struct Register {
    ram: Window,
}

impl<'d> Repeat<'d> for Register {
    fn prepare(&mut self, _: &mut Bench<'d>) {}

    fn run(&mut self, bench: &mut Bench<'d>) {
        let mut batch = bench.device.batch();
        let registered = batch.push::<operation::RegisterRam>(&message::RegisterRam {
            address: address(&self.ram),
            length: BYTES,
        });
        let mapped = batch.push::<operation::MapGpu>(&message::MapGpu {
            space: bench.space.handle(),
            allocation: PREVIOUS,
            offset: 0,
            length: BYTES,
            address: 0,
            access: Access::ReadWrite.wire(),
            reserved: 0,
        });
        let replies = batch.execute();
        replies.require(mapped).required("mapping guest RAM");
        let handle = replies
            .require(registered)
            .required("registering it")
            .handle;
        drop(replies);
        let request = message::HandleRequest {
            handle,
            reserved: 0,
        };
        let freed = bench.device.call::<operation::Free>(&request);
        freed.required("giving guest RAM back");
    }

    fn finish(&mut self, _: &mut Bench<'d>) {}
}

/// Stores to every word of memory that this guest has not accessed before.
struct FirstWrite<'d> {
    buffer: Option<Buffer<'d>>,
}

impl<'d> Repeat<'d> for FirstWrite<'d> {
    fn prepare(&mut self, bench: &mut Bench<'d>) {
        let buffer = Buffer::new(bench.device, bench.space, BYTES, MemoryKind::Host);
        self.buffer = Some(buffer.required("64 MiB of host memory"));
    }

    fn run(&mut self, _: &mut Bench<'d>) {
        if let Some(buffer) = &self.buffer {
            touch::store(buffer.cpu.window(), 1);
        }
    }

    fn finish(&mut self, _: &mut Bench<'d>) {
        if let Some(buffer) = self.buffer.take() {
            buffer.free().required("freeing");
        }
    }
}

struct AllocateAndWrite;

impl<'d> Repeat<'d> for AllocateAndWrite {
    fn prepare(&mut self, _: &mut Bench<'d>) {}

    fn run(&mut self, bench: &mut Bench<'d>) {
        let buffer = Buffer::new(bench.device, bench.space, BYTES, MemoryKind::Host);
        let buffer = buffer.required("64 MiB of host memory");
        touch::store(buffer.cpu.window(), 1);
        buffer.free().required("freeing");
    }

    fn finish(&mut self, _: &mut Bench<'d>) {}
}
