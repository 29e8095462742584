//! Queues that run behind their consumer, as those of a GPU do: what is submitted is done, or goes
//! wrong, later.

mod rig;

use causeway_mediator::GuestSession;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_mediator::Quota;
use causeway_protocol::message::*;
use causeway_protocol::packet;
use causeway_protocol::registers::status;
use rig::*;
use zerocopy::IntoBytes;

const LONG: Duration = Duration::from_secs(20);

/// A rig whose queues run behind, with a space, and memory in it.
fn behind() -> (Rig, u32, u64, causeway_memory::Mapping) {
    let rig = Rig::new();
    rig.backend.run_behind(true);
    let space = rig.guest.space();
    let (va, view) = rig.guest.buffer(space, PAGE);
    (rig, space, va, view)
}

fn fill(address: u64) -> packet::Fill {
    packet::Fill {
        header: header(packet::Opcode::Fill, 1),
        destination: address,
        length: 64,
        pattern: 0,
        width: 4,
        ..packet::Fill::default()
    }
}

/// Waits until the consumer has taken everything, and has gone to sleep after that.
fn asleep(guest: &Guest, queue: &Queue) {
    eventually("the packets to be consumed", || {
        queue.producer.consumed() == queue.producer.position()
    });
    let sleeps = guest.session.report().statistics.sleeps;
    eventually("the consumer to sleep", || {
        let wake = queue.producer.memory().load_u64(0x80, Ordering::Acquire);
        wake == Ok(queue.producer.position() + 1)
            && guest.session.report().statistics.sleeps >= sleeps.max(1)
    });
}

#[test]
fn what_goes_wrong_later_ends_the_session_though_nobody_rings() {
    let (rig, space, va, view) = behind();
    let guest = &rig.guest;
    let bystander = guest.command_buffer(space);
    let mut queue = guest.command_buffer(space);
    queue.submit(&[
        release(va, 1).as_bytes(),
        release(0xdead_0000, 1).as_bytes(),
        release(va + 8, 1).as_bytes(),
    ]);
    asleep(guest, &queue);
    assert_eq!(queue.producer.fault(), 0);
    assert_eq!(guest.session.status_bits(), status::READY);
    let rung = guest.session.report().statistics.doorbell_wakeups;
    rig.backend.catch_up();
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    assert_eq!(bystander.wait_for_fault(), Some(Status::DeviceLost));
    assert_eq!(guest.session.report().statistics.doorbell_wakeups, rung);
    assert_eq!(guest.session.status_bits(), status::LOST);
    let (fault, text) = guest.fault();
    assert_eq!(fault, Some(Status::MemoryFault));
    assert!(text.contains("0xdead0000"), "{text}");
    assert_eq!(view.load_u64(0, Ordering::Acquire), Ok(1));
    assert_eq!(
        view.load_u64(8, Ordering::Acquire),
        Ok(0),
        "after the fault"
    );
    guest.session.reset();
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn what_went_wrong_is_told_by_the_next_packet_too() {
    let (rig, space, va, _view) = behind();
    let mut queue = rig.guest.command_buffer(space);
    queue.submit(&[release(0xdead_0000, 1).as_bytes()]);
    eventually("the packet to be consumed", || {
        queue.producer.consumed() == 1
    });
    rig.backend.catch_up();
    for value in 0..64 {
        queue.submit(&[release(va, value).as_bytes()]);
    }
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    eventually("the loss", || {
        rig.guest.session.status_bits() == status::LOST
    });
}

#[test]
fn a_sleeper_hears_of_a_fence_that_is_released_later() {
    let (rig, space, va, _view) = behind();
    let guest = &rig.guest;
    let mut queue = guest.command_buffer(space);
    queue.submit(&[release(va, 1).as_bytes()]);
    asleep(guest, &queue);
    let soon = Duration::from_millis(2);
    assert_eq!(
        guest.wait(space, va, 1, soon),
        Err((Status::TimedOut, 0)),
        "nothing was done yet"
    );
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| guest.wait(space, va, 1, LONG));
        std::thread::sleep(Duration::from_millis(2));
        rig.backend.catch_up();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    // Idle again, it sleeps until it is rung for.
    rig.backend.run_behind(false);
    queue.submit(&[release(va, 2).as_bytes()]);
    guest.wait(space, va, 2, LONG).unwrap();
    assert_eq!(queue.producer.fault(), 0);
}

#[test]
fn a_fence_acquire_waits_for_what_its_own_queue_was_given() {
    let (rig, space, va, view) = behind();
    let mut queue = rig.guest.command_buffer(space);
    queue.submit(&[
        release(va, 1).as_bytes(),
        fence(packet::Opcode::FenceAcquire, va, 1).as_bytes(),
        release(va + 8, 1).as_bytes(),
    ]);
    eventually("the acquire", || queue.producer.consumed() == 1);
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(queue.producer.consumed(), 1, "it waits");
    eventually("the last release", || {
        rig.backend.catch_up();
        view.load_u64(8, Ordering::Acquire) == Ok(1)
    });
}

#[test]
fn a_command_buffer_ends_when_its_work_is_done_and_a_space_at_once() {
    let (rig, space, va, view) = behind();
    let guest = &rig.guest;
    let destroy = |queue: &Queue| guest.by_handle(Opcode::DestroyCommandBuffer, queue.handle);
    let mut queue = guest.command_buffer(space);
    queue.submit(&[release(va, 1).as_bytes()]);
    asleep(guest, &queue);
    assert_eq!(destroy(&queue), Err((Status::Busy, 0)));
    rig.backend.catch_up();
    assert_eq!(destroy(&queue), Ok(()));
    assert_eq!(view.load_u64(0, Ordering::Acquire), Ok(1));

    // The end of a space does not wait.
    let mut queue = guest.command_buffer(space);
    queue.submit(&[release(va, 2).as_bytes()]);
    asleep(guest, &queue);
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    assert_eq!(rig.backend.live().queues, 0);
    assert_eq!(view.load_u64(0, Ordering::Acquire), Ok(1), "it was dropped");
    assert_eq!(guest.session.status_bits(), status::READY);
    assert_eq!(guest.session.report().statistics.faults, 0);
    guest.session.close();
    assert_eq!(rig.backend.live(), NOTHING);
}

#[test]
fn a_fault_in_what_a_destroyed_command_buffer_left_counts() {
    let (rig, space, _va, _view) = behind();
    let guest = &rig.guest;
    let mut queue = guest.command_buffer(space);
    queue.submit(&[release(0xdead_0000, 1).as_bytes()]);
    asleep(guest, &queue);
    let destroyed = guest.by_handle(Opcode::DestroyCommandBuffer, queue.handle);
    assert_eq!(destroyed, Err((Status::Busy, 0)));
    rig.backend.catch_up();
    eventually("the loss", || guest.session.status_bits() == status::LOST);
    assert_eq!(guest.fault().0, Some(Status::MemoryFault));
}

/// Neither a recording's packets nor a module's variables make room while work with them is still
/// to be done.
#[test]
fn charges_last_until_the_work_is_done() {
    let rig = Rig::with_quota(Quota {
        module_bytes: 16 * 64 + 32,
        ..Quota::default()
    });
    rig.backend.define("nothing", 0, |_| Ok(()));
    let guest = &rig.guest;
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    let mut queue = guest.command_buffer(space);
    let used = guest.attributes().memory_used_bytes;
    rig.backend.run_behind(true);

    let text = "kernel nothing\nvariables 4096";
    let module = guest.load_module(space, text, 0).unwrap();
    let kernel = guest.kernel(module, "nothing").unwrap().handle;
    queue.submit(&[&launch(kernel, &[])]);
    asleep(guest, &queue);
    guest.by_handle(Opcode::UnloadModule, module).unwrap();
    assert_eq!(guest.attributes().memory_used_bytes, used + 4096);
    rig.backend.catch_up();
    eventually("the module's memory", || {
        guest.attributes().memory_used_bytes == used
    });

    let record = || guest.record(space, &[release(va, 1).as_bytes()]);
    let recording = record().unwrap();
    queue.submit(&[replay(recording).as_bytes()]);
    asleep(guest, &queue);
    guest
        .by_handle(Opcode::DestroyRecording, recording)
        .unwrap();
    assert_eq!(record(), Err((Status::QuotaBytes, 0)));
    rig.backend.catch_up();
    guest.wait(space, va, 1, LONG).unwrap();
    record().expect("the replay is over");
}

#[test]
fn a_session_is_busy_until_its_work_is_seen_to_be_done() {
    let rig = Rig::new();
    rig.backend.define("nothing", 0, |_| Ok(()));
    rig.backend.run_behind(true);
    let guest = &rig.guest;
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    let times = || {
        let statistics = guest.session.report().statistics;
        (statistics.busy_ns, statistics.kernel_ns)
    };
    let mut queue = guest.command_buffer(space);
    queue.submit(&[release(va, 1).as_bytes()]);
    asleep(guest, &queue);
    assert_eq!(times(), (0, 0), "a fence is no work");

    let module = guest.load_module(space, "kernel nothing", 0).unwrap();
    let kernel = guest.kernel(module, "nothing").unwrap().handle;
    queue.submit(&[&launch(kernel, &[]), release(va, 2).as_bytes()]);
    eventually("the kernel to begin", || times().1 != 0);
    let early = times();
    eventually("time to count while the kernel runs", || {
        let now = times();
        now.0 > early.0 && now.1 > early.1
    });
    let asked = || guest.ask::<_, BusyReply>(Opcode::QueryBusy, &Empty {});
    let (one, other) = (asked().unwrap(), asked().unwrap());
    let passed = [other.clock_ns - one.clock_ns, other.busy_ns - one.busy_ns];
    assert_eq!(passed[0], passed[1], "the kernel runs all the while");
    assert!(passed[0] > 0 && one.busy_ns >= early.0);
    rig.backend.catch_up();
    eventually("the end to be seen", || {
        let before = times();
        std::thread::sleep(Duration::from_millis(2));
        times() == before
    });
    assert_eq!(
        times().0,
        times().1,
        "one command buffer, and only a kernel"
    );
}

#[test]
fn a_session_is_not_busy_with_work_that_ended_with_its_space() {
    let (rig, space, va, _view) = behind();
    let guest = &rig.guest;
    let busy_ns = || guest.session.report().statistics.busy_ns;
    let mut queue = guest.command_buffer(space);
    queue.submit(&[fill(va).as_bytes()]);
    eventually("the fill to begin", || busy_ns() != 0);
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    assert_eq!(busy_ns(), busy_ns());
}

#[test]
fn a_session_stays_busy_with_work_that_did_not_end_with_its_space() {
    let (rig, space, va, _view) = behind();
    rig.backend.set_endless(true);
    let guest = &rig.guest;
    let busy_ns = || guest.session.report().statistics.busy_ns;
    let mut queue = guest.command_buffer(space);
    queue.submit(&[fill(va).as_bytes()]);
    eventually("the fill to begin", || busy_ns() != 0);
    guest.by_handle(Opcode::DestroySpace, space).unwrap();
    let early = busy_ns();
    eventually("time to count", || busy_ns() > early);
}

#[test]
fn packets_taken_at_once_are_busy_until_the_last_and_a_copy_is_no_kernel() {
    let rig = Rig::new();
    let nap = Duration::from_millis(1);
    rig.backend.define("nap", 0, move |_| {
        std::thread::sleep(nap);
        Ok(())
    });
    let guest = &rig.guest;
    let space = guest.space();
    let (va, _view) = guest.buffer(space, PAGE);
    let times = || {
        let statistics = guest.session.report().statistics;
        (statistics.busy_ns, statistics.kernel_ns)
    };
    let module = guest.load_module(space, "kernel nap", 0).unwrap();
    let kernel = guest.kernel(module, "nap").unwrap().handle;
    let a_nap = launch(kernel, &[]);
    let mut queue = guest.command_buffer(space);
    queue.submit(&[
        &a_nap,
        &a_nap,
        packet::CopyRange {
            header: header(packet::Opcode::Copy, 1),
            destination: va,
            source: va + PAGE / 2,
            length: PAGE / 2,
            ..packet::CopyRange::default()
        }
        .as_bytes(),
        release(va, 1).as_bytes(),
    ]);
    asleep(guest, &queue);
    let (busy_ns, kernel_ns) = times();
    assert!(kernel_ns >= 2 * nap.as_nanos() as u64, "{kernel_ns} ns");
    assert!(busy_ns > kernel_ns, "the copy took {busy_ns} - {kernel_ns}");
    // The consumer looks at its queue again soon after the last packet. The times end before that.
    for _ in 0..100 {
        queue.submit(&[&launch(kernel, &[])]);
        eventually("the kernel to be over", || {
            queue.producer.consumed() == queue.producer.position()
        });
        assert_eq!(times(), times(), "all work is done");
    }
}
