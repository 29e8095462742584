//! Attacks control batches: their lengths, addresses and framing.

use causeway_guests::Required;
use causeway_protocol::message::{Header, OPCODES, Opcode, PREVIOUS, Status, message_bytes};
use causeway_protocol::registers::{CONTROL_BYTES_MAX, Register};
use causeway_shim::{Transport, Window, operation, protocol};
use zerocopy::IntoBytes;

use crate::target::Target;

/// Executes the batch of `bytes` bytes at `address`. Returns the device's result for the whole
/// batch.
pub fn execute(target: &Target, address: u64, bytes: u32) -> Option<Status> {
    let transport = &target.transport;
    transport.write_register(Register::ControlBaseLow, address as u32);
    transport.write_register(Register::ControlBaseHigh, (address >> 32) as u32);
    transport.write_register(Register::ControlDoorbell, bytes);
    let status = Status::from_wire(transport.read_register(Register::BatchStatus));
    let home = transport.control_area().address;
    transport.write_register(Register::ControlBaseLow, home as u32);
    transport.write_register(Register::ControlBaseHigh, (home >> 32) as u32);
    status
}

/// Executes one message as it is, and returns its status and detail.
pub fn send(target: &Target, message: &[u8]) -> (Option<Status>, u32) {
    let area = target.transport.control_area();
    area.window.write(0, message).required("the control area");
    let taken = execute(target, area.address, message.len() as u32);
    assert_eq!(
        taken,
        Some(Status::Ok),
        "the batch as a whole is well-formed"
    );
    let header = header_at(&area.window, 0);
    (Status::from_wire(header.status), header.detail)
}

fn header_at(window: &Window, offset: usize) -> Header {
    let mut header = Header::default();
    window
        .read(offset, header.as_mut_bytes())
        .required("the control area");
    header
}

/// Returns a message head as a correct driver writes it.
pub fn header(opcode: Opcode) -> Header {
    let length = message_bytes(opcode) as u32;
    Header {
        opcode: opcode as u16,
        length,
        ..Header::default()
    }
}

pub fn attack(target: &mut Target) {
    Target::fresh(&target.transport);
    lengths(target);
    addresses(target);
    heads(target);
    stop_at_the_first_failure(target);
    before_hello(target);
    long_batches(target);
}

fn lengths(target: &mut Target) {
    let area = target.transport.control_area();
    area.window
        .write(0, header(Opcode::CreateSpace).as_bytes())
        .required("the control area");
    for bytes in [
        0,
        1,
        4,
        7,
        8,
        12,
        20,
        CONTROL_BYTES_MAX + 8,
        1 << 31,
        u32::MAX,
    ] {
        let status = execute(target, area.address, bytes);
        assert_eq!(status, Some(Status::BadLength), "a batch of {bytes} bytes");
        target.survived();
    }
}

fn addresses(target: &mut Target) {
    let home = target.transport.control_area().address;
    let beyond = target.beyond_ram();
    let found = *target.transport.found();
    let outside = [
        beyond,
        beyond - 8,
        found.registers,
        found.aperture,
        found.doorbells,
        1 << 52,
        u64::MAX - 7,
        u64::MAX - 31,
    ];
    for address in outside {
        let status = execute(target, address, 24);
        assert_eq!(status, Some(Status::BadRange), "a batch at {address:#x}");
        target.survived();
    }
    for address in [home + 1, home + 4, u64::MAX] {
        let status = execute(target, address, 24);
        assert_eq!(
            status,
            Some(Status::BadAlignment),
            "a batch at {address:#x}"
        );
        target.survived();
    }
}

fn heads(target: &mut Target) {
    let good = header(Opcode::QueryAttributes);
    // Opcodes count from one without a gap.
    let unused = OPCODES.len() as u16 + 1;
    for opcode in [0, unused, 99, 0x7fff, 0xffff] {
        let head = Header {
            opcode,
            length: 16,
            ..Header::default()
        };
        assert_eq!(
            send(target, head.as_bytes()).0,
            Some(Status::BadOpcode),
            "opcode {opcode}"
        );
        target.survived();
    }
    let wanted = message_bytes(Opcode::QueryAttributes) as u32;
    for length in [0, 8, 15, 16, wanted - 8, wanted + 8, 1 << 16, u32::MAX] {
        let mut message = [0; 256];
        let head = Header { length, ..good };
        message[..16].copy_from_slice(head.as_bytes());
        let (status, detail) = send(target, &message);
        assert_eq!(
            (status, detail),
            (Some(Status::BadLength), wanted),
            "length {length}"
        );
        target.survived();
    }
    let mut message = [0; 16 + 128];
    message[..16].copy_from_slice(good.as_bytes());
    for at in (2..4).chain(8..message.len()) {
        let mut dirty = message;
        dirty[at] = 0x80;
        let outcome = send(target, &dirty);
        assert_eq!(
            outcome,
            (Some(Status::ReservedNotZero), at as u32),
            "byte {at}"
        );
        target.survived();
    }
}

fn stop_at_the_first_failure(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let mut batch = device.batch();
    let first = batch.push::<operation::CreateSpace>(&protocol::message::Empty {});
    let bogus = protocol::message::HandleRequest {
        handle: 0xdead,
        reserved: 0,
    };
    let second = batch.push::<operation::Free>(&bogus);
    let third = batch.push::<operation::CreateSpace>(&protocol::message::Empty {});
    let replies = batch.execute();
    assert!(replies.get(first).is_some(), "what came before is done");
    assert!(replies.get(second).is_none() && replies.get(third).is_none());
    drop(replies);
    let window = transport.control_area().window;
    let space = message_bytes(Opcode::CreateSpace);
    let refused = header_at(&window, space);
    assert_eq!(
        (refused.status, refused.detail),
        (Status::BadHandle as u32, 0xdead)
    );
    let not_run = header_at(&window, space + message_bytes(Opcode::Free));
    assert_eq!((not_run.status, not_run.detail), (Status::NotRun as u32, 1));
    target.survived();

    // The first message refers to the handle of the message before it, which does not exist.
    let mut batch = device.batch();
    let request = protocol::message::HandleRequest {
        handle: PREVIOUS,
        reserved: 0,
    };
    batch.push::<operation::Free>(&request);
    let refusal = batch.execute().refusal().required("a refusal");
    assert_eq!(
        (refusal.status, refusal.detail),
        (Status::BadHandle, PREVIOUS)
    );
    target.survived();
}

fn before_hello(target: &mut Target) {
    target
        .transport
        .write_register(Register::Reset, protocol::registers::RESET_KEY);
    for opcode in protocol::message::OPCODES
        .iter()
        .filter(|o| **o != Opcode::Hello)
    {
        let mut message = [0; 4096];
        message[..16].copy_from_slice(header(*opcode).as_bytes());
        let (status, _) = send(target, &message[..message_bytes(*opcode)]);
        assert_eq!(
            status,
            Some(Status::NoHello),
            "{} before hello",
            opcode.name()
        );
        target.survived();
    }
    for major in [0_u16, 2, u16::MAX] {
        let mut message = [0; 40];
        message[..16].copy_from_slice(header(Opcode::Hello).as_bytes());
        message[16..18].copy_from_slice(&major.to_le_bytes());
        let host = u32::from(protocol::VERSION_MAJOR) << 16 | u32::from(protocol::VERSION_MINOR);
        let outcome = send(target, &message);
        assert_eq!(
            outcome,
            (Some(Status::BadVersion), host),
            "major version {major}"
        );
        target.survived();
    }
}

/// Executes batches with as many messages as they can hold, many times.
fn long_batches(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let each = message_bytes(Opcode::QueryFault);
    for _ in 0..20 {
        let mut batch = device.batch();
        for _ in 0..CONTROL_BYTES_MAX as usize / each {
            batch.push::<operation::QueryFault>(&protocol::message::Empty {});
        }
        assert_eq!(batch.execute().refusal(), None);
        target.survived();
    }
}
