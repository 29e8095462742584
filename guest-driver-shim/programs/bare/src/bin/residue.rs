//! Two guests take turns with the same memory of the device: one fills it and frees it, the other
//! allocates as much and checks that it is empty. A single guest does both.
//!
//! Arguments: `rounds=N` (default 100) and `mib=N` (default 64), separated by a comma.
#![no_std]
#![no_main]

use causeway_bare::{Machine, fetch, figure, post, println};
use causeway_guests::{CaseMemory, Pipeline, Required, open};
use causeway_kernels::bench::{PTX, RESIDUE};
use causeway_shim::{
    Access, AddressSpace, Allocation, Buffer, Device, Kernel, LaunchShape, MemoryKind,
};

causeway_bare::main!(run);

/// The word with which the memory is filled.
const PATTERN: u32 = 0xdead_beef;
/// Longest time that a guest takes for its turn, in milliseconds.
const TURN_MS: u32 = 60_000;
const SHAPE: LaunchShape = LaunchShape {
    grid: [256, 1, 1],
    block: [256, 1, 1],
    shared_bytes: 0,
};

fn run(machine: &Machine) {
    if machine.cpu() != 0 || machine.vm() > 1 {
        return;
    }
    let (rounds, mib) = arguments(machine.arguments()).required("the arguments");
    let bytes = u64::from(mib) << 20;
    let (_, device) = open(machine);
    let space = device.create_space().required("an address space");
    let module = CaseMemory::new(machine).load_module(&space, PTX);
    let kernel = module.kernel(RESIDUE).required(RESIDUE);
    let pipeline = Pipeline::new(device, &space, 256);
    let count = Buffer::new(device, &space, 4096, MemoryKind::Host).required("a counter");
    let mut guest = Guest {
        device,
        space: &space,
        kernel: &kernel,
        pipeline,
        count,
        bytes,
    };
    let alone = machine.vms() == 1;
    for round in 0..rounds {
        // Each guest gets the memory that the other has just freed, and leaves something in it.
        if !alone {
            wait_until(machine, 1 - machine.vm(), round + machine.vm());
        }
        guest.turn(round, machine.vm());
        if !alone {
            tell(machine.vm(), round + 1);
        }
    }
    figure(
        "owners that found nothing of the one before",
        f64::from(rounds),
        "",
    );
    println!("{rounds} turns of {mib} MiB: nothing was left by the owner before");
}

struct Guest<'d> {
    device: &'d Device<'d>,
    space: &'d AddressSpace<'d>,
    kernel: &'d Kernel<'d>,
    pipeline: Pipeline<'d>,
    count: Buffer<'d>,
    bytes: u64,
}

impl Guest<'_> {
    /// Allocates memory of the device, checks that it is empty, fills it, and frees it.
    fn turn(&mut self, round: u32, vm: u32) {
        let memory = self.device.allocate(self.bytes, MemoryKind::Device);
        let memory: Allocation<'_> = memory.required("memory of the device");
        let mapping = memory.map_gpu(self.space, 0, self.bytes, Access::ReadWrite);
        let address = mapping.required("mapping it").address();
        let left = self.count_words(address);
        assert_eq!(
            left, 0,
            "words left by the owner before, in turn {round} of guest {vm}"
        );
        let filled = self.pipeline.commands.fill(address, self.bytes, PATTERN);
        filled.required("filling it");
        self.pipeline.drain();
        let full = self.count_words(address);
        assert_eq!(full, self.bytes / 8, "words that the fill reached");
        memory.free().required("giving it back");
    }

    /// Returns the number of words in the memory that are not zero.
    fn count_words(&mut self, address: u64) -> u64 {
        self.count.cpu.store_u64(0, 0).required("the counter");
        let parameters = self
            .kernel
            .parameters()
            .and_then(|p| p.with(0, &address))
            .and_then(|p| p.with(1, &(self.bytes / 8)))
            .and_then(|p| p.with(2, &self.count.gpu.address()))
            .required("memory and counter");
        let launched = self.pipeline.commands.launch(SHAPE, &parameters);
        launched.required("launching");
        self.pipeline.drain();
        self.count.cpu.load_u64(0).required("the counter")
    }
}

/// Waits until the other guest has had `turns` turns.
fn wait_until(machine: &Machine, other: u32, turns: u32) {
    let clock = machine.clock();
    let deadline = clock.now_ns() + u64::from(TURN_MS) * 1_000_000;
    let mut seen = 0;
    while seen < turns {
        // Mail stays in its box until other mail replaces it.
        let mail = fetch(other, TURN_MS).required("word of the other guest's turn");
        seen = u32::from_le_bytes([mail[0], mail[1], mail[2], mail[3]]);
        assert!(
            clock.now_ns() < deadline,
            "the other guest has had {seen} turns, not {turns}"
        );
        if seen < turns {
            clock.spin(20_000);
        }
    }
}

/// Tells the other guest how many turns this one has had.
fn tell(own: u32, turns: u32) {
    let mut mail = [0; 64];
    mail[..4].copy_from_slice(&turns.to_le_bytes());
    post(own, &mail);
}

/// Parses the guest's arguments: the number of rounds, and the size of the memory in MiB.
fn arguments(text: &str) -> Option<(u32, u32)> {
    let (mut rounds, mut mib) = (100, 64);
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=')?;
        let value = value.parse().ok().filter(|n| *n != 0)?;
        match key {
            "rounds" => rounds = value,
            "mib" => mib = value,
            _ => return None,
        }
    }
    Some((rounds, mib))
}
