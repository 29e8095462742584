//! Tests MSI interrupts from the device to the CPU's local interrupt controller.

use causeway_bare::{LocalApic, Phase, Totals, println};
use causeway_guests::Required;
use causeway_guests::edu::{self, Edu};
use causeway_guests::function::PciFunction;
use causeway_shim::Window;
use causeway_testdev_records::PhasePath;

/// First vector of the interrupts that arrive before any is taken. They stay pending, so each has
/// its own vector.
const FIRST_VECTOR: u8 = 0x40;
const ARRIVING: u8 = 32;
/// Number of looks for an interrupt before it counts as lost. Each look is an exit that KVM
/// handles.
const LOOKS: u32 = 500_000;
/// Vector of the interrupts that are taken, and their number.
const TAKEN_VECTOR: u8 = 0x80;
const TAKEN: u64 = 10_000;

pub fn run(edu: &Edu<Window>, function: &PciFunction) {
    let apic = LocalApic::enable().required("a local interrupt controller");
    let address = apic.message_address();
    for vector in FIRST_VECTOR..FIRST_VECTOR + ARRIVING {
        let set = function.send_messages(address, vector.into());
        set.required("the capability of messages");
        assert!(!apic.is_requested(vector), "nothing was sent yet: {vector}");
        edu::interrupt(edu, PhasePath::Data, vector.into(), || {
            (0..LOOKS).any(|_| apic.is_requested(vector))
        });
    }
    let others = (FIRST_VECTOR + ARRIVING..=0xff).filter(|vector| apic.is_requested(*vector));
    assert!(others.count() == 0, "interrupts that nobody asked for");
    println!("edu: {ARRIVING} messages have arrived, each with its vector");
    let set = function.send_messages(address, TAKEN_VECTOR.into());
    set.required("the capability of messages");
    take(edu, &apic);
}

/// Takes the pending interrupts and many more, at privilege level 0, where a guest can do so.
fn take(edu: &Edu<Window>, apic: &LocalApic) {
    let taken = apic.taking(|| {
        await_taken(apic, ARRIVING.into());
        let phase = Phase::begin(PhasePath::Data, "10^4 interrupts");
        for count in 1..=TAKEN {
            edu.raise(1);
            await_taken(apic, u64::from(ARRIVING) + count);
            edu.acknowledge(1);
        }
        phase.end(Totals {
            operations: TAKEN,
            ..Totals::default()
        });
    });
    if taken.is_some() {
        let (taken, want) = (apic.taken(), u64::from(ARRIVING) + TAKEN);
        assert!(
            taken == want,
            "{taken} interrupts were taken, and not {want}"
        );
        println!("edu: {TAKEN} interrupts were taken");
    }
}

fn await_taken(apic: &LocalApic, count: u64) {
    while apic.taken() < count {
        core::hint::spin_loop();
    }
}
