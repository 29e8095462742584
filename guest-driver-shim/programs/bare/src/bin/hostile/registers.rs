//! Attacks BAR 0 and BAR 4 with invalid sizes, alignments, directions and offsets.

use causeway_guests::Required;
use causeway_protocol::registers::{
    BAR0_BYTES, Direction, MAGIC, PAGE_BYTES, REGISTERS, RESET_KEY, Register, doorbells, status,
};
use causeway_shim::{Transport, Window};

use crate::target::Target;

pub fn attack(target: &mut Target) {
    Target::fresh(&target.transport);
    wrong_sizes(target);
    unknown_offsets(target);
    stores_to_read_only(target);
    resets_that_are_none(target);
    doorbell_page(target);
    msix_table(target);
}

/// Calls `access`, which does `strays` invalid accesses, and asserts that the device counts them.
#[track_caller]
fn stray(target: &mut Target, strays: u32, access: impl FnOnce(&Window)) {
    let before = target.strays();
    access(target.transport.registers());
    let counted = target.strays() - before;
    assert!(
        counted == strays,
        "{strays} stray accesses were counted as {counted}"
    );
    target.survived();
}

fn wrong_sizes(target: &mut Target) {
    for register in REGISTERS.iter().copied() {
        let at = register as usize;
        stray(target, 1, |bar| {
            assert_eq!(bar.load_u8(at), Ok(u8::MAX), "{}", register.name())
        });
        stray(target, 1, |bar| {
            assert_eq!(bar.load_u16(at), Ok(u16::MAX), "{}", register.name())
        });
        stray(target, 1, |bar| bar.store_u8(at, 0).required("in the BAR"));
        stray(target, 1, |bar| bar.store_u16(at, 0).required("in the BAR"));
        if at.is_multiple_of(8) {
            stray(target, 1, |bar| assert_eq!(bar.load_u64(at), Ok(u64::MAX)));
            stray(target, 1, |bar| {
                bar.store_u64(at, u64::MAX).required("in the BAR")
            });
        }
    }
    stray(target, 1, |bar| {
        let mut across = [0; 8];
        bar.read(2, &mut across).required("in the BAR");
        assert_eq!(across, [0xff; 8], "an access across registers");
    });
    assert_eq!(target.transport.read_register(Register::Magic), MAGIC);
}

fn unknown_offsets(target: &mut Target) {
    let first = [0x1c, 0x2c, 0x50, 0x100, 0x7fc, PAGE_BYTES as usize - 4];
    let last = BAR0_BYTES as usize - 4;
    for at in first.into_iter().chain([PAGE_BYTES as usize + 0x1c, last]) {
        stray(target, 1, |bar| {
            assert_eq!(bar.load_u32(at), Ok(u32::MAX), "{at:#x}")
        });
        stray(target, 1, |bar| {
            bar.store_u32(at, RESET_KEY).required("in the BAR")
        });
    }
}

fn stores_to_read_only(target: &mut Target) {
    let read_only = REGISTERS
        .iter()
        .copied()
        .filter(|r| r.direction() == Direction::ReadOnly);
    for register in read_only {
        let before = target.transport.read_register(register);
        stray(target, 1, |bar| {
            bar.store_u32(register as usize, !before)
                .required("in the BAR")
        });
        if register != Register::StrayCount {
            assert_eq!(
                target.transport.read_register(register),
                before,
                "{}",
                register.name()
            );
        }
    }
    for register in [Register::Reset, Register::ControlDoorbell] {
        assert_eq!(
            target.transport.read_register(register),
            0,
            "{}",
            register.name()
        );
    }
}

/// Checks that a reset needs the whole key in its register.
fn resets_that_are_none(target: &mut Target) {
    let transport = target.transport;
    {
        let device = Target::fresh(&transport);
        let space = device.create_space().required("an address space");
        for key in [0, 1, RESET_KEY - 1, RESET_KEY.swap_bytes(), u32::MAX] {
            transport.write_register(Register::Reset, key);
        }
        crate::target::works(&device, &space, "stores of wrong keys");
    }
    target.survived();
    // Two resets, one right after the other.
    for _ in 0..50 {
        transport.write_register(Register::Reset, RESET_KEY);
    }
    assert_eq!(transport.read_register(Register::Status), status::READY);
    target.survived();
}

/// Rings doorbells without a command buffer, doorbells that do not exist, and with stores of other
/// sizes.
fn doorbell_page(target: &mut Target) {
    let page = |index: u32| (doorbells::FIRST + u64::from(index) * doorbells::STRIDE) as usize;
    let bar = *target.transport.doorbells();
    let offsets = [
        page(0),
        page(0) + 4,
        page(doorbells::COUNT - 1),
        page(doorbells::COUNT - 1) + 4092,
        page(doorbells::COUNT),
        bar.bytes() - 4,
    ];
    for at in offsets {
        stray(target, 1, |_| bar.store_u32(at, 1).required("in the BAR"));
        stray(target, 1, |_| {
            assert_eq!(bar.load_u32(at), Ok(u32::MAX), "{at:#x}")
        });
    }
    stray(target, 1, |_| {
        bar.store_u8(page(3), 1).required("in the BAR")
    });
    stray(target, 1, |_| {
        bar.store_u64(page(3), 1).required("in the BAR")
    });
    // A thousand times without work: the consumer wakes, finds nothing, and sleeps again.
    {
        let device = Target::fresh(&target.transport);
        let space = device.create_space().required("an address space");
        let commands = causeway_shim::CommandBuffer::new(&space, 256).required("a command buffer");
        for _ in 0..1000 {
            target.transport.ring_doorbell(commands.doorbell());
        }
        crate::target::works(&device, &space, "a thousand doorbells for nothing");
    }
    target.survived();
}

/// Stores all-ones to the whole MSI-X table and its pending bits, which must have no effect.
fn msix_table(target: &mut Target) {
    let bar = *target.transport.doorbells();
    for offset in (0..0x1000).step_by(4) {
        bar.store_u32(doorbells::MSIX_TABLE as usize + offset, u32::MAX)
            .required("in the BAR");
        bar.load_u32(doorbells::MSIX_TABLE as usize + offset)
            .required("in the BAR");
    }
    bar.store_u32(doorbells::MSIX_PENDING as usize, u32::MAX)
        .required("in the BAR");
    target.survived();
}
