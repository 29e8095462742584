//! Rings the doorbells of QEMU's `ivshmem-doorbell`, which is passed through to the guest. The
//! device is its own only peer, and each doorbell raises an interrupt by MSI-X.
#![no_std]
#![no_main]

use causeway_bare::{LocalApic, Machine, Phase, Totals, device_memory, println};
use causeway_guests::Required;
use causeway_guests::function::{MessageTable, PciFunction};
use causeway_shim::Window;
use causeway_testdev_records::PhasePath;

causeway_bare::main!(run);

const IDS: (u16, u16) = (0x1af4, 0x1110);
const BAR: usize = 0;
const REGISTERS_BYTES: u64 = 256;
/// Number of the peer whose doorbells are rung, in the upper half; the vector is in the lower
/// ("Inter-VM Shared Memory device", QEMU's documentation, specs/ivshmem-spec).
const REG_DOORBELL: usize = 12;
/// Offset of the register with the device's own number as a peer.
const REG_POSITION: usize = 8;
/// First vector of the local interrupt controller that is used.
const FIRST_VECTOR: u8 = 0x40;
/// Number of looks for an interrupt before it counts as lost.
const LOOKS: u32 = 200_000;
const LOOKS_IN_VAIN: u32 = 2_000;

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let function = PciFunction::find(IDS).required("QEMU's doorbells");
    let address = function.enable(BAR).required("its registers");
    let registers = device_memory(address, REGISTERS_BYTES).required("its registers");
    let own = registers.load_u32(REG_POSITION).required("a register");
    let bells = Bells {
        registers,
        own,
        apic: LocalApic::enable().required("a local interrupt controller"),
        table: function.use_table().required("a table of messages"),
    };
    let count = bells.table.count();
    let message = bells.apic.message_address();
    for index in 0..count {
        let set = bells.table.set(index, message, bells.vector(index).into());
        set.and_then(|()| bells.table.unmask(index))
            .required("an entry");
    }
    ring_each(&bells, count);
    masked_ones_wait(&bells, message, count);
    println!("doorbell: {count} messages of a table, and those that were masked");
}

struct Bells {
    registers: Window,
    own: u32,
    apic: LocalApic,
    table: MessageTable,
}

impl Bells {
    fn vector(&self, index: usize) -> u8 {
        FIRST_VECTOR + index as u8
    }

    fn ring(&self, index: usize) {
        let stored = self
            .registers
            .store_u32(REG_DOORBELL, self.own << 16 | index as u32);
        stored.required("a register");
    }

    fn arrives(&self, vector: u8, looks: u32) -> bool {
        (0..looks).any(|_| self.apic.is_requested(vector))
    }
}

/// Rings all doorbells. The stores to the doorbells are exits if the BAR is smaller than a page;
/// the interrupts are not.
fn ring_each(bells: &Bells, count: usize) {
    let phase = Phase::begin(PhasePath::Control, "doorbells");
    for index in 0..count {
        bells.ring(index);
        let vector = bells.vector(index);
        assert!(bells.arrives(vector, LOOKS), "message {index} is lost");
    }
    phase.end(Totals {
        operations: count as u64,
        ..Totals::default()
    });
}

/// Checks that a masked entry of the table is pending, and sends its message when it is unmasked.
fn masked_ones_wait(bells: &Bells, message: u32, count: usize) {
    for index in 0..count {
        let vector = bells.vector(count + index);
        let table = &bells.table;
        table.mask(index).required("an entry");
        let set = table.set(index, message, vector.into());
        set.required("an entry");
        bells.ring(index);
        let pending = (0..LOOKS_IN_VAIN).any(|_| table.is_pending(index) == Some(true));
        assert!(pending, "entry {index} does not say that it waits");
        let early = bells.arrives(vector, LOOKS_IN_VAIN);
        assert!(!early, "entry {index} has sent, although it is masked");
        table.unmask(index).required("an entry");
        assert!(bells.arrives(vector, LOOKS), "entry {index} has not sent");
        let pending = table.is_pending(index).required("a pending bit");
        assert!(!pending, "entry {index} has sent, and still waits");
    }
}
