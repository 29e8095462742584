//! Attacks command buffers and waits with every kind of invalid argument.

use causeway_guests::Required;
use causeway_protocol::message::{self, Status};
use causeway_protocol::ring;
use causeway_shim::{Device, MemoryKind, operation};

use crate::messages::{BOGUS, refuse};
use crate::target::Target;

pub fn attack(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let space = device.create_space().required("an address space");
    command_buffers(target, &device, space.handle());
    waits(target, &device, space.handle());
}

fn command_buffers(target: &mut Target, device: &Device<'_>, space: u32) {
    use Status::{BadAlignment, BadHandle, BadMemory, BadRange};
    let host = device
        .allocate(1 << 20, MemoryKind::Host)
        .required("memory");
    // A device without such memory must refuse plain device memory for the same reason.
    let visible = device
        .allocate(1 << 20, MemoryKind::DeviceVisible)
        .or_else(|_| device.allocate(1 << 20, MemoryKind::Device))
        .required("memory");
    let good = message::CreateCommandBuffer {
        space,
        allocation: host.handle(),
        offset: 0,
        length: ring::ring_bytes(256),
    };
    let cases = [
        (
            message::CreateCommandBuffer {
                space: BOGUS,
                ..good
            },
            BadHandle,
        ),
        (
            message::CreateCommandBuffer {
                allocation: space,
                ..good
            },
            BadHandle,
        ),
        (
            message::CreateCommandBuffer {
                allocation: visible.handle(),
                ..good
            },
            BadMemory,
        ),
        (
            message::CreateCommandBuffer { offset: 64, ..good },
            BadAlignment,
        ),
        (
            message::CreateCommandBuffer {
                offset: host.bytes(),
                ..good
            },
            BadRange,
        ),
        (
            message::CreateCommandBuffer {
                offset: u64::MAX - 4095,
                ..good
            },
            BadRange,
        ),
        (message::CreateCommandBuffer { length: 0, ..good }, BadRange),
        (
            message::CreateCommandBuffer {
                length: 4096,
                ..good
            },
            BadMemory,
        ),
        (
            message::CreateCommandBuffer {
                length: ring::ring_bytes(128),
                ..good
            },
            BadMemory,
        ),
        (
            message::CreateCommandBuffer {
                length: ring::ring_bytes(300),
                ..good
            },
            BadMemory,
        ),
        (
            message::CreateCommandBuffer {
                length: ring::ring_bytes(256) + 1,
                ..good
            },
            BadMemory,
        ),
        (
            message::CreateCommandBuffer {
                length: u64::MAX,
                ..good
            },
            BadRange,
        ),
    ];
    for (request, status) in cases {
        refuse::<operation::CreateCommandBuffer>(target, device, &request, status);
    }
    priorities(target, device, &good);
}

/// A device without priorities refuses all of them; any other brings them into its range.
fn priorities(target: &mut Target, device: &Device<'_>, good: &message::CreateCommandBuffer) {
    let status = match device.greatest_priority() {
        0 => Status::Unsupported,
        _ => Status::BadHandle,
    };
    for priority in [0, i32::MIN, i32::MAX] {
        let request = message::CreatePriorityCommandBuffer {
            space: BOGUS,
            allocation: good.allocation,
            offset: good.offset,
            length: good.length,
            priority,
            reserved: 0,
        };
        refuse::<operation::CreatePriorityCommandBuffer>(target, device, &request, status);
    }
}

fn waits(target: &mut Target, device: &Device<'_>, space: u32) {
    let good = message::Wait {
        space,
        reserved: 0,
        address: 0x1000,
        value: 1,
        timeout_ns: 1_000_000,
    };
    let unaligned = message::Wait {
        address: 0x1004,
        ..good
    };
    let detail = refuse::<operation::Wait>(target, device, &unaligned, Status::BadAlignment);
    assert_eq!(detail, 8);
    for address in [0, 0x1000, u64::MAX - 7] {
        let unmapped = message::Wait { address, ..good };
        refuse::<operation::Wait>(target, device, &unmapped, Status::BadRange);
    }
    let bogus = message::Wait {
        space: BOGUS,
        ..good
    };
    refuse::<operation::Wait>(target, device, &bogus, Status::BadHandle);
}
