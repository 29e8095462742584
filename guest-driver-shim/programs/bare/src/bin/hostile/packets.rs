//! Attacks with invalid packets. Each must stop its command buffer, and nothing else.

use causeway_guests::{Required, refused};
use causeway_protocol::message::Status;
use causeway_protocol::packet::{CopyRange, Fence, Fill, Header, Launch, OPCODES, Opcode};
use causeway_shim::{
    AddressSpace, Buffer, CommandBuffer, Device, MemoryKind, Patience, Unit, WaitError,
};
use zerocopy::transmute;

use crate::target::{Target, works};

/// Number of no-ops before the invalid packet, which is the packet's position.
const BEFORE: u64 = 3;

/// Submits a packet on a new command buffer, and asserts that the buffer stops there with a status.
#[track_caller]
pub fn stops<'d>(
    target: &mut Target,
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    what: &str,
    units: &[Unit],
    status: Status,
) {
    let fences = Buffer::new(device, space, 4096, MemoryKind::Host).required(what);
    let fence = fences.fence(0).required(what);
    let mut commands = CommandBuffer::new(space, 256).required(what);
    for _ in 0..BEFORE {
        commands.nop().required(what);
    }
    for unit in units {
        commands.push(*unit).required(what);
    }
    commands.release(&fence, 1).required(what);
    commands.submit();
    let stopped = commands.wait(&fence, 1, Patience::default());
    let wanted = WaitError::Stopped {
        status,
        position: BEFORE,
    };
    assert!(
        stopped == Err(wanted),
        "{what}: must be {wanted:?}, not {stopped:?}"
    );
    assert_eq!(
        fence.value(),
        0,
        "{what}: what comes behind must not be executed"
    );
    target.survived();
}

pub const fn header(opcode: Opcode, units: u32) -> Header {
    Header {
        opcode: opcode as u16,
        reserved: 0,
        units,
    }
}

pub fn attack(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let space = device.create_space().required("an address space");
    let memory = Buffer::new(&device, &space, 16 << 10, MemoryKind::Host).required("memory");
    let base = memory.gpu.address();
    let mut refuse = |what: &str, unit: Unit, status| {
        stops(target, &device, &space, what, &[unit], status);
    };
    heads(&mut refuse);
    copies(&mut refuse, base);
    fills(&mut refuse, base);
    fences(&mut refuse, base);
    assert!(
        !device.is_lost(),
        "a malformed packet must not cost the session"
    );
    works(&device, &space, "malformed packets");
    let gone = device.allocate(0, MemoryKind::Host);
    refused("an empty allocation", gone, Status::BadRange);
}

fn heads(refuse: &mut impl FnMut(&str, Unit, Status)) {
    let bad = Status::BadPacket;
    let unit = |opcode: u16, reserved: u16, units: u32| {
        let head = u64::from(opcode) | u64::from(reserved) << 16 | u64::from(units) << 32;
        [head, 0, 0, 0, 0, 0, 0, 0]
    };
    refuse("zeroes", [0; 8], bad);
    refuse("ones", [u64::MAX; 8], bad);
    let unused = OPCODES.len() as u16 + 1;
    for opcode in [0, unused, 100, 0xffff] {
        refuse("an opcode that is none", unit(opcode, 0, 1), bad);
    }
    refuse("a reserved field", unit(1, 1, 1), bad);
    for units in [0, 3, 254, 257, 1 << 20, u32::MAX] {
        refuse("a no-op of impossible length", unit(1, 0, units), bad);
    }
    for opcode in [
        Opcode::Copy,
        Opcode::Fill,
        Opcode::FenceRelease,
        Opcode::Timestamp,
        Opcode::CopyRect,
        Opcode::FillRect,
    ] {
        refuse("two units where one is due", unit(opcode as u16, 0, 2), bad);
    }
    let launch = |units, parameter_bytes, reserved| -> Unit {
        let header = header(Opcode::Launch, units);
        transmute!(Launch {
            header,
            parameter_bytes,
            reserved,
            ..Launch::default()
        })
    };
    refuse("a launch without its parameters", launch(1, 64, 0), bad);
    refuse("a launch longer than its parameters", launch(2, 0, 0), bad);
    refuse("more parameters than possible", launch(1, u32::MAX, 0), bad);
    refuse("reserved words of a launch", launch(1, 0, 1), bad);
}

fn copies(refuse: &mut impl FnMut(&str, Unit, Status), base: u64) {
    let copy = |destination, source, length, last| -> Unit {
        let header = header(Opcode::Copy, 1);
        transmute!(CopyRange {
            header,
            destination,
            source,
            length,
            reserved: [0, 0, 0, last]
        })
    };
    let range = Status::BadRange;
    refuse("an empty copy", copy(base, base + 4096, 0, 0), range);
    refuse("a copy onto itself", copy(base, base, 64, 0), range);
    refuse("an overlapping copy", copy(base, base + 4, 64, 0), range);
    refuse("a copy that wraps", copy(base, u64::MAX - 3, 64, 0), range);
    refuse(
        "an endless copy",
        copy(base, base + 4096, u64::MAX, 0),
        range,
    );
    refuse(
        "reserved words of a copy",
        copy(base, base + 4096, 64, 1),
        Status::BadPacket,
    );
}

fn fills(refuse: &mut impl FnMut(&str, Unit, Status), base: u64) {
    let fill = |destination, length, pattern, width| -> Unit {
        let header = header(Opcode::Fill, 1);
        transmute!(Fill {
            header,
            destination,
            length,
            pattern,
            width,
            reserved: [0; 4]
        })
    };
    let bad = Status::BadPacket;
    for width in [0, 3, 8, u32::MAX] {
        refuse(
            "a pattern of impossible width",
            fill(base, 64, 0, width),
            bad,
        );
    }
    refuse(
        "a pattern with bits to spare",
        fill(base, 64, 0x100, 1),
        bad,
    );
    refuse(
        "a pattern with bits to spare",
        fill(base, 64, 0x1_0000, 2),
        bad,
    );
    refuse(
        "an unaligned fill",
        fill(base + 2, 64, 0, 4),
        Status::BadAlignment,
    );
    refuse(
        "a fill of odd length",
        fill(base, 63, 0, 2),
        Status::BadAlignment,
    );
    refuse("an empty fill", fill(base, 0, 0, 4), Status::BadRange);
    refuse(
        "a fill that wraps",
        fill(base, u64::MAX - 3, 0, 4),
        Status::BadRange,
    );
}

fn fences(refuse: &mut impl FnMut(&str, Unit, Status), base: u64) {
    let fence = |opcode, address, value, last| -> Unit {
        let header = header(opcode, 1);
        transmute!(Fence {
            header,
            address,
            value,
            reserved: [0, 0, 0, last],
            ..Fence::default()
        })
    };
    for opcode in [
        Opcode::FenceRelease,
        Opcode::FenceAcquire,
        Opcode::Timestamp,
    ] {
        refuse(
            "an unaligned fence",
            fence(opcode, base + 4, 0, 0),
            Status::BadAlignment,
        );
        refuse(
            "reserved words of a fence",
            fence(opcode, base, 0, 1),
            Status::BadPacket,
        );
    }
    refuse(
        "a timestamp with a value",
        fence(Opcode::Timestamp, base, 1, 0),
        Status::BadPacket,
    );
}
