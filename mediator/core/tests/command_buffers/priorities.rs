//! Priorities of command buffers.

use causeway_mediator::Quota;
use causeway_mediator_testing::{FakeBackend, ask};
use causeway_protocol::message::*;
use causeway_protocol::registers::features;
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};

use crate::rig::*;

/// Creates a command buffer with this priority.
fn create(guest: &Guest, space: u32, priority: i32) -> Result<(), Refused> {
    let request = CreatePriorityCommandBuffer {
        space,
        allocation: guest.memory(MemoryKind::Host, RING_BYTES),
        length: RING_BYTES,
        priority,
        ..CreatePriorityCommandBuffer::default()
    };
    let opcode = Opcode::CreatePriorityCommandBuffer;
    ask::<_, CommandBufferReply>(&guest.session, opcode, &request).map(drop)
}

fn greatest(guest: &Guest, minor: u16) -> i32 {
    let hello = Hello {
        major: VERSION_MAJOR,
        minor,
        ..Hello::default()
    };
    let reply: HelloReply = guest.ask(Opcode::Hello, &hello).unwrap();
    reply.greatest_priority
}

#[test]
fn queues_have_the_priorities_of_command_buffers_within_the_range() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    for priority in [0, -1, -5, -6, i32::MIN, 1, i32::MAX] {
        assert_eq!(create(guest, space, priority), Ok(()), "{priority}");
    }
    let _plain = guest.command_buffer(space);
    assert_eq!(rig.backend.priorities(), [0, -1, -5, -5, -5, 0, 0, 0]);
}

#[test]
fn a_guest_hears_of_the_range_if_it_knows_of_priorities() {
    let rig = Rig::new();
    assert_ne!(rig.guest.hello().features & features::PRIORITIES, 0);
    assert_eq!(greatest(&rig.guest, VERSION_MINOR), -5);
    assert_eq!(greatest(&rig.guest, u16::MAX), -5);
    assert_eq!(greatest(&rig.guest, 3), 0, "the field is reserved");
}

#[test]
fn a_device_without_priorities_refuses_them() {
    let rig = Rig::on(FakeBackend::with_features(0), Quota::default());
    let space = rig.guest.space();
    let refused = Err((Status::Unsupported, 0));
    assert_eq!(create(&rig.guest, space, -1), refused);
    assert_eq!(create(&rig.guest, space, 0), refused);
    let _plain = rig.guest.command_buffer(space);
    assert_eq!(rig.backend.priorities(), [0]);
    assert_eq!(greatest(&rig.guest, VERSION_MINOR), 0);
}
