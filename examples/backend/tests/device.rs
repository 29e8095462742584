//! The back end without a VM: called as the mediator calls it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_cpu_queue::HostHandle;
use causeway_example_backend::Doubler;
use causeway_mediator::backend::{
    AllocateOptions, Backend, Fault, Launch, LaunchShape, Memory, Reservation, Space, Work,
};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};

const BYTES: u64 = 4096;
const SHAPE: LaunchShape = LaunchShape {
    shared_bytes: 0,
    grid: [1, 1, 1],
    block: [64, 1, 1],
};

struct Rig {
    device: Arc<Doubler>,
    memory: Arc<dyn Memory>,
    space: Arc<dyn Space>,
    stop: Arc<AtomicBool>,
}

/// A page of numbers, each its own index.
fn rig() -> Rig {
    let device = Doubler::new();
    let options = AllocateOptions::default();
    let memory = device.allocate(MemoryKind::Host, BYTES, options).unwrap();
    let numbers: Vec<u8> = (0..BYTES as u32 / 4).flat_map(u32::to_le_bytes).collect();
    let host = HostHandle::memory_of(&memory).unwrap();
    host.mapping().write(0, &numbers).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let space = device.create_space(Arc::clone(&stop)).unwrap();
    Rig {
        device,
        memory,
        space,
        stop,
    }
}

impl Rig {
    fn map(&self, access: Access) -> u64 {
        let mapped = self.space.map(None, &self.memory, 0, BYTES, access);
        mapped.unwrap()
    }

    fn launch(&self, numbers: u64, length: u32) -> Result<(), Fault> {
        let module = self
            .space
            .load_module(b"any", &mut Reservation::unlimited())
            .unwrap();
        let kernel = module.kernel("double").unwrap();
        let parameters = [&numbers.to_le_bytes()[..], &length.to_le_bytes()].concat();
        let launch = Launch::new(&kernel, SHAPE, &parameters)?;
        self.space
            .create_queue(0)
            .unwrap()
            .submit(Work::Launch(launch))
    }

    fn number(&self, index: u64) -> u32 {
        let mut bytes = [0; 4];
        let host = HostHandle::memory_of(&self.memory).unwrap();
        host.mapping().read(4 * index, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }
}

#[test]
fn as_many_numbers_are_doubled_as_the_launch_says() {
    let rig = rig();
    let numbers = rig.map(Access::ReadWrite);
    rig.launch(numbers + 40, 100).unwrap();
    assert_eq!([9, 10, 109, 110].map(|i| rig.number(i)), [9, 20, 218, 110]);
    assert_eq!(rig.device.doubled(), 100);
}

#[test]
fn memory_that_is_not_mapped_or_read_only_is_a_fault_and_nothing_else_changes() {
    let rig = rig();
    let numbers = rig.map(Access::Read);
    for (address, length) in [
        (numbers, 1),
        (0, 1),
        (u64::MAX - 3, 2),
        (numbers + BYTES, 1),
    ] {
        let fault = rig.launch(address, length).unwrap_err();
        assert_eq!(fault.status, Status::MemoryFault, "{address:#x}");
    }
    rig.space.set_access(numbers, Access::ReadWrite).unwrap();
    let beyond = rig.launch(numbers + BYTES - 8, 3).unwrap_err();
    assert_eq!(beyond.status, Status::MemoryFault);
    assert_eq!(
        [0, 1021, 1022, 1023].map(|i| rig.number(i)),
        [0, 1021, 2044, 2046]
    );
}

#[test]
fn a_session_that_ends_stops_the_device() {
    let rig = rig();
    let numbers = rig.map(Access::ReadWrite);
    rig.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    rig.launch(numbers, u32::MAX).unwrap();
    assert_eq!(rig.device.doubled(), 0);
}
