//! Measures launches: their submission, with a wait for each, with one wait for many, and recorded.

use causeway_bench_workloads::Line;
use causeway_guests::Required;
use causeway_kernels::bench::NOTHING;
use causeway_protocol::packet::UNIT_BYTES;
use causeway_shim::{LaunchShape, Parameters, Patience, Recorder, Recording};
use causeway_testdev_records::PhasePath;

use crate::Bench;
use crate::copies::address;
use crate::line::{Repeat, Sample};

/// Number of launches in a recording.
const RECORDED: u32 = 100;
/// Number of replays in one sample.
const REPLAYS: u32 = 10;

/// Shape of a launch: one thread, because the overhead is measured.
const SHAPE: LaunchShape = LaunchShape {
    grid: [1, 1, 1],
    block: [1, 1, 1],
    shared_bytes: 0,
};

pub fn measure(bench: &mut Bench<'_>) {
    let module = bench.module;
    let kernel = module.kernel(NOTHING).required(NOTHING);
    let parameters = kernel.parameters().required("no parameters");
    let sample = |line, operations| Sample {
        line,
        path: PhasePath::Data,
        operations,
        bytes: 0,
    };
    let parameters = &parameters;
    bench.measure(sample(Line::Submit, 1000), &mut Submit { parameters });
    let mut waiting = OneByOne {
        parameters,
        launches: 50,
    };
    bench.measure(sample(Line::LaunchAndWait, 50), &mut waiting);
    let mut pipelined = Pipelined {
        parameters,
        launches: 1000,
    };
    bench.measure(sample(Line::Pipelined, 1000), &mut pipelined);
    let recording = &record(bench, parameters);
    let mut replayed = Replayed {
        parameters,
        recording,
    };
    for line in [Line::Recorded, Line::RecordedGraph] {
        bench.measure(sample(line, RECORDED * REPLAYS), &mut replayed);
    }
}

/// Records [`RECORDED`] launches.
fn record<'d>(bench: &Bench<'d>, parameters: &Parameters<'_, 4>) -> Recording<'d> {
    let ram = bench.machine.ram().window(RECORDED as usize * UNIT_BYTES);
    let ram = ram.required("guest RAM for a recording");
    let mut recorder = Recorder::new(ram, address(&ram));
    for _ in 0..RECORDED {
        recorder.launch(SHAPE, parameters).required("a launch");
    }
    recorder.record(bench.space).required("recording")
}

impl Bench<'_> {
    /// Launches once and waits, so that the device is awake afterwards.
    pub fn wake(&mut self, parameters: &Parameters<'_, 4>) {
        self.launch(parameters);
        self.wait();
    }

    fn launch(&mut self, parameters: &Parameters<'_, 4>) {
        let commands = &mut self.pipeline.commands;
        commands.launch(SHAPE, parameters).required("launching");
    }

    /// Waits by spinning until all work is done.
    pub fn wait(&mut self) {
        let value = self.pipeline.finish();
        let waited = self.pipeline.wait(value, Patience::SPIN);
        waited.required("waiting for the device");
    }
}

/// Submits launches: each is written and published by itself.
struct Submit<'p> {
    parameters: &'p Parameters<'p, 4>,
}

impl<'d> Repeat<'d> for Submit<'_> {
    fn prepare(&mut self, bench: &mut Bench<'d>) {
        bench.wake(self.parameters);
    }

    fn run(&mut self, bench: &mut Bench<'d>) {
        for _ in 0..1000 {
            self.one(bench);
        }
    }

    fn finish(&mut self, bench: &mut Bench<'d>) {
        bench.wait();
    }

    fn one(&mut self, bench: &mut Bench<'d>) -> bool {
        bench.launch(self.parameters);
        bench.pipeline.commands.submit();
        true
    }
}

struct OneByOne<'p> {
    parameters: &'p Parameters<'p, 4>,
    launches: u32,
}

impl<'d> Repeat<'d> for OneByOne<'_> {
    fn prepare(&mut self, bench: &mut Bench<'d>) {
        bench.wake(self.parameters);
    }

    fn run(&mut self, bench: &mut Bench<'d>) {
        for _ in 0..self.launches {
            self.one(bench);
        }
    }

    fn finish(&mut self, _: &mut Bench<'d>) {}

    fn one(&mut self, bench: &mut Bench<'d>) -> bool {
        bench.wake(self.parameters);
        true
    }
}

struct Pipelined<'p> {
    parameters: &'p Parameters<'p, 4>,
    launches: u32,
}

impl<'d> Repeat<'d> for Pipelined<'_> {
    fn prepare(&mut self, bench: &mut Bench<'d>) {
        bench.wake(self.parameters);
    }

    fn run(&mut self, bench: &mut Bench<'d>) {
        for _ in 0..self.launches {
            bench.launch(self.parameters);
            bench.pipeline.commands.submit();
        }
        bench.wait();
    }

    fn finish(&mut self, _: &mut Bench<'d>) {}
}

struct Replayed<'r, 'd> {
    parameters: &'r Parameters<'r, 4>,
    recording: &'r Recording<'d>,
}

impl<'d> Repeat<'d> for Replayed<'_, '_> {
    fn prepare(&mut self, bench: &mut Bench<'d>) {
        bench.wake(self.parameters);
    }

    fn run(&mut self, bench: &mut Bench<'d>) {
        for _ in 0..REPLAYS {
            let commands = &mut bench.pipeline.commands;
            commands.replay(self.recording).required("replaying");
            commands.submit();
        }
        bench.wait();
    }

    fn finish(&mut self, _: &mut Bench<'d>) {}
}
