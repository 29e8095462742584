//! Causes known numbers of exits in marked phases, so that the host's counters can be checked.
#![no_std]
#![no_main]

use causeway_bare::shim::Transport;
use causeway_bare::{IoPorts, Machine, PciTransport, Phase, Totals};
use causeway_protocol::boot::PORT_CONSOLE;
use causeway_protocol::registers::Register;
use causeway_testdev_records::PhasePath;

causeway_bare::main!(run);

/// Port of the serial console's line status register. A load from it has no effect.
const PORT_LINE_STATUS: u16 = PORT_CONSOLE + 5;

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let transport = PciTransport::find(machine).expect("no Causeway device");
    phase("nothing", PhasePath::Data, 0, || ());
    phase("100 port loads", PhasePath::Control, 100, || {
        core::hint::black_box(IoPorts.read_byte(PORT_LINE_STATUS));
    });
    phase("100 register loads", PhasePath::Control, 100, || {
        core::hint::black_box(transport.read_register(Register::Magic));
    });
    let page = machine.ram().window(4096).expect("no RAM");
    page.store_u64(0, 1).expect("inside");
    phase("1000000 stores to RAM", PhasePath::Data, 1_000_000, || {
        page.store_u64(8, 2).expect("inside");
    });
}

fn phase(name: &str, path: PhasePath, operations: u64, operation: impl Fn()) {
    let phase = Phase::begin(path, name);
    (0..operations).for_each(|_| operation());
    phase.end(Totals {
        operations,
        ..Totals::default()
    });
}
