//! Tests CPU-visible memory of the device: kernels read what the guest stores, the guest reads what
//! kernels store, and fences work in it, all without exits; parts, rights and ends of mappings are
//! respected. Two guests share such memory, too.
#![no_std]
#![no_main]

mod alone;
mod shared;

use causeway_bare::{Machine, Phase, Totals, println};
use causeway_guests::{CaseMemory, Pipeline, Required, open};
use causeway_kernels::special::{PTX, SPIN, spun};
use causeway_shim::{AddressSpace, Device, Kernel, LaunchShape, Patience, Window};
use causeway_testdev_records::PhasePath;

causeway_bare::main!(run);

/// Number of bytes that are checked: loads from GPU memory are slow for CPUs.
const BYTES: u64 = 64 << 10;
/// Number of steps by which a kernel changes each word.
const STEPS: u32 = 7;
const BLOCK: u32 = 256;

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let (transport, device) = open(machine);
    let space = device.create_space().required("an address space");
    let module = CaseMemory::new(machine).load_module(&space, PTX);
    let kernel = module.kernel(SPIN).required(SPIN);
    let mut guest = Guest {
        device,
        space: &space,
        kernel: &kernel,
        pipeline: Pipeline::new(device, &space, 1024),
    };
    alone::run(&mut guest, transport);
    match (machine.vms(), machine.vm()) {
        (1, _) => {}
        (_, 0) => shared::give(&mut guest),
        (_, 1) => shared::take(&mut guest),
        // Further VMs do not share memory.
        _ => {}
    }
    println!("memory of the device is seen by CPUs, and all that was stored arrived");
}

struct Guest<'d> {
    device: &'d Device<'d>,
    space: &'d AddressSpace<'d>,
    kernel: &'d Kernel<'d>,
    pipeline: Pipeline<'d>,
}

impl Guest<'_> {
    /// Makes a kernel change the words at `address` by some steps, between stores and loads of this
    /// CPU. All of this is one phase of the data path.
    fn phase(&mut self, name: &str, address: u64, store: impl FnOnce(), load: impl FnOnce()) {
        let parameters = self
            .kernel
            .parameters()
            .and_then(|p| p.with(0, &STEPS))
            .and_then(|p| p.with(1, &address))
            .required("steps and states");
        let shape = LaunchShape {
            grid: [BYTES as u32 / 4 / BLOCK, 1, 1],
            block: [BLOCK, 1, 1],
            shared_bytes: 0,
        };
        self.pipeline.arm();
        let phase = Phase::begin(PhasePath::Data, name);
        store();
        let commands = &mut self.pipeline.commands;
        commands.launch(shape, &parameters).required("launching");
        let value = self.pipeline.finish();
        self.pipeline.open();
        let waited = self.pipeline.wait(value, Patience::SPIN);
        waited.required("the kernel");
        load();
        phase.end(Totals {
            operations: 1,
            bytes: 2 * BYTES,
            doorbells: 0,
        });
    }
}

/// Returns word `i` of the words that a guest stores.
fn word(seed: u32, i: usize) -> u32 {
    (i as u32 ^ seed).wrapping_mul(0x9e37_79b9)
}

fn store(window: &Window, seed: u32) {
    for i in 0..BYTES as usize / 4 {
        window.store_u32(4 * i, word(seed, i)).required("a word");
    }
}

/// Checks the words that [`store`] has stored and `kernels` kernels have changed.
#[track_caller]
fn verify(window: &Window, seed: u32, kernels: u32) {
    for i in 0..BYTES as usize / 4 {
        let got = window.load_u32(4 * i).required("a word");
        let want = spun(word(seed, i), kernels * STEPS);
        assert!(got == want, "word {i} is {got:#x} and must be {want:#x}");
    }
}
