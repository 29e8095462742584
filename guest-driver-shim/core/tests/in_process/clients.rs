//! Several clients of one session, and waits that sleep outside the device.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_mediator::{GuestSession, Mediator, Quota};
use causeway_shim::protocol::registers::features;
use causeway_shim::{
    Buffer, CommandBuffer, Device, MemoryKind, Patience, Sleeping, Status, WaitError, operation,
};

use crate::transport::Machine;

/// Looks a few times, then sleeps.
const SLEEPY: Patience = Patience {
    spins: 64,
    timeout_ns: 20_000_000_000,
};

fn clients_have_objects_of_their_own_and_end_alone(mediator: &Arc<Mediator>) {
    let first = Machine::new(mediator, Quota::default(), "clients");
    let second = first.beside(1);
    let device = Device::open(&first).unwrap();
    assert_ne!(device.features() & features::CLIENTS, 0);
    let other = Device::open(&second).unwrap();
    let space = device.create_space().unwrap();
    let buffer = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
    let theirs = other.create_space().unwrap();
    let memory = Buffer::new(&other, &theirs, 4096, MemoryKind::Host).unwrap();
    let request = causeway_shim::protocol::message::HandleRequest {
        handle: buffer.allocation.handle(),
        reserved: 0,
    };
    let refused = other.call::<operation::Free>(&request).unwrap_err();
    assert_eq!(refused.status, Status::BadHandle);
    Device::reset(&second);
    // What the other has left cannot be freed any more: it is gone.
    let refused = memory.free().unwrap_err();
    assert_eq!(refused.refusal.status, Status::NoHello);
    let mut commands = CommandBuffer::new(&space, 256).unwrap();
    commands.fill(buffer.gpu.address(), 2048, 0x55).unwrap();
    let fence = buffer.fence(4088).unwrap();
    commands.release(&fence, 1).unwrap();
    commands.submit();
    commands.wait(&fence, 1, Patience::default()).unwrap();
    assert_eq!(buffer.cpu.load_u32(2044), Ok(0x55));
}

/// Waits for a fence that another thread releases a while later.
fn wait_late(machine: &Machine) {
    let device = Device::open(machine).unwrap();
    let space = device.create_space().unwrap();
    let buffer = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
    let fence = buffer.fence(0).unwrap();
    std::thread::scope(|scope| {
        for value in 1..=4 {
            scope.spawn(move || fence.wait(value, SLEEPY).unwrap());
        }
        for value in 1..=4 {
            std::thread::sleep(Duration::from_millis(8));
            fence.store(value);
        }
    });
    let impatient = Patience {
        spins: 64,
        timeout_ns: 3_000_000,
    };
    let late = fence.wait(9, impatient).unwrap_err();
    assert!(matches!(
        late,
        WaitError::TimedOut {
            wanted: 9,
            found: 4
        }
    ));
}

fn a_wait_sleeps_until_its_interrupt(mediator: &Arc<Mediator>) {
    let mut machine = Machine::new(mediator, Quota::default(), "interrupts");
    machine.sleeping = Sleeping::UntilInterrupt;
    wait_late(&machine);
    assert_ne!(machine.interrupts.load(Ordering::Relaxed), 0);
    assert_ne!(machine.session.report().statistics.interrupts, 0);
}

fn a_wait_without_interrupts_sleeps_longer_and_longer(mediator: &Arc<Mediator>) {
    let mut machine = Machine::new(mediator, Quota::default(), "naps");
    machine.sleeping = Sleeping::ByTime;
    wait_late(&machine);
    assert_eq!(machine.session.report().statistics.interrupts, 0);
    let sleeps = machine.sleeps.load(Ordering::Relaxed);
    assert!((4..2000).contains(&sleeps), "{sleeps} sleeps");
}

fn a_sleeping_wait_ends_with_its_command_buffer(mediator: &Arc<Mediator>) {
    let mut machine = Machine::new(mediator, Quota::default(), "stopped");
    machine.sleeping = Sleeping::UntilInterrupt;
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let buffer = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
    let fence = buffer.fence(0).unwrap();
    let mut commands = CommandBuffer::new(&space, 256).unwrap();
    commands.push([u64::MAX; 8]).unwrap();
    commands.submit();
    let stopped = commands.wait(&fence, 1, SLEEPY).unwrap_err();
    assert!(matches!(stopped, WaitError::Stopped { .. }), "{stopped:?}");
}

on_each_back_end!(
    clients_have_objects_of_their_own_and_end_alone,
    a_wait_sleeps_until_its_interrupt,
    a_wait_without_interrupts_sleeps_longer_and_longer,
    a_sleeping_wait_ends_with_its_command_buffer,
);
