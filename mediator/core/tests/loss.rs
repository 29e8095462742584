//! A device that is taken from all sessions at once.

mod rig;

use causeway_mediator::backend::Fault;
use causeway_mediator::{GuestSession, Quota};
use causeway_mediator_testing::FakeBackend;
use causeway_protocol::message::*;
use causeway_protocol::registers::{features, status};
use rig::*;
use zerocopy::IntoBytes;

fn wanted_back() -> Fault {
    Fault::new(Status::DeviceLost, "the host wants the device back")
}

#[test]
fn memory_of_the_device_goes_from_every_guest_and_host_memory_stays() {
    let rig = Rig::new();
    let other = rig.another();
    for guest in [&rig.guest, &other] {
        let space = guest.space();
        let device = guest.memory(MemoryKind::DeviceVisible, PAGE);
        guest.map_gpu(space, device, PAGE, READ_WRITE).unwrap();
        guest.map_cpu(device, 0, PAGE, READ_WRITE).unwrap();
        let hidden = guest.memory(MemoryKind::Device, PAGE);
        guest.map_gpu(space, hidden, PAGE, READ).unwrap();
        guest.buffer(space, PAGE);
        assert_eq!(guest.host.placements().len(), 2);
    }
    rig.backend.lose(&wanted_back());
    for guest in [&rig.guest, &other] {
        assert_eq!(guest.host.placements().len(), 1, "the host memory");
        assert_eq!(guest.session.status_bits(), status::LOST);
        assert_eq!(guest.fault().0, Some(Status::DeviceLost));
        assert_eq!(guest.try_space().unwrap_err().0, Status::DeviceLost);
        assert!(guest.owns(), "until its guest has taken note");
    }
    assert_eq!(rig.backend.live().bytes, 2 * PAGE, "host memory only");
    for guest in [&rig.guest, &other] {
        guest.reset();
        assert_eq!(guest.session.status_bits(), status::READY);
        guest.hello();
        let again = guest.memory(MemoryKind::DeviceVisible, PAGE);
        guest.map_cpu(again, 0, PAGE, READ_WRITE).unwrap();
    }
}

#[test]
fn exports_and_imports_end_with_the_device() {
    let rig = Rig::new();
    let importer = rig.another();
    let memory = rig.guest.memory(MemoryKind::DeviceVisible, PAGE);
    let token = rig.guest.export(memory, READ_WRITE).unwrap();
    let import = importer.import(&token, READ_WRITE).unwrap();
    importer.map_cpu(import.handle, 0, PAGE, READ).unwrap();
    rig.backend.lose(&wanted_back());
    assert!(importer.host.placements().is_empty());
    assert_eq!(rig.backend.live().memories, 0);
    importer.reset();
    importer.hello();
    assert_eq!(
        importer.import(&token, READ).unwrap_err().0,
        Status::BadToken
    );
}

#[test]
fn command_buffers_say_that_the_device_is_lost() {
    let rig = Rig::new();
    let space = rig.guest.space();
    let (va, view) = rig.guest.buffer(space, PAGE);
    let mut queue = rig.guest.command_buffer(space);
    queue.submit(&[release(va, 1).as_bytes()]);
    eventually("the fence", || {
        let mut word = [0; 8];
        view.read(0, &mut word).unwrap();
        u64::from_le_bytes(word) == 1
    });
    rig.backend.lose(&wanted_back());
    assert_eq!(queue.wait_for_fault(), Some(Status::DeviceLost));
}

#[test]
fn a_session_that_is_lost_already_and_one_that_is_closed_let_go_too() {
    let rig = Rig::new();
    let closed = rig.another();
    closed.memory(MemoryKind::Device, PAGE);
    closed.session.close();
    let memory = rig.guest.memory(MemoryKind::DeviceVisible, PAGE);
    rig.guest.map_cpu(memory, 0, PAGE, READ).unwrap();
    let earlier = Fault::new(Status::MemoryFault, "a wild pointer");
    rig.guest.session.lose(earlier);
    rig.backend.lose(&wanted_back());
    assert!(rig.guest.host.placements().is_empty());
    assert_eq!(rig.guest.fault().0, Some(Status::MemoryFault), "the first");
    assert_eq!(GuestSession::status_bits(&*closed.session), 0);
    assert_eq!(rig.backend.live().memories, 0);
}

#[test]
fn a_device_without_kernels_refuses_modules_as_something_it_cannot_do() {
    let backend = FakeBackend::with_features(features::GUEST_RAM);
    let rig = Rig::on(backend, Quota::default());
    let space = rig.guest.space();
    let refused = rig.guest.load_module(space, "nonsense", 0);
    assert_eq!(refused.unwrap_err(), (Status::Unsupported, 0));
}
