//! Sessions of a mediator on the back end: command buffers with consumer threads, as guests have
//! them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_cuda::{Config, Cuda};
use causeway_kernels::special;
use causeway_mediator::backend::Backend;
use causeway_mediator::{GuestSession, Mediator, Quota};
use causeway_protocol::message::{MemoryKind, Opcode, Status};
use causeway_protocol::packet;
use zerocopy::IntoBytes;

use crate::rig::{Guest, READ_WRITE, eventually, header, launch, release, replay};
use crate::support::{is_child, visible};

const BYTES: u64 = 2 << 20;
const LONG: Duration = Duration::from_secs(20);
const MODULE: u64 = 0x1000;

fn mediator() -> (Arc<Cuda>, Arc<Mediator>) {
    let config = Config {
        visible: Some(visible()),
        ..Config::default()
    };
    let cuda = Cuda::open(&config).unwrap();
    let mediator = Mediator::new(Arc::clone(&cuda) as _);
    (cuda, mediator)
}

fn spin(guest: &Guest, space: u32, states: u64, steps: u32) -> Vec<u8> {
    let module = guest.load_module(space, special::PTX, MODULE).unwrap();
    let kernel = guest.kernel(module, special::SPIN).unwrap();
    let mut parameters = steps.to_le_bytes().to_vec();
    parameters.resize(8, 0);
    parameters.extend_from_slice(&states.to_le_bytes());
    launch(kernel.handle, &parameters)
}

#[test]
fn packets_run_on_the_gpu_and_memory_comes_back() {
    if !is_child("session::packets_run_on_the_gpu_and_memory_comes_back", &[]) {
        return;
    }
    let (cuda, mediator) = mediator();
    for _ in 0..3 {
        let guest = Guest::open(&mediator, Quota::default());
        let space = guest.space();
        let (va, view) = guest.buffer(space, BYTES);
        let mut queue = guest.command_buffer(space);
        let work = spin(&guest, space, va + 64, 5);
        let recording = guest.record(space, &[&work, &work]).unwrap();
        let fence = release(va, 1);
        queue.submit(&[&work, fence.as_bytes()]);
        guest.wait(space, va, 1, LONG).unwrap();
        let state = || view.load_u64(64, Ordering::Acquire).unwrap() as u32;
        assert_eq!(state(), special::spun(0, 5));
        let (again, fence) = (replay(recording), release(va, 2));
        queue.submit(&[again.as_bytes(), fence.as_bytes()]);
        guest.wait(space, va, 2, LONG).unwrap();
        assert_eq!(state(), special::spun(0, 15));
        guest.session.close();
    }
    assert!(!cuda.is_poisoned());
}

#[test]
fn a_fault_of_the_gpu_loses_the_session_with_the_drivers_error() {
    if !is_child(
        "session::a_fault_of_the_gpu_loses_the_session_with_the_drivers_error",
        &[],
    ) {
        return;
    }
    let (cuda, mediator) = mediator();
    let guest = Guest::open(&mediator, Quota::default());
    let space = guest.space();
    let mut queue = guest.command_buffer(space);
    let module = guest.load_module(space, special::PTX, MODULE).unwrap();
    let kernel = guest.kernel(module, special::WILD_STORE).unwrap();
    let mut parameters = 0x7777_0000_0000_u64.to_le_bytes().to_vec();
    parameters.extend_from_slice(&1_u32.to_le_bytes());
    queue.submit(&[&launch(kernel.handle, &parameters)]);
    // Nothing follows the launch: that it went wrong shows all the same.
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    eventually("the end of the session", || guest.fault().0.is_some());
    let (status, text) = guest.fault();
    assert_eq!(status, Some(Status::MemoryFault));
    assert!(text.contains("ILLEGAL_ADDRESS"), "{text}");
    assert!(text.contains("wild_store"), "{text}");
    let lost = guest.allocate(MemoryKind::Host, BYTES).unwrap_err();
    assert_eq!(lost.0, Status::DeviceLost);
    assert!(cuda.is_poisoned());
}

#[test]
fn a_copy_from_nowhere_loses_the_session_and_not_the_gpu() {
    if !is_child(
        "session::a_copy_from_nowhere_loses_the_session_and_not_the_gpu",
        &[],
    ) {
        return;
    }
    let (cuda, mediator) = mediator();
    let others = Guest::open(&mediator, Quota::default());
    let guest = Guest::open(&mediator, Quota::default());
    let space = guest.space();
    let (va, _) = guest.buffer(space, BYTES);
    let mut queue = guest.command_buffer(space);
    let copy = packet::CopyRange {
        header: header(packet::Opcode::Copy, 1),
        destination: va,
        source: 0x7777_0000_0000,
        length: 64,
        ..packet::CopyRange::default()
    };
    queue.submit(&[copy.as_bytes()]);
    assert_eq!(queue.wait_for_fault(), Some(Status::MemoryFault));
    eventually("the end of the session", || guest.fault().0.is_some());
    assert!(!cuda.is_poisoned());
    let space = others.space();
    let memory = others.memory(MemoryKind::Device, BYTES);
    let va = others.map_gpu(space, memory, BYTES, READ_WRITE).unwrap();
    assert_ne!(va, 0);
    others.unmap(Opcode::UnmapGpu, space, va).unwrap();
    others.free(memory).unwrap();
}
