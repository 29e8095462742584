//! The VM that must not notice anything: it runs every test kernel in turn, and verifies it.

use causeway_bare::{Machine, NoMail, Phase, Totals, fetch, figure, println};
use causeway_guests::{CaseMemory, Pipeline, Required, open, run_case};
use causeway_kernels::CASES;
use causeway_shim::{AddressSpace, Device};
use causeway_testdev_records::PhasePath;

/// Rest after each kernel, in milliseconds, so that the host has time for the other VMs.
const REST_MS: u32 = 30;

pub fn run(machine: &Machine) {
    let (_, device) = open(machine);
    let space = device.create_space().required("an address space");
    let mut neighbour = Neighbour {
        device,
        pipeline: Pipeline::new(device, &space, 256),
        space: &space,
        memory: CaseMemory::new(machine),
        next: 1,
    };
    // The data phases are in the first cycle, because a run can have 4096 phases only.
    neighbour.cycle(true);
    neighbour.counted_cycle("first cycle");
    // The host waits for this line: from here on, nothing is done for the first time.
    println!("the first cycles are verified");
    let mut cycles = 2_u64;
    while neighbour.next < machine.vms() {
        neighbour.cycle(false);
        cycles += 1;
    }
    neighbour.cycle(true);
    neighbour.counted_cycle("last cycle");
    cycles += 2;
    assert!(
        !device.is_lost(),
        "another VM's loss must not reach this one"
    );
    figure("cycles", cycles as f64, "cycles");
    // Each character is an exit, and the number of exits must not depend on the number of cycles.
    println!("every result is verified");
}

struct Neighbour<'d> {
    device: &'d Device<'d>,
    space: &'d AddressSpace<'d>,
    pipeline: Pipeline<'d>,
    memory: CaseMemory,
    /// The first VM that may not have ended.
    next: u32,
}

impl Neighbour<'_> {
    /// Runs and verifies each kernel once. With `marked`, each has a data phase.
    fn cycle(&mut self, marked: bool) {
        for case in CASES {
            let Self {
                device,
                space,
                pipeline,
                memory,
                ..
            } = self;
            run_case(device, space, pipeline, memory, case, marked);
            // One exit, whether there is mail or not: each cycle has the same number of exits.
            match fetch(self.next, REST_MS) {
                Ok(_) => self.next += 1,
                Err(NoMail::NotYet) => {}
                Err(NoMail::SenderFailed) => panic!("another VM has failed"),
            }
        }
    }

    /// Runs a cycle in a phase of its own, for which the host counts exits.
    fn counted_cycle(&mut self, name: &str) {
        let phase = Phase::begin(PhasePath::Control, name);
        self.cycle(false);
        phase.end(Totals {
            operations: CASES.len() as u64,
            ..Totals::default()
        });
    }
}
