//! Command buffers: order, faults and how far they reach, sleeping and stopping.

mod rig;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use causeway_mediator::Quota;
use causeway_mediator::backend::Fault;
use causeway_mediator::fake::ask;
use causeway_protocol::message::*;
use causeway_protocol::packet;
use causeway_protocol::registers::status;
use causeway_protocol::ring::FAULT_POSITION;
use rig::*;
use zerocopy::IntoBytes;

const LONG: Duration = Duration::from_secs(20);

fn fault_position(queue: &Queue) -> u64 {
    let memory = queue.producer.memory();
    memory
        .load_u64(FAULT_POSITION as u64, Ordering::Acquire)
        .unwrap()
}

/// A rig with a kernel `store` (address, value), loaded; gives rig, space and function handle.
fn with_store() -> (Rig, u32, u32) {
    let rig = Rig::new();
    rig.backend.define("store", 16, |launch| {
        launch.store(launch.parameter(0), launch.parameter(8))
    });
    let space = rig.guest.space();
    let module = rig.guest.load_module(space, "kernel store", 0).unwrap();
    let function = rig.guest.function(module, "store").unwrap().handle;
    (rig, space, function)
}

fn store(function: u32, address: u64, value: u64) -> Vec<u8> {
    launch(function, [address, value].as_bytes())
}

#[test]
fn packets_run_in_order_and_a_fence_tells() {
    let (rig, space, function) = with_store();
    let guest = &rig.guest;
    let (va, view) = guest.buffer(space, PAGE);
    let mut queue = guest.command_buffer(space);
    let fill = packet::Fill {
        header: header(packet::Opcode::Fill, 1),
        destination: va,
        length: 64,
        pattern: 0xabcd,
        width: 2,
        ..packet::Fill::default()
    };
    let copy = packet::CopyRange {
        header: header(packet::Opcode::Copy, 1),
        destination: va + 64,
        source: va,
        length: 16,
        ..packet::CopyRange::default()
    };
    let time = fence(packet::Opcode::Timestamp, va + 80, 0);
    queue.submit(&[
        fill.as_bytes(),
        &store(function, va, 7),
        copy.as_bytes(),
        time.as_bytes(),
        release(va + 88, 3).as_bytes(),
    ]);
    guest.wait(space, va + 88, 3, LONG).unwrap();
    let word = |offset| view.load_u64(offset, Ordering::Acquire).unwrap();
    assert_eq!(word(64), 7);
    assert_eq!(word(72), 0xabcd_abcd_abcd_abcd);
    assert_ne!(word(80), 0);
    eventually("the count", || guest.session.report().launches == 1);
    let report = guest.session.report();
    assert!(report.messages.contains(&("create_command_buffer", 1)));
    assert_eq!(queue.producer.fault(), 0);
}

#[test]
fn a_ring_wraps_and_its_positions_go_on() {
    let (rig, space, function) = with_store();
    let (va, view) = rig.guest.buffer(space, PAGE);
    let mut queue = rig.guest.command_buffer(space);
    for value in 1..=500 {
        // Three units: the end of the ring is not a multiple, so no-ops precede the wrap.
        let mut parameters = store(function, va, value);
        parameters.resize(64 * 2, 0);
        queue.submit(&[&parameters, release(va + 8, value).as_bytes()]);
    }
    rig.guest.wait(space, va + 8, 500, LONG).unwrap();
    assert_eq!(view.load_u64(0, Ordering::Acquire), Ok(500));
    eventually("the consumer position", || {
        queue.producer.consumed() == queue.producer.position()
    });
    let packets = rig.guest.session.report().packets;
    assert!(packets.contains(&("launch", 500)) && packets.contains(&("fence_release", 500)));
}

#[test]
fn one_command_buffer_waits_for_another_by_fence() {
    let (rig, space, function) = with_store();
    let (va, view) = rig.guest.buffer(space, PAGE);
    let mut first = rig.guest.command_buffer(space);
    let mut second = rig.guest.command_buffer(space);
    let acquire = fence(packet::Opcode::FenceAcquire, va, 2);
    first.submit(&[
        acquire.as_bytes(),
        &store(function, va + 16, 1),
        release(va + 8, 1).as_bytes(),
    ]);
    std::thread::sleep(Duration::from_millis(3));
    assert_eq!(view.load_u64(16, Ordering::Acquire), Ok(0), "it waits");
    second.submit(&[release(va, 2).as_bytes()]);
    rig.guest.wait(space, va + 8, 1, LONG).unwrap();
    assert_eq!(view.load_u64(16, Ordering::Acquire), Ok(1));
}

/// Submits one packet and gives the fault; the session, and another command buffer, must live on.
fn dies_of(packet: impl Fn(u32, u64) -> Vec<u8>) -> Option<Status> {
    let (rig, space, function) = with_store();
    let (va, _view) = rig.guest.buffer(space, PAGE);
    let mut bad = rig.guest.command_buffer(space);
    bad.submit(&[release(va, 1).as_bytes(), &packet(function, va)]);
    let fault = bad.wait_for_fault();
    assert_eq!(fault_position(&bad), 1);
    let mut good = rig.guest.command_buffer(space);
    good.submit(&[release(va + 8, 1).as_bytes()]);
    rig.guest.wait(space, va + 8, 1, LONG).unwrap();
    assert_eq!(rig.guest.session.status_bits(), status::READY);
    rig.guest
        .by_handle(Opcode::DestroyCommandBuffer, bad.handle)
        .unwrap();
    fault
}

#[test]
fn what_is_wrong_with_a_packet_kills_its_command_buffer_alone() {
    let unit = |opcode: u16, units: u32| {
        let mut bytes = vec![0; 64];
        bytes[..2].copy_from_slice(&opcode.to_le_bytes());
        bytes[4..8].copy_from_slice(&units.to_le_bytes());
        bytes
    };
    let changed = |at: usize, value: u32| {
        move |function, va| {
            let mut packet = store(function, va, 1);
            packet[at..at + 4].copy_from_slice(&value.to_le_bytes());
            packet
        }
    };
    assert_eq!(dies_of(|_, _| unit(99, 1)), Some(Status::BadPacket));
    assert_eq!(dies_of(|_, _| unit(1, 0)), Some(Status::BadPacket));
    assert_eq!(
        dies_of(|_, _| unit(1, 2)),
        Some(Status::BadPacket),
        "past the producer"
    );
    assert_eq!(
        dies_of(|_, va| release(va + 4, 1).as_bytes().to_vec()),
        Some(Status::BadAlignment)
    );
    assert_eq!(dies_of(changed(8, 0x77)), Some(Status::BadHandle));
    assert_eq!(
        dies_of(changed(12, 48 << 10)),
        Some(Status::BadLaunch),
        "shared memory"
    );
    assert_eq!(
        dies_of(changed(16, 0)),
        Some(Status::BadLaunch),
        "empty grid"
    );
    assert_eq!(
        dies_of(changed(20, 65536)),
        Some(Status::BadLaunch),
        "grid in y"
    );
    assert_eq!(
        dies_of(changed(28, 513)),
        Some(Status::BadLaunch),
        "the kernel's block limit"
    );
    assert_eq!(dies_of(changed(28, u32::MAX)), Some(Status::BadLaunch));
    assert_eq!(
        dies_of(|f, _| launch(f, &[0; 24])),
        Some(Status::BadParameters)
    );
    assert_eq!(dies_of(changed(44, 1)), Some(Status::BadPacket), "reserved");
}

#[test]
fn impossible_producer_positions_are_faults() {
    for position in [257, u64::MAX, 1 << 40] {
        let rig = Rig::new();
        let space = rig.guest.space();
        let queue = rig.guest.command_buffer(space);
        queue
            .producer
            .memory()
            .store_u64(0, position, Ordering::Release)
            .unwrap();
        rig.guest.host.ring(queue.doorbell);
        assert_eq!(queue.wait_for_fault(), Some(Status::BadPosition));
        assert_eq!(rig.guest.session.status_bits(), status::READY);
    }
}

#[test]
fn a_fault_in_work_ends_the_session_and_no_other() {
    let (rig, space, function) = with_store();
    let guest = &rig.guest;
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    guest
        .session
        .observe_status(move |bits| teller.lock().unwrap().push(bits));
    let neighbour = rig.another();
    let neighbour_space = neighbour.space();
    let (neighbour_va, _view) = neighbour.buffer(neighbour_space, PAGE);
    let mut neighbours = neighbour.command_buffer(neighbour_space);
    let (va, _view) = guest.buffer(space, PAGE);
    let bystander = guest.command_buffer(space);
    let mut queue = guest.command_buffer(space);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, va, 1, LONG));
        std::thread::sleep(Duration::from_millis(2));
        queue.submit(&[&store(function, 0xdead_0000, 1)]);
        assert_eq!(waiter.join().unwrap(), Err((Status::DeviceLost, 0)));
    });
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    assert_eq!(bystander.wait_for_fault(), Some(Status::DeviceLost));
    assert_eq!(guest.session.status_bits(), status::LOST);
    let (fault, text) = guest.fault();
    assert_eq!(fault, Some(Status::MemoryFault));
    assert!(text.contains("0xdead0000"), "{text}");
    assert_eq!(guest.try_space(), Err((Status::DeviceLost, 0)));
    assert_eq!(guest.free(1), Err((Status::DeviceLost, 0)));
    guest.hello();
    assert!(guest.session.report().fault.is_some());

    neighbours.submit(&[release(neighbour_va, 1).as_bytes()]);
    neighbour
        .wait(neighbour_space, neighbour_va, 1, LONG)
        .unwrap();

    guest.session.reset();
    assert_eq!(*told.lock().unwrap(), [status::LOST, status::READY]);
    assert_eq!(guest.session.status_bits(), status::READY);
    guest.hello();
    assert_eq!(guest.fault(), (Some(Status::Ok), String::new()));
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    guest
        .command_buffer(space)
        .submit(&[release(va, 1).as_bytes()]);
    guest.wait(space, va, 1, LONG).unwrap();
}

#[test]
fn a_back_end_that_panics_ends_the_session() {
    let rig = Rig::new();
    rig.backend
        .define("panic", 0, |_| panic!("wanted by the test"));
    let space = rig.guest.space();
    let module = rig.guest.load_module(space, "kernel panic", 0).unwrap();
    let function = rig.guest.function(module, "panic").unwrap().handle;
    let mut queue = rig.guest.command_buffer(space);
    queue.submit(&[&launch(function, &[])]);
    assert_eq!(queue.wait_for_fault(), Some(Status::BackEnd));
    eventually("the loss", || {
        rig.guest.session.status_bits() == status::LOST
    });
}

/// A kernel that runs until it is stopped; gives the flag that it runs.
fn define_endless(rig: &Rig) -> Arc<AtomicBool> {
    let running = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&running);
    rig.backend.define("endless", 0, move |launch| {
        flag.store(true, Ordering::Release);
        while !launch.stopped() {
            std::thread::yield_now();
        }
        Err(Fault {
            status: Status::KernelFault,
            text: "stopped".into(),
        })
    });
    running
}

fn launch_endless(rig: &Rig, space: u32) -> Queue {
    let module = rig.guest.load_module(space, "kernel endless", 0).unwrap();
    let function = rig.guest.function(module, "endless").unwrap().handle;
    let mut queue = rig.guest.command_buffer(space);
    queue.submit(&[&launch(function, &[])]);
    queue
}

#[test]
fn a_kernel_that_does_not_end_holds_up_neither_control_nor_the_end() {
    let rig = Rig::new();
    let running = define_endless(&rig);
    let guest = &rig.guest;
    let space = guest.space();
    let queue = launch_endless(&rig, space);
    eventually("the kernel", || running.load(Ordering::Acquire));
    guest.buffer(space, PAGE);
    let begun = Instant::now();
    assert_eq!(
        guest.by_handle(Opcode::DestroyCommandBuffer, queue.handle),
        Err((Status::Busy, 0))
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    assert_eq!(guest.session.status_bits(), status::READY);
    assert_eq!(rig.backend.live().queues, 0);
    assert!(guest.host.doorbells().is_empty());

    running.store(false, Ordering::Release);
    let space = guest.space();
    let _queue = launch_endless(&rig, space);
    eventually("the kernel", || running.load(Ordering::Acquire));
    guest.session.close();
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn the_end_of_a_space_is_no_fault_of_the_kernel_that_it_stops() {
    let rig = Rig::new();
    let running = define_endless(&rig);
    for _ in 0..200 {
        running.store(false, Ordering::Release);
        let space = rig.guest.space();
        let queue = launch_endless(&rig, space);
        eventually("the kernel", || running.load(Ordering::Acquire));
        rig.guest.by_handle(Opcode::DestroySpace, space).unwrap();
        assert_eq!(queue.producer.fault(), 0);
        rig.guest.free(queue.memory).unwrap();
    }
    assert_eq!(rig.guest.session.status_bits(), status::READY);
    assert_eq!(rig.guest.session.report().faults, 0);
}

#[test]
fn a_fault_in_the_last_packet_of_a_command_buffer_that_is_destroyed_counts() {
    let rig = Rig::new();
    let (running, go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (flag, gate) = (Arc::clone(&running), Arc::clone(&go));
    rig.backend.define("endless", 0, move |launch| {
        flag.store(true, Ordering::Release);
        while !gate.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        launch.store(0, 0)
    });
    let queue = launch_endless(&rig, rig.guest.space());
    eventually("the kernel", || running.load(Ordering::Acquire));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            go.store(true, Ordering::Release);
        });
        // Destroyed, or found lost: the answer depends on who is first.
        let _ = rig
            .guest
            .by_handle(Opcode::DestroyCommandBuffer, queue.handle);
    });
    eventually("the loss", || {
        rig.guest.session.status_bits() == status::LOST
    });
    assert_eq!(rig.guest.fault().0, Some(Status::MemoryFault));
}

#[test]
fn memory_freed_under_a_kernel_stays_charged_until_the_kernel_ends() {
    let rig = Rig::new();
    let (go, at) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (go_kernel, at_kernel) = (Arc::clone(&go), Arc::clone(&at));
    // Like a back end that takes a snapshot of the mappings: the ring's own memory is what stays in use.
    rig.backend.define("hold", 0, move |_| {
        at_kernel.store(1, Ordering::Release);
        while !go_kernel.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    });
    let guest = &rig.guest;
    let space = guest.space();
    let module = guest.load_module(space, "kernel hold", 0).unwrap();
    let function = guest.function(module, "hold").unwrap().handle;
    let mut queue = guest.command_buffer(space);
    queue.submit(&[&launch(function, &[])]);
    eventually("the kernel", || at.load(Ordering::Acquire) == 1);
    guest.free(queue.memory).unwrap();
    let used = RING_BYTES.next_multiple_of(PAGE);
    assert_eq!(guest.attributes().memory_used_bytes, used);
    go.store(true, Ordering::Release);
    guest
        .by_handle(Opcode::DestroyCommandBuffer, queue.handle)
        .unwrap();
    assert_eq!(guest.attributes().memory_used_bytes, 0);
}

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
    // Only the mediator's view of the object is at hand here: find the same memory through the host.
    use causeway_mediator::host::Host;
    let (object, offset) = guest.host.ram(0x10000, RING_BYTES).unwrap();
    let view = object
        .map(offset, RING_BYTES, causeway_protocol::Access::ReadWrite)
        .unwrap();
    let mut producer = causeway_mediator::fake::Producer::new(view).unwrap();
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
        guest.session.report().sleeps == 1
    });
    let nop = header(packet::Opcode::Nop, 1);
    queue.submit(&[nop.as_bytes()]);
    eventually("the wake-up", || {
        guest.session.report().doorbell_wakeups == 1
    });
    eventually("the consumer to sleep again", || {
        guest.session.report().sleeps >= 2
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
    // None, but for other load on the machine and the beginning.
    assert!(report.doorbell_wakeups < 50, "{report:?}");
}

/// Memory of a module's variables counts, and unloading the module under a running kernel makes no room.
#[test]
fn variables_of_a_module_count_until_its_last_launch_is_over() {
    let quota = Quota {
        memory_bytes: 1 << 20,
        ..Quota::default()
    };
    let rig = Rig::with_quota(quota);
    let running = define_endless(&rig);
    let guest = &rig.guest;
    let space = guest.space();
    let mut queue = guest.command_buffer(space);
    let ring = guest.attributes().memory_used_bytes;
    let text = "kernel endless\nvariables 600000";
    let module = guest.load_module(space, text, 0).unwrap();
    let too_much = guest.load_module(space, text, 0).unwrap_err();
    assert_eq!(too_much.0, Status::QuotaBytes);
    assert_eq!(rig.backend.live().modules, 1);
    let function = guest.function(module, "endless").unwrap().handle;
    queue.submit(&[&launch(function, &[])]);
    eventually("the kernel", || running.load(Ordering::Acquire));
    guest.by_handle(Opcode::UnloadModule, module).unwrap();
    assert_eq!(guest.attributes().memory_used_bytes, ring + 600_000);
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    assert_eq!(guest.attributes().memory_used_bytes, ring);
}
