//! Tests QEMU's educational device, which is passed through to the guest: registers, DMA and
//! interrupts by its pin. (For MSI interrupts, the guest's Linux kernel would need a driver.)

use std::time::Duration;

use causeway_linux_programs::edu::{self, BAR, Edu};
use causeway_linux_programs::passed::{PciFunction, Pin, dma_page};
use causeway_linux_programs::platform::Machine;
use causeway_linux_programs::{Required, run};
use causeway_testdev_records::PhasePath;

/// Size of BAR 0 in bytes.
const REGISTERS_BYTES: u64 = 1 << 20;
/// Number of interrupts that are caused.
const INTERRUPTS: u32 = 50;
/// Longest time that an interrupt may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> std::process::ExitCode {
    run(drive)
}

fn drive(_: &Machine) {
    let functions = PciFunction::all(edu::IDS);
    let function = functions.first().required("QEMU's educational device");
    function.enable().required("enabling it");
    let registers = function.map(BAR, REGISTERS_BYTES);
    let edu = Edu(registers.required("its registers"));
    edu::introduce(&edu);
    let page = || dma_page().required("memory for DMA");
    edu::factorials(&edu);
    edu::dma(&edu, &page(), &page());
    edu::accesses(&edu);
    interrupts(&edu, function);
    println!(
        "edu: {}: registers, DMA and interrupts are as they should be",
        function.name()
    );
}

/// Causes interrupts one by one, and checks that no other interrupt comes.
fn interrupts(edu: &Edu<causeway_sysfs::Registers>, function: &PciFunction) {
    let pin = Pin::open(function).required("its pin");
    let mut counts = Vec::new();
    for value in 1..=INTERRUPTS {
        pin.unmask().required("unmasking its pin");
        // The guest's Linux kernel masks the pin in configuration space, which causes exits, so
        // this is not the data path.
        edu::interrupt(edu, PhasePath::Control, value, || {
            let count = pin.wait(PATIENCE).required("waiting for its pin");
            counts.extend(count);
            count.is_some()
        });
    }
    let want: Vec<u32> = (1..=INTERRUPTS).collect();
    assert_eq!(counts, want, "numbers of the interrupts");
    pin.unmask().required("unmasking its pin");
    let more = pin.wait(Duration::from_millis(200));
    assert_eq!(more.required("waiting for its pin"), None, "one too many");
    println!("edu: {INTERRUPTS} interrupts by its pin");
}
