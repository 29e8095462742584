//! Runs every workload of `bench exits` by every mechanism, in turn.
//!
//! Its arguments are a [`Plan`]. For each repetition, workload and size, each mechanism takes one
//! sample; the host takes its samples on request. Over all repetitions, each mechanism comes
//! equally often after each other one. Then operations are timed one by one.
#![no_std]
#![no_main]

mod forward;
mod mediated;
mod passthrough;
mod port;
mod trap;
mod watch;

use causeway_bare::{Machine, println, ticks};
use causeway_bench_workloads::host_interface::sample::Sample;
use causeway_bench_workloads::host_interface::singles::Singles;
use causeway_bench_workloads::measurement_plan::{Plan, place_in_turn};
use causeway_bench_workloads::singles::{SINGLES_MAX, Single, budget_ns, timer_cost};
use causeway_bench_workloads::{
    Cell, MECHANISMS, MechanismKind, WorkloadKind, host_bytes, measure, time_singles,
};
use causeway_guests::{CaseMemory, Required, open};

use forward::Forward;
use mediated::{Kernels, Mediated};
use passthrough::Passthrough;
use trap::Trap;
use watch::Watch;

causeway_bare::main!(run);

/// The mechanisms, and the memory that samples use.
struct Bench<'k, 'd> {
    mediated: Mediated<'k, 'd>,
    trap: Trap,
    forward: Forward,
    passthrough: Option<Passthrough>,
    host: &'static mut [u8],
    machine: Machine,
}

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let plan = Plan::parse(machine.arguments()).required("the arguments");
    let (_, device) = open(machine);
    let space = device.create_space().required("an address space");
    let mut memory = CaseMemory::new(machine);
    let modules = mediated::modules(&mut memory, &space);
    let kernels = Kernels::find(&modules);
    let host = machine.ram().bytes(host_bytes(plan.effort));
    let mut bench = Bench {
        mediated: Mediated::new(device, &space, &kernels),
        trap: Trap::find(),
        forward: Forward::new(machine),
        passthrough: plan.device.map(Passthrough::find),
        host: host.required("guest RAM for copies (--memory gives more)"),
        machine: *machine,
    };
    // The first sample of each is not counted, because it warms up pages, clocks and caches.
    for cell in plan.cells() {
        match cell.mechanism.is_native() {
            true => port::hand_over(&Sample::warming_up(cell)),
            false => drop(bench.sample(&cell)),
        }
    }
    println!("samples begin");
    for repetition in 0..u64::from(plan.repetitions) {
        for workload in plan.workloads() {
            for size in (workload.description().sizes)(plan.effort) {
                bench.row(plan, workload, *size, repetition);
            }
        }
    }
    println!("single operations begin");
    for cell in plan.cells() {
        bench.singles(plan, &cell);
    }
    println!("all cells are measured");
}

impl Bench<'_, '_> {
    /// Takes one sample with each mechanism.
    fn row(&mut self, plan: Plan, workload: WorkloadKind, size: u64, repetition: u64) {
        let mut cells = [None; MECHANISMS.len()];
        let there_are = plan
            .mechanisms()
            .filter_map(|mechanism| plan.cell(workload, mechanism, size).ok());
        let mut count = 0;
        for (place, cell) in cells.iter_mut().zip(there_are) {
            *place = Some(cell);
            count += 1;
        }
        for place in 0..count {
            let Some(cell) = cells[place_in_turn(repetition, count, place)] else {
                continue;
            };
            let ns = match cell.mechanism.is_native() {
                // The host finds out by itself.
                true => 0,
                false => self.sample(&cell),
            };
            port::hand_over(&Sample {
                cell,
                repetition,
                ns,
            });
        }
    }

    /// Times operations of a cell one by one, if they can be.
    fn singles(&mut self, plan: Plan, cell: &Cell) {
        if cell.workload.description().single != Single::ByItself {
            return;
        }
        if cell.mechanism.is_native() {
            port::hand_over_singles(&Singles::ask(*cell));
            return;
        }
        let clock = self.machine.clock();
        let mut times = [0; SINGLES_MAX];
        let into = (&mut times[..], clock.ticks_in(budget_ns(plan.effort)));
        let host = &mut *self.host;
        let count = match cell.mechanism {
            MechanismKind::Mediated => time_singles(&mut self.mediated, cell, host, into, ticks),
            MechanismKind::Trap => time_singles(&mut self.trap, cell, host, into, ticks),
            MechanismKind::Forward => time_singles(&mut self.forward, cell, host, into, ticks),
            MechanismKind::Passthrough => {
                let device = self.passthrough.as_mut().required("a device");
                time_singles(device, cell, host, into, ticks)
            }
            MechanismKind::Native | MechanismKind::NativeBar => 0,
        };
        for time in &mut times[..count] {
            *time = clock.nanoseconds(*time);
        }
        port::hand_over_singles(&Singles {
            cell: *cell,
            count,
            timer_ns: clock.nanoseconds(timer_cost(ticks)),
            address: times.as_ptr() as usize as u64,
        });
        // The times stay in place until the host has them.
        core::hint::black_box(&times);
    }

    /// Takes a sample, and returns the nanoseconds that its operations took.
    fn sample(&mut self, cell: &Cell) -> u64 {
        let mut watch = Watch::new(&self.machine);
        match cell.mechanism {
            MechanismKind::Mediated => measure(&mut self.mediated, cell, self.host, &mut watch),
            MechanismKind::Trap => measure(&mut self.trap, cell, self.host, &mut watch),
            MechanismKind::Forward => measure(&mut self.forward, cell, self.host, &mut watch),
            MechanismKind::Passthrough => {
                let device = self.passthrough.as_mut().required("a device");
                measure(device, cell, self.host, &mut watch);
            }
            MechanismKind::Native | MechanismKind::NativeBar => {}
        }
        watch.nanoseconds()
    }
}
