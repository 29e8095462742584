//! When a device stops touching its driver's memory.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EFD_NONBLOCK;

use super::*;
use crate::interrupts::LINE_FIRST;
use crate::interrupts::fake::FakeChips;
use crate::memory::GuestRam;
use crate::virtio::chain::Chain;
use crate::virtio::configuration::Configuration;
use crate::virtio::device::Kind;
use crate::virtio::driver::{
    DATA, DESCRIPTORS, DEVICE_RING, DRIVER_RING, RAM_BYTES, WRITE, wait_for, write_descriptor,
};
use crate::virtio::interrupts::Interrupts;
use crate::virtio::ring::{QUEUE_SIZE, RingPlace};

/// A device that says when it has a request, and then waits until it may go on.
struct Slow {
    begun: Sender<u16>,
    go_on: Mutex<Receiver<()>>,
}

impl VirtioDevice for Slow {
    fn kind(&self) -> Kind {
        Kind {
            id: 0,
            class: (0xff, 0),
            name: "slow",
        }
    }
    fn features(&self) -> u64 {
        0
    }
    fn configuration(&self) -> &[u8] {
        &[]
    }
    fn begin(&mut self, _: u64) {}
    fn serve(
        &mut self,
        _: u16,
        request: &Chain,
        memory: &GuestMemoryMmap,
    ) -> Result<u32, ServeError> {
        self.begun.send(request.head).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        Ok(request.writable.write(memory, b"done")? as u32)
    }
}

struct Rig {
    worker: DeviceThread,
    kick: EventFd,
    shared: Arc<Shared>,
    begun: Receiver<u16>,
    go_on: Sender<()>,
}

fn rig() -> Rig {
    let ram = Arc::new(GuestRam::new("test", RAM_BYTES, false).unwrap());
    let controller = FakeChips::default().controller();
    let line = controller.line(LINE_FIRST).unwrap();
    let shared = Arc::new(Shared {
        interrupts: Interrupts::new(&controller, line, 1).unwrap(),
        configuration: Configuration::new(&[]),
        needs_reset: AtomicBool::new(false),
        ram: ram.view().unwrap(),
    });
    let kick = EventFd::new(EFD_NONBLOCK).unwrap();
    let ((send_begun, begun), (go_on, may_go_on)) = (channel(), channel());
    let device = Box::new(Slow {
        begun: send_begun,
        go_on: Mutex::new(may_go_on),
    });
    let worker = start(
        "test",
        device,
        std::slice::from_ref(&kick),
        Arc::clone(&shared),
    )
    .unwrap();
    Rig {
        worker,
        kick,
        shared,
        begun,
        go_on,
    }
}

impl Rig {
    /// Begins with two requests in the queue.
    fn begin(&self) {
        let memory = self.shared.ram.memory();
        for head in 0..2 {
            let at = DATA + 64 * u64::from(head);
            memory.write_slice(&[0; 4], GuestAddress(at)).unwrap();
            write_descriptor(&self.shared.ram, DESCRIPTORS, head, (at, 4, WRITE, 0));
        }
        memory
            .write_obj([0u16, 2, 0, 1], GuestAddress(DRIVER_RING))
            .unwrap();
        memory
            .write_slice(&[0; 64], GuestAddress(DEVICE_RING))
            .unwrap();
        let place = RingPlace {
            size: QUEUE_SIZE,
            parts: [DESCRIPTORS, DRIVER_RING, DEVICE_RING],
        };
        assert!(
            self.worker
                .begin(vec![Some(Ring::new(&place, false, memory).unwrap())], 0)
        );
    }

    fn given_back(&self) -> u16 {
        let index = GuestAddress(DEVICE_RING + 2);
        self.shared.ram.memory().read_obj(index).unwrap()
    }

    fn is_written(&self, head: u64) -> bool {
        let bytes: [u8; 4] = self
            .shared
            .ram
            .memory()
            .read_obj(GuestAddress(DATA + 64 * head))
            .unwrap();
        &bytes == b"done"
    }
}

#[test]
fn the_end_of_a_driver_waits_for_one_request_and_no_more() {
    let rig = rig();
    rig.begin();
    assert_eq!(rig.begun.recv().unwrap(), 0);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| rig.worker.end());
        while !rig.worker.is_called() {
            std::thread::yield_now();
        }
        assert!(!ending.is_finished() && !rig.is_written(0));
        rig.go_on.send(()).unwrap();
        ending.join().unwrap();
    });
    assert!(rig.is_written(0) && !rig.is_written(1));
    assert_eq!(rig.given_back(), 1);
    rig.kick.write(1).unwrap();
    rig.begin();
    for head in 0..2 {
        assert_eq!(rig.begun.recv().unwrap(), head, "the next driver is served");
        rig.go_on.send(()).unwrap();
    }
    rig.worker.end();
    assert_eq!(rig.given_back(), 2);
}

#[test]
fn a_device_that_panics_asks_its_driver_for_a_reset_and_holds_nobody_up() {
    let rig = rig();
    rig.begin();
    rig.kick.write(1).unwrap();
    rig.begun.recv().unwrap();
    let needs_reset = || rig.shared.needs_reset.load(Ordering::Acquire);
    assert!(!needs_reset());
    // What the device waits for will never come.
    drop(rig.go_on);
    wait_for("a reset", needs_reset);
    rig.worker.end();
}

#[test]
fn a_dropped_worker_ends_between_requests() {
    let rig = rig();
    rig.begin();
    assert_eq!(rig.begun.recv().unwrap(), 0);
    rig.go_on.send(()).unwrap();
    let Rig {
        worker,
        begun,
        go_on,
        ..
    } = rig;
    // It may have begun with the second request already.
    go_on.send(()).unwrap();
    drop(worker);
    assert!(begun.try_iter().count() <= 1);
}

#[test]
fn a_device_without_a_driver_touches_nothing() {
    let rig = rig();
    rig.kick.write(1).unwrap();
    rig.worker.end();
    assert!(rig.begun.try_recv().is_err() && rig.given_back() == 0);
    assert!(!rig.shared.needs_reset.load(Ordering::Acquire));
}
