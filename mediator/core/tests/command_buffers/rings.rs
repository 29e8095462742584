//! The memory of a ring, and when its consumer sleeps.

use causeway_mediator::GuestSession;
use causeway_mediator_testing::ask;
use causeway_protocol::message::*;
use causeway_protocol::packet;
use zerocopy::IntoBytes;

use crate::LONG;
use crate::rig::*;

#[test]
fn only_memory_of_ring_shape_becomes_a_command_buffer() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let create = |allocation, offset, length| {
        let request = CreateCommandBuffer {
            space,
            allocation,
            offset,
            length,
        };
        ask::<_, CommandBufferReply>(&guest.session, Opcode::CreateCommandBuffer, &request)
            .unwrap_err()
    };
    let device = guest.memory(MemoryKind::DeviceVisible, RING_BYTES);
    assert_eq!(create(device, 0, RING_BYTES).0, Status::BadMemory);
    let host = guest.memory(MemoryKind::Host, RING_BYTES + PAGE);
    assert_eq!(create(host, 64, RING_BYTES), (Status::BadAlignment, 4096));
    assert_eq!(create(host, 2 * PAGE, RING_BYTES).0, Status::BadRange);
    assert_eq!(
        create(host, 0, RING_BYTES + PAGE).0,
        Status::BadMemory,
        "not a power of two"
    );
    assert_eq!(create(host, 0, u64::MAX).0, Status::BadRange);
    guest.host.fail("bind_doorbell", true);
    assert_eq!(create(host, 0, RING_BYTES).0, Status::NoMemory);
    guest.host.fail("bind_doorbell", false);
    rig.backend.fail("create_queue", Some(Status::NoMemory));
    assert_eq!(create(host, 0, RING_BYTES).0, Status::NoMemory);
    rig.backend.fail("create_queue", None);
    assert_eq!(rig.backend.live().queues, 0);
    assert!(guest.host.doorbells().is_empty());
    assert_eq!(
        guest.command_buffer(space).doorbell,
        0,
        "and the doorbell is free"
    );
}

#[test]
fn a_registered_ring_in_guest_ram_works() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let register = RegisterRam {
        address: 0x10000,
        length: RING_BYTES.next_multiple_of(PAGE),
    };
    let ram: AllocateReply = ask(&guest.session, Opcode::RegisterRam, &register).unwrap();
    let request = CreateCommandBuffer {
        space,
        allocation: ram.handle,
        offset: 0,
        length: RING_BYTES,
    };
    let reply: CommandBufferReply =
        ask(&guest.session, Opcode::CreateCommandBuffer, &request).unwrap();
    let (va, _view) = guest.buffer(space, PAGE);
    // Only the mediator's view of the object is at hand here: find the same memory through the
    // host.
    use causeway_mediator::host::Host;
    let (object, offset) = guest.host.ram(0x10000, RING_BYTES).unwrap();
    let view = object
        .map(offset, RING_BYTES, causeway_protocol::Access::ReadWrite)
        .unwrap();
    let mut producer = causeway_mediator_testing::Producer::new(view).unwrap();
    producer.push(release(va, 9).as_bytes());
    if producer.publish() {
        guest.host.ring(reply.doorbell);
    }
    guest.wait(space, va, 9, LONG).unwrap();
}

#[test]
fn an_idle_consumer_sleeps_and_a_busy_one_is_not_rung_for() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let space = guest.space();
    let mut queue = guest.command_buffer(space);
    eventually("the consumer to sleep", || {
        guest.session.report().statistics.sleeps == 1
    });
    let nop = header(packet::Opcode::Nop, 1);
    queue.submit(&[nop.as_bytes()]);
    eventually("the wake-up", || {
        guest.session.report().statistics.doorbell_wakeups == 1
    });
    eventually("the consumer to sleep again", || {
        guest.session.report().statistics.sleeps >= 2
    });
    // Spurious rings find nothing and change nothing.
    for _ in 0..3 {
        guest.host.ring(queue.doorbell);
    }
    queue.submit(&[nop.as_bytes()]);
    eventually("both packets", || queue.producer.consumed() == 2);
}

#[test]
fn a_consumer_that_is_kept_busy_is_hardly_ever_rung_for() {
    let rig = Rig::new();
    let space = rig.guest.space();
    let mut queue = rig.guest.command_buffer(space);
    let nop = header(packet::Opcode::Nop, 1);
    for _ in 0..50_000 {
        queue.submit(&[nop.as_bytes()]);
    }
    eventually("all packets", || queue.producer.consumed() == 50_000);
    let report = rig.guest.session.report();
    // None but at the beginning, except where other threads took the consumer's processor: there it
    // sleeps at once in its next waits, 4096 at most for each time.
    let expected = 50 + 4096 * report.statistics.crowded_waits;
    assert!(report.statistics.doorbell_wakeups < expected, "{report:?}");
}
