//! Every guest keeps the device busy for some seconds: the time that each gets shows how the device
//! is shared out.
//!
//! Arguments, separated by commas:
//!
//! * `seconds=N`: how long the guests work (default 5).
//! * `blocks=N` (default 64) and `steps=N` (default 1000): the size of each kernel.
//! * `light=1`: VM 0 launches one kernel at a time, rests after each, and measures how long it
//!   waits.
//! * `rest_ms=N`: how long it rests, in milliseconds (default 3).
//! * `light_steps=N`: the size of its kernels (default: `steps`).
//! * `narrow=1`: VM 0 launches kernels of one block, which does as much as all blocks of the
//!   others.
//! * `endless=1`: VM 0 launches a kernel that takes minutes. It passes if the host takes the device
//!   away for that.
#![no_std]
#![no_main]

use causeway_bare::{Machine, fetch, figure, post, println};
use causeway_guests::{CaseMemory, Pipeline, Required, open};
use causeway_kernels::bench::{MAP_WORDS, MULTIPROCESSORS, PTX};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use causeway_shim::{Device, Kernel, LaunchShape, MemoryKind, Patience};

causeway_bare::main!(run);

/// Kernels that a guest has under way at most.
const AHEAD: u64 = 8;
/// Longest time to wait for the other guests, in milliseconds.
const PATIENCE_MS: u32 = 60_000;
/// Waits of the light guest that are kept.
const WAITS_MAX: usize = 4096;

/// Waits until all guests are here, so that all want the device at the same time.
fn meet(machine: &Machine) {
    post(machine.vm(), &[0; 64]);
    for vm in 0..machine.vms() {
        fetch(vm, PATIENCE_MS).required("a word from another guest");
    }
}

struct Arguments {
    seconds: u32,
    blocks: u32,
    steps: u32,
    light_steps: Option<u32>,
    rest_ms: u32,
    has_light: bool,
    has_narrow: bool,
    has_endless: bool,
}

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let mut arguments = Arguments::parse(machine.arguments()).required("the arguments");
    if arguments.has_narrow && machine.vm() == 0 {
        arguments.steps *= arguments.blocks;
        arguments.blocks = 1;
    }
    if arguments.has_light && machine.vm() == 0 {
        arguments.steps = arguments.light_steps.unwrap_or(arguments.steps);
    }
    let (_, device) = open(machine);
    let space = device.create_space().required("an address space");
    let module = CaseMemory::new(machine).load_module(&space, PTX);
    let kernel = module.kernel(MULTIPROCESSORS).required(MULTIPROCESSORS);
    // Nobody reads it. In host memory, stores of a GPU would take longer than the kernel.
    let map_bytes = 4 * MAP_WORDS as u64;
    let memory = device.allocate(map_bytes, MemoryKind::Device);
    let memory = memory.required("memory for a map of multiprocessors");
    let map = memory.map_gpu(&space, 0, memory.bytes(), Access::ReadWrite);
    let mut guest = Guest {
        machine,
        kernel: &kernel,
        pipeline: Pipeline::new(device, &space, 256),
        map: map.required("a map of multiprocessors").address(),
        ends_ns: 0,
        arguments,
    };
    // The first kernel makes what is made only once.
    guest.launch();
    guest.pipeline.drain();
    meet(machine);
    guest.ends_ns = machine.clock().now_ns() + u64::from(guest.arguments.seconds) * 1_000_000_000;
    match machine.vm() {
        0 if guest.arguments.has_light => guest.wait_for_each(),
        0 if guest.arguments.has_endless => guest.never_end(device),
        _ => guest.stay_ahead(),
    }
}

struct Guest<'m, 'd> {
    machine: &'m Machine,
    kernel: &'d Kernel<'d>,
    pipeline: Pipeline<'d>,
    /// GPU address of a map of multiprocessors.
    map: u64,
    ends_ns: u64,
    arguments: Arguments,
}

impl Guest<'_, '_> {
    fn now_ns(&self) -> u64 {
        self.machine.clock().now_ns()
    }

    /// Launches a kernel, and returns the value of the fence at its end.
    fn launch(&mut self) -> u64 {
        let shape = LaunchShape {
            grid: [self.arguments.blocks, 1, 1],
            block: [32, 1, 1],
            shared_bytes: 0,
        };
        let parameters = self
            .kernel
            .parameters()
            .and_then(|p| p.with(0, &self.map))
            .and_then(|p| p.with(1, &self.arguments.steps))
            .required("map and steps");
        let launched = self.pipeline.commands.launch(shape, &parameters);
        launched.required("launching");
        self.pipeline.finish()
    }

    fn wait(&self, value: u64) {
        let patience = Patience {
            timeout_ns: 60_000_000_000,
            ..Patience::default()
        };
        self.pipeline
            .wait(value, patience)
            .required("waiting for the device");
    }

    /// Has several kernels under way until the time is over.
    fn stay_ahead(&mut self) {
        let mut done = 0;
        while self.now_ns() < self.ends_ns {
            let value = self.launch();
            done = value.saturating_sub(AHEAD);
            self.wait(done);
        }
        // The first one was not measured.
        let kernels = done.saturating_sub(1);
        self.pipeline.drain();
        figure("kernels in the time", kernels as f64, "kernels");
        println!("{kernels} kernels");
    }

    /// Launches a kernel that takes minutes, and waits until the host ends the session for it.
    fn never_end(&mut self, device: &Device<'_>) {
        (self.arguments.blocks, self.arguments.steps) = (1, u32::MAX);
        let value = self.launch();
        let ended = self.pipeline.wait(value, Patience::default());
        assert!(ended.is_err(), "the kernel must not end");
        while !device.is_lost() {
            core::hint::spin_loop();
        }
        let fault = device.fault().required("the reason");
        let status = Status::from_wire(fault.status);
        assert_eq!(status, Some(Status::Overdue), "why the device was lost");
        println!("lost the device for a kernel that never ends");
    }

    /// Has one kernel at a time, and measures from its launch to the end of the wait.
    fn wait_for_each(&mut self) {
        let mut waits_ns = [0; WAITS_MAX];
        let mut count = 0;
        while self.now_ns() < self.ends_ns && count < WAITS_MAX {
            let begun_ns = self.now_ns();
            let value = self.launch();
            self.wait(value);
            waits_ns[count] = self.now_ns() - begun_ns;
            count += 1;
            let rest_ns = u64::from(self.arguments.rest_ms) * 1_000_000;
            self.machine.clock().spin(rest_ns);
        }
        let waits_ns = &mut waits_ns[..count];
        waits_ns.sort_unstable();
        let at = |part: usize| waits_ns[(count * part / 100).min(count - 1)] as f64 / 1000.0;
        figure("launch and wait, median", at(50), "us");
        figure("launch and wait, p99", at(99), "us");
        println!(
            "{count} waits, median {} us, p99 {} us, longest {} us",
            at(50),
            at(99),
            at(100)
        );
    }
}

impl Arguments {
    fn parse(text: &str) -> Option<Self> {
        let mut parsed = Self {
            seconds: 5,
            blocks: 64,
            steps: 1000,
            light_steps: None,
            rest_ms: 3,
            has_light: false,
            has_narrow: false,
            has_endless: false,
        };
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=')?;
            let value: u32 = value.parse().ok()?;
            let number = Some(value).filter(|n| *n != 0);
            match key {
                "seconds" => parsed.seconds = number?,
                "blocks" => parsed.blocks = number?,
                "steps" => parsed.steps = number?,
                "light_steps" => parsed.light_steps = Some(number?),
                "rest_ms" => parsed.rest_ms = value,
                "light" => parsed.has_light = value != 0,
                "narrow" => parsed.has_narrow = value != 0,
                "endless" => parsed.has_endless = value != 0,
                _ => return None,
            }
        }
        Some(parsed)
    }
}
