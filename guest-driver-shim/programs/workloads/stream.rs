//! Measures the data path: loads and stores over the aperture, packets with fences, launches; then
//! what the control path costs, and what it costs its neighbours.
mod churn;
mod control;
mod launches;
mod memory;
mod packets;
mod pool;

use crate::Required;
use crate::platform::{Machine, Phase, Totals, device, open};
use causeway_testdev_records::PhasePath;

/// One CPU's part.
pub fn run(machine: &Machine) {
    match machine.cpu() {
        0 => measure(machine),
        // Another CPU that waits takes a core from the device: it takes part in the first
        // measurement, then parks.
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
