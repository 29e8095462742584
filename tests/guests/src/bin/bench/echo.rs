//! A running kernel that is spoken to by plain stores: mailbox and answer are memory, and nothing is launched.

use causeway_bare::println;
use causeway_guests::{Pipeline, Required};
use causeway_kernels::bench::{ECHO, ECHO_END};
use causeway_protocol::harness::{Line, PhasePath};
use causeway_shim::{Buffer, LaunchShape, MemoryKind, Parameters, Patience};

use crate::Bench;
use crate::line::{Repeat, Sample};

const ROUND_TRIPS: u32 = 1000;
/// Offset of the answer: in another cache line than the mailbox.
const ANSWER: usize = 2048;
const SHAPE: LaunchShape = LaunchShape {
    grid: [1, 1, 1],
    block: [1, 1, 1],
    shared_bytes: 0,
};

pub fn measure(bench: &mut Bench<'_>) {
    through(bench, Line::EchoDevice, MemoryKind::DeviceVisible);
    through(bench, Line::EchoHost, MemoryKind::Host);
}

fn through(bench: &mut Bench<'_>, line: Line, kind: MemoryKind) {
    if !bench.selection.wants(line) {
        return;
    }
    let memory = match Buffer::new(bench.device, bench.space, 4096, kind) {
        Ok(memory) => memory,
        Err(error) => {
            println!("{}: {error}", line.name());
            return;
        }
    };
    let module = bench.module;
    let function = module.function(ECHO).required(ECHO);
    let address = memory.gpu.address();
    let parameters = function
        .parameters()
        .and_then(|p| p.with(0, &address))
        .and_then(|p| p.with(1, &(address + ANSWER as u64)));
    // A queue of its own: the kernel stays in it.
    let pipeline = Pipeline::new(bench.device, bench.space, 256);
    let mut echo = Echo {
        memory,
        parameters: &parameters.required("mailbox and answer"),
        pipeline,
        said: 0,
    };
    let sample = Sample {
        line,
        path: PhasePath::Data,
        operations: ROUND_TRIPS,
        bytes: 8,
    };
    bench.measure(sample, &mut echo);
    echo.memory.free().required("freeing");
}

struct Echo<'d, 'p> {
    memory: Buffer<'d>,
    parameters: &'p Parameters<'p, 4>,
    pipeline: Pipeline<'d>,
    said: u64,
}

impl Echo<'_, '_> {
    /// Says a word and waits until the kernel has said the same.
    fn round_trip(&mut self, word: u64) {
        let memory = &self.memory.cpu;
        memory.store_release(0, word).required("the mailbox");
        let mut looks = 0_u64;
        while memory.load_acquire(ANSWER).required("the answer") != word {
            looks += 1;
            // Rarely: a look at the queue is no exit, but takes time of its own.
            if looks.is_multiple_of(1 << 20)
                && let Some((status, _)) = self.pipeline.commands.fault()
            {
                panic!("the kernel does not answer: {}", status.text());
            }
        }
    }
}

impl<'d> Repeat<'d> for Echo<'d, '_> {
    fn prepare(&mut self, _: &mut Bench<'d>) {
        self.said = 0;
        for at in [0, ANSWER] {
            self.memory.cpu.store_u64(at, 0).required("the mailbox");
        }
        let commands = &mut self.pipeline.commands;
        commands
            .launch(SHAPE, self.parameters)
            .required("launching");
        commands.submit();
        self.said += 1;
        self.round_trip(self.said);
    }

    fn run(&mut self, _: &mut Bench<'d>) {
        for _ in 0..ROUND_TRIPS {
            self.said += 1;
            self.round_trip(self.said);
        }
    }

    fn finish(&mut self, _: &mut Bench<'d>) {
        self.round_trip(ECHO_END);
        let value = self.pipeline.finish();
        let waited = self.pipeline.wait(value, Patience::SPIN);
        waited.required("the end of the kernel");
    }
}
