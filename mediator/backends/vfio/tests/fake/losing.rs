//! Others want the device, or reset it, while guests use it.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway_host_vfio::fake::FakeHardware;
use causeway_host_vfio::{InterruptKind, RegionIndex};
use causeway_mediator::backend::{Backend, MemoryWork, Space, Work};
use causeway_mediator::{GuestSession, Mediator};
use causeway_protocol::Access;
use causeway_protocol::message::{Empty, FaultReport, MemoryKind, Opcode, Status};
use causeway_protocol::registers::status;
use causeway_vfio_backend::Vfio;

use crate::rig::{BAR, Guest, MEMORY_64, PAGE, Rig, device, eventually, set_registers};

const VISIBLE: MemoryKind = MemoryKind::DeviceVisible;

fn fault(guest: &Guest) -> String {
    let report: FaultReport = guest.ask(Opcode::QueryFault, &Empty {}).unwrap();
    assert_eq!(Status::from_wire(report.status), Some(Status::DeviceLost));
    String::from_utf8_lossy(&report.text[..report.text_bytes as usize]).into_owned()
}

#[test]
fn a_device_that_is_asked_back_is_taken_from_all_guests_scrubbed_and_given_back() {
    let rig = Rig::new(16 * PAGE);
    let guests = [rig.guest(), rig.guest()];
    for guest in &guests {
        let memory = guest.allocate(VISIBLE, 3 * PAGE).unwrap();
        let view = guest.show(memory, 3 * PAGE);
        (0..3 * PAGE / 8).for_each(|word| view.store(word, 0x5e5e_5e5e_5e5e_5e5e));
    }
    let hardware = Arc::clone(&rig.hardware);
    assert!(hardware.fire(InterruptKind::Request, 0));
    eventually("the device to be given back", || hardware.resets() == 1);
    for guest in &guests {
        assert!(guest.host.placements().is_empty());
        assert_eq!(guest.session.status_bits(), status::LOST);
        let text = fault(guest);
        assert!(text.contains("the host wants it back"), "{text}");
    }
    assert!(!rig.peek(0, 16 * PAGE).contains(&0x5e));
    let nobody = || Arc::strong_count(&hardware) == 2;
    eventually("the last holder to let go", nobody);
    // Who begins anew finds a session, and no device.
    guests[0].session.reset();
    guests[0].hello();
    let refused = guests[0].allocate(VISIBLE, PAGE).unwrap_err();
    assert_eq!(refused.0, Status::DeviceLost);
    let refused = guests[0].allocate(MemoryKind::Host, PAGE).unwrap_err();
    assert_eq!(refused.0, Status::DeviceLost);
}

#[test]
fn work_under_way_lets_go_before_the_device_is_given_back() {
    let rig = Rig::new(512 * PAGE);
    let stop = Arc::new(AtomicBool::new(false));
    let space = rig.backend.create_space(Arc::clone(&stop)).unwrap();
    let options = Default::default();
    let memory = rig.backend.allocate(VISIBLE, 256 * PAGE, options).unwrap();
    let map = |space: &Arc<dyn Space>| {
        space
            .map(None, &memory, 0, 256 * PAGE, Access::ReadWrite)
            .unwrap()
    };
    let va = map(&space);
    let (hardware, stopping) = (&rig.hardware, Arc::clone(&stop));
    std::thread::scope(|scope| {
        let mut queue = space.create_queue(0).unwrap();
        let ending = &stop;
        let working = scope.spawn(move || {
            while !ending.load(Ordering::SeqCst) {
                let work = Work::Memory(MemoryWork::Fill {
                    destination: va,
                    bytes: 256 * PAGE,
                    pattern: 0x5e5e_5e5e,
                    width: 4,
                });
                queue.submit(work).unwrap();
            }
        });
        assert!(hardware.fire(InterruptKind::Request, 0));
        let asked = || {
            let refused = rig.backend.allocate(VISIBLE, PAGE, options).err();
            refused.is_some_and(|refused| refused.status == Status::DeviceLost)
        };
        eventually("the request to be heard", asked);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(hardware.resets(), 0, "its memory is in use");
        stopping.store(true, Ordering::SeqCst);
        working.join().unwrap();
    });
    space.unmap(va).unwrap();
    drop((memory, space));
    eventually("the device to be given back", || hardware.resets() == 1);
    assert!(!rig.peek(0, 512 * PAGE).contains(&0x5e));
}

/// A rig whose device can be reset by a file, as by sysfs.
fn resettable(name: &str) -> (Rig, std::path::PathBuf) {
    let path = std::env::temp_dir().join(format!("causeway-{name}-{}", std::process::id()));
    fs::write(&path, "").unwrap();
    let hardware = FakeHardware::new().unwrap();
    let hardware = hardware
        .with_region(RegionIndex::Bar(BAR), 16 * PAGE)
        .unwrap();
    let hardware = hardware
        .with_interrupts(InterruptKind::Error, 1)
        .with_reset_attribute(&path);
    set_registers(&hardware, &[(BAR, MEMORY_64, 0)]);
    let hardware = Arc::new(hardware);
    let backend = Vfio::over(device(&hardware), None).unwrap();
    let mediator = Mediator::new(Arc::clone(&backend) as Arc<dyn Backend>);
    let rig = Rig {
        hardware,
        backend,
        mediator,
    };
    (rig, path)
}

#[test]
fn after_somebody_has_reset_the_device_guests_begin_anew_with_scrubbed_memory() {
    let (rig, path) = resettable("reset");
    let guest = rig.guest();
    let memory = guest.allocate(VISIBLE, 4 * PAGE).unwrap();
    let _view = guest.show(memory, 4 * PAGE);
    // What a device has in its memory after a reset is its own business.
    let noise = vec![0xdd; 16 * PAGE as usize];
    let bar = RegionIndex::Bar(BAR);
    rig.hardware.poke(bar, 0, &noise).unwrap();
    fs::write(&path, "1").unwrap();
    eventually("the loss", || guest.session.status_bits() == status::LOST);
    eventually("the mapping to go", || guest.host.placements().is_empty());
    let text = fault(&guest);
    assert!(text.contains("it was reset through sysfs"), "{text}");
    guest.session.reset();
    guest.hello();
    let memory = guest.allocate(VISIBLE, 16 * PAGE).unwrap();
    assert!(guest.show(memory, 16 * PAGE).words().all(|word| word == 0));
    assert_eq!(rig.hardware.resets(), 0);
    fs::remove_file(path).unwrap();
}

#[test]
fn a_device_in_error_is_reset() {
    let (rig, path) = resettable("error");
    let guest = rig.guest();
    guest.allocate(VISIBLE, PAGE).unwrap();
    assert!(rig.hardware.fire(InterruptKind::Error, 0));
    eventually("the reset", || rig.hardware.resets() == 1);
    assert_eq!(GuestSession::status_bits(&*guest.session), status::LOST);
    guest.session.reset();
    guest.hello();
    guest.allocate(VISIBLE, 16 * PAGE).unwrap();
    fs::remove_file(path).unwrap();
}

#[test]
fn a_back_end_whose_last_holder_lets_go_when_told_of_a_loss_ends() {
    let hardware = FakeHardware::new().unwrap();
    let hardware = hardware
        .with_region(RegionIndex::Bar(BAR), 16 * PAGE)
        .unwrap()
        .with_interrupts(InterruptKind::Error, 1);
    set_registers(&hardware, &[(BAR, MEMORY_64, 0)]);
    let hardware = Arc::new(hardware);
    let backend = Vfio::over(device(&hardware), None).unwrap();
    let last = Mutex::new(Some(Arc::clone(&backend)));
    backend.observe_loss(Box::new(move |_| drop(last.lock().unwrap().take())));
    drop(backend);
    assert!(hardware.fire(InterruptKind::Error, 0));
    let nobody = || Arc::strong_count(&hardware) == 1;
    eventually("the device to be given back", nobody);
}
