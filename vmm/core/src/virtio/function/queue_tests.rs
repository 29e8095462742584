//! A device with three queues, used by a driver that keeps the rules, and by one that does not.

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::*;
use crate::bus;
use crate::virtio::chain::Chain;
use crate::virtio::device::{Kind, ServeError, VirtioDevice};
use crate::virtio::driver::*;
use crate::virtio::registers::NO_VECTOR;
use crate::virtio::ring::QUEUE_SIZE;

/// Answers each request with the number of its queue; a request of 3 bytes breaks a rule.
struct ThreeQueues;

impl VirtioDevice for ThreeQueues {
    fn kind(&self) -> Kind {
        Kind {
            id: 0x3f,
            class: (0xff, 0),
            name: "three",
        }
    }
    fn features(&self) -> u64 {
        0
    }
    fn configuration(&self) -> &[u8] {
        &[]
    }
    fn queues(&self) -> u16 {
        3
    }
    fn begin(&mut self, _: u64) {}
    fn serve(
        &mut self,
        queue: u16,
        request: &Chain,
        memory: &GuestMemoryMmap,
    ) -> Result<u32, ServeError> {
        if request.writable.bytes() == 3 {
            let rule = "a request has no 3 bytes";
            return Err(ServeError::Malformed { rule });
        }
        let answer = [b'0' + queue as u8; 4];
        Ok(request.writable.write(memory, &answer)? as u32)
    }
}

/// Where a queue is: descriptors, driver's ring and device's ring.
fn place(queue: u16) -> [u64; 3] {
    [DESCRIPTORS, DRIVER_RING, DEVICE_RING].map(|at| at + 0x10_0000 * u64::from(queue))
}

fn data(queue: u16) -> u64 {
    DATA + 0x10_0000 * u64::from(queue)
}

fn machine() -> Machine {
    Machine::new(Box::new(ThreeQueues))
}

/// Starts a driver that uses these queues.
fn start(machine: &mut Machine, queues: &[u16]) {
    assert!(machine.negotiate(VERSION_1));
    for queue in queues {
        for at in place(*queue) {
            let blank = [0; 0x1000];
            machine
                .ram
                .memory()
                .write_slice(&blank, GuestAddress(at))
                .unwrap();
        }
        machine.place_queue_of(*queue, QUEUE_SIZE, place(*queue));
    }
    machine.set_status(RUNNING);
    assert_eq!(machine.status(), RUNNING);
}

/// Makes `count` requests of `bytes` bytes available in a queue, from the first entry on.
fn submit(machine: &Machine, queue: u16, count: u16, bytes: u32) {
    let [descriptors, driver, _] = place(queue);
    let memory = machine.ram.memory();
    for head in 0..count {
        let descriptor = (data(queue) + 16 * u64::from(head), bytes, WRITE, 0);
        write_descriptor(&machine.ram, descriptors, head, descriptor);
        let entry = driver + 4 + 2 * u64::from(head);
        memory.write_obj(head, GuestAddress(entry)).unwrap();
    }
    memory.write_obj(count, GuestAddress(driver + 2)).unwrap();
    machine.store(
        Structure::Notify,
        4 * u64::from(queue),
        &queue.to_le_bytes(),
    );
}

fn wait_for_answers(machine: &Machine, queue: u16, count: u16) {
    let [.., device] = place(queue);
    wait_for("answers", || machine.read_ram::<u16>(device + 2) == count);
    for head in 0..u64::from(count) {
        let answer: [u8; 4] = machine.read_ram(data(queue) + 16 * head);
        assert_eq!(
            answer,
            [b'0' + queue as u8; 4],
            "request {head} of queue {queue}"
        );
    }
}

#[test]
fn a_driver_finds_three_queues_and_their_notifications() {
    let machine = machine();
    assert_eq!(machine.load(Structure::Common, 0x12), [3, 0]);
    for queue in 0..3u16 {
        machine.select_queue(queue);
        assert_eq!(
            machine.load(Structure::Common, 0x18),
            QUEUE_SIZE.to_le_bytes()
        );
        assert_eq!(machine.load(Structure::Common, 0x1e), queue.to_le_bytes());
    }
    assert_eq!(
        machine.hypervisor.state().events.len(),
        3,
        "one event for each"
    );
}

#[test]
fn each_queue_is_served_whichever_are_used() {
    let mut machine = machine();
    for queues in [&[0, 1, 2][..], &[2], &[1, 0]] {
        start(&mut machine, queues);
        for queue in queues {
            submit(&machine, *queue, 3, 8);
        }
        for queue in queues {
            wait_for_answers(&machine, *queue, 3);
        }
    }
}

#[test]
fn requests_that_are_there_before_the_driver_runs_are_served_in_every_queue() {
    let mut machine = machine();
    start(&mut machine, &[0]);
    machine.set_status(0);
    assert!(machine.negotiate(VERSION_1));
    for queue in 0..3 {
        let [.., device] = place(queue);
        machine
            .ram
            .memory()
            .write_obj(0u16, GuestAddress(device + 2))
            .unwrap();
        machine.place_queue_of(queue, QUEUE_SIZE, place(queue));
        submit(&machine, queue, 1, 8);
    }
    machine.set_status(RUNNING);
    for queue in 0..3 {
        wait_for_answers(&machine, queue, 1);
    }
}

#[test]
fn each_queue_raises_its_own_vector() {
    let mut machine = machine();
    start(&mut machine, &[0, 1, 2]);
    machine
        .function
        .write_config(machine.function.msix as u8 + 2, &[0, 0x80]);
    for queue in 0..3u16 {
        machine.select_queue(queue);
        machine.store(Structure::Common, 0x1a, &(queue + 1).to_le_bytes());
    }
    let pending = || machine.load::<8>(Structure::MsixPending, 0)[0];
    for (queue, wanted) in [(2, 0b1000), (0, 0b1010), (1, 0b1110)] {
        submit(&machine, queue, 1, 8);
        wait_for("a vector", || pending() == wanted);
    }
    machine.set_status(0);
    assert_eq!(pending(), 0);
    for queue in 0..3 {
        machine.select_queue(queue);
        assert_eq!(
            machine.load(Structure::Common, 0x1a),
            NO_VECTOR.to_le_bytes()
        );
    }
}

#[test]
fn a_queue_that_is_not_there_has_no_entries_no_vector_and_no_notification() {
    let machine = machine();
    for queue in [3, 4, 255, 256, u16::MAX] {
        machine.select_queue(queue);
        for (offset, bytes) in [(0x18, 128u16), (0x1a, 1), (0x1c, 1)] {
            machine.store(Structure::Common, offset, &bytes.to_le_bytes());
        }
        for offset in [0x20, 0x28, 0x30] {
            machine.store(Structure::Common, offset, &[0xff; 4]);
            assert_eq!(machine.load(Structure::Common, offset), [0; 4]);
        }
        assert_eq!(
            machine.load(Structure::Common, 0x18),
            [0; 2],
            "size of {queue}"
        );
        assert_eq!(
            machine.load(Structure::Common, 0x1a),
            NO_VECTOR.to_le_bytes()
        );
        assert_eq!(machine.load(Structure::Common, 0x1c), [0; 2]);
    }
    for offset in [1, 2, 3, 6, 12, 0xffc] {
        let address = machine.bar + Structure::Notify.offset() + offset;
        let hit = machine.bus.write(bus::GuestAddress(address), &[0; 2]);
        assert!(hit.result.is_err(), "{offset:#x}");
    }
    for queue in 0..3 {
        machine.select_queue(queue);
        assert_eq!(
            machine.load(Structure::Common, 0x1c),
            [0; 2],
            "nothing was enabled"
        );
        assert_eq!(
            machine.load(Structure::Common, 0x1a),
            NO_VECTOR.to_le_bytes()
        );
    }
}

#[test]
fn a_vector_beyond_the_table_is_none() {
    let machine = machine();
    machine.select_queue(2);
    for (vector, kept) in [(3u16, 3u16), (4, NO_VECTOR), (u16::MAX, NO_VECTOR)] {
        machine.store(Structure::Common, 0x1a, &vector.to_le_bytes());
        assert_eq!(machine.load(Structure::Common, 0x1a), kept.to_le_bytes());
    }
}

#[test]
fn one_broken_queue_ends_them_all_until_the_reset() {
    let mut machine = machine();
    // Of no power of two, beyond RAM, and a request that breaks a rule.
    for (size, moved) in [(3, 0), (QUEUE_SIZE, RAM_BYTES), (QUEUE_SIZE, 0)] {
        assert!(machine.negotiate(VERSION_1));
        for queue in [0, 2] {
            for at in place(queue) {
                machine
                    .ram
                    .memory()
                    .write_slice(&[0; 0x1000], GuestAddress(at))
                    .unwrap();
            }
            machine.place_queue_of(queue, QUEUE_SIZE, place(queue));
        }
        machine.place_queue_of(1, size, place(1).map(|at| at + moved));
        machine.set_status(RUNNING);
        submit(&machine, 1, 1, 3);
        machine.wait_for_status(RUNNING | NEEDS_RESET);
        submit(&machine, 0, 1, 8);
        machine.set_status(0);
        let [.., device] = place(0);
        assert_eq!(machine.read_ram::<u16>(device + 2), 0, "no queue is served");
        start(&mut machine, &[0, 1, 2]);
        submit(&machine, 1, 2, 8);
        wait_for_answers(&machine, 1, 2);
    }
}
