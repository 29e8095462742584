//! The part of the other VMs: compute while one VM attacks, and verify every result.

use causeway_bare::{Machine, NoMail, Phase, Totals, fetch, figure, println};
use causeway_guests::{CaseMemory, Pipeline, Required, open, run_case};
use causeway_kernels::CASES;
use causeway_testdev_records::PhasePath;

use crate::DONE;

/// Longest time to compute without mail from the attacker, in nanoseconds.
const PATIENCE_NS: u64 = 600_000_000_000;

pub fn run(machine: &Machine) {
    let (_, device) = open(machine);
    let space = device.create_space().required("an address space");
    let mut pipeline = Pipeline::new(device, &space, 256);
    let mut memory = CaseMemory::new(machine);
    let begin = machine.clock().now_ns();
    let mut runs = 0;
    let phase = Phase::begin(PhasePath::Control, "computing beside a hostile guest");
    // Until the attacker is done. If the attacker has failed, the run fails, although the results
    // here are right.
    while runs < CASES.len() || fetch(DONE, 0) == Err(NoMail::NotYet) {
        run_case(
            device,
            &space,
            &mut pipeline,
            &mut memory,
            &CASES[runs % CASES.len()],
            false,
        );
        runs += 1;
        let elapsed = machine.clock().now_ns() - begin;
        assert!(
            elapsed < PATIENCE_NS,
            "the hostile guest does not come to an end"
        );
    }
    phase.end(Totals {
        operations: runs as u64,
        ..Totals::default()
    });
    assert!(
        !device.is_lost(),
        "another guest's attacks must not reach this one"
    );
    let seconds = (machine.clock().now_ns() - begin) as f64 / 1e9;
    figure(
        "kernels verified beside a hostile guest",
        runs as f64,
        "kernels",
    );
    figure(
        "their throughput, uploads and checks included",
        runs as f64 / seconds,
        "kernels/s",
    );
    println!("witness: {runs} kernels verified beside a hostile guest, in {seconds:.1} s");
}
