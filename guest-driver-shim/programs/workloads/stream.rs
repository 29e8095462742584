//! Measures the data path (loads and stores over the aperture, packets with fences, launches), then
//! the cost of the control path, and how much the control path disturbs the data path.
mod churn;
mod control;
mod launches;
mod memory;
mod packets;
mod pool;

use crate::Required;
use crate::platform::{Machine, Phase, Totals, device, open};
use causeway_testdev_records::PhasePath;

/// Runs the part of one CPU.
pub fn run(machine: &Machine) {
    match machine.cpu() {
        0 => measure(machine),
        // A CPU that waits takes a core from the software engine, so the second CPU parks after the
        // first measurement.
        1 => churn::beside(machine, device()),
        _ => {}
    }
}

fn measure(machine: &Machine) {
    let setup = Phase::begin(PhasePath::Setup, "setup");
    let (transport, device) = open(machine);
    let space = device.create_space().required("an address space");
    setup.end(Totals {
        operations: 2,
        ..Totals::default()
    });
    Phase::begin(PhasePath::Data, "nothing").end(Totals::default());

    churn::measure(machine, device, &space);
    memory::first_touch(machine, device, &space);
    memory::steady_state(machine, transport, device, &space);
    packets::measure(machine, device, &space);
    launches::measure(machine, device, &space);
    control::measure(machine, device, &space);
    pool::measure(machine, &space);
}
