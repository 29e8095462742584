//! Measures words that are exchanged with a running kernel: mailbox and answer are in memory, and
//! no kernel is launched for a word.

use causeway_bare::println;
use causeway_bench_workloads::Line;
use causeway_guests::{Pipeline, Required};
use causeway_kernels::bench::{ECHO, ECHO_END};
use causeway_shim::{Buffer, LaunchShape, MemoryKind, Pace, Parameters, Patience};
use causeway_testdev_records::PhasePath;

use crate::Bench;
use crate::line::{Repeat, Sample};

const ROUND_TRIPS: u32 = 1000;
/// Offset of the answer, in another cache line than the mailbox.
const ANSWER: usize = 2048;
const SHAPE: LaunchShape = LaunchShape {
    grid: [1, 1, 1],
    block: [1, 1, 1],
    shared_bytes: 0,
};

pub fn measure(bench: &mut Bench<'_>) {
    use MemoryKind::{DeviceVisible, Host};
    through(bench, Line::EchoDevice, (DeviceVisible, DeviceVisible));
    through(bench, Line::EchoHost, (Host, Host));
    through(bench, Line::EchoMixed, (DeviceVisible, Host));
}

fn through(bench: &mut Bench<'_>, line: Line, kinds: (MemoryKind, MemoryKind)) {
    if !bench.selection.wants(line) {
        return;
    }
    let buffer = |kind| Buffer::new(bench.device, bench.space, 4096, kind);
    let (mailbox, answer) = match buffer(kinds.0).and_then(|m| Ok((m, buffer(kinds.1)?))) {
        Ok(memory) => memory,
        Err(error) => {
            println!("{}: {error}", line.name());
            return;
        }
    };
    let module = bench.module;
    let kernel = module.kernel(ECHO).required(ECHO);
    let parameters = kernel
        .parameters()
        .and_then(|p| p.with(0, &mailbox.gpu.address()))
        .and_then(|p| p.with(1, &(answer.gpu.address() + ANSWER as u64)));
    // The kernel gets its own queue, because it does not end.
    let pipeline = Pipeline::new(bench.device, bench.space, 256);
    let mut echo = Echo {
        mailbox,
        answer,
        // Only loads from device memory take so long that their time matters.
        pace: (kinds.1 == MemoryKind::DeviceVisible).then(Pace::new),
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
    if let Some(pace) = echo.pace {
        println!("{}: first look after {} pauses", line.name(), pace.pauses());
    }
    echo.mailbox.free().required("freeing the mailbox");
    echo.answer.free().required("freeing the answer");
}

struct Echo<'d, 'p> {
    mailbox: Buffer<'d>,
    answer: Buffer<'d>,
    pace: Option<Pace>,
    parameters: &'p Parameters<'p, 4>,
    pipeline: Pipeline<'d>,
    said: u64,
}

impl Echo<'_, '_> {
    /// Stores a word, and waits until the kernel has answered with the same word.
    fn round_trip(&mut self, word: u64) {
        let Self {
            mailbox, answer, ..
        } = self;
        mailbox.cpu.store_release(0, word).required("the mailbox");
        let commands = &self.pipeline.commands;
        let mut looks = 0_u64;
        let look = || {
            if answer.cpu.load_acquire(ANSWER).required("the answer") == word {
                return Some(());
            }
            looks += 1;
            // Rarely, because a look at the queue is no exit but takes time.
            if looks.is_multiple_of(1 << 20)
                && let Some((status, _)) = commands.fault()
            {
                panic!("the kernel does not answer: {}", status.text());
            }
            None
        };
        match &mut self.pace {
            Some(pace) => pace.look_until(look),
            None => Pace::new().look_until(look),
        }
    }
}

impl<'d> Repeat<'d> for Echo<'d, '_> {
    fn prepare(&mut self, _: &mut Bench<'d>) {
        self.said = 0;
        let cleared = self.mailbox.cpu.store_u64(0, 0);
        cleared.required("the mailbox");
        let cleared = self.answer.cpu.store_u64(ANSWER, 0);
        cleared.required("the answer");
        let commands = &mut self.pipeline.commands;
        commands
            .launch(SHAPE, self.parameters)
            .required("launching");
        commands.submit();
        self.said += 1;
        self.round_trip(self.said);
    }

    fn run(&mut self, bench: &mut Bench<'d>) {
        for _ in 0..ROUND_TRIPS {
            self.one(bench);
        }
    }

    fn one(&mut self, _: &mut Bench<'d>) -> bool {
        self.said += 1;
        self.round_trip(self.said);
        true
    }

    fn finish(&mut self, _: &mut Bench<'d>) {
        self.round_trip(ECHO_END);
        let value = self.pipeline.finish();
        let waited = self.pipeline.wait(value, Patience::SPIN);
        waited.required("the end of the kernel");
    }
}
