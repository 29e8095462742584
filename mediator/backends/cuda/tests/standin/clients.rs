//! Clients that are reset while kernels of theirs are under way: what becomes of the others. In
//! this process, and in workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_cuda::{Config, Cuda};
use causeway_kernels::special;
use causeway_mediator::backend::Backend;
use causeway_mediator::{Client, GuestSession, Mediator, Quota, Session, SessionReport};
use causeway_mediator_testing::FakeHost;
use causeway_memory::Mapping;
use causeway_protocol::message::{MemoryKind, Opcode, Status};
use causeway_protocol::registers::status;
use causeway_worker::{
    Confinement, Equipment, Program, WorkerSession, Workers, serve, start_workers,
};
use rustix::process::{Pid, test_kill_process};
use zerocopy::IntoBytes;

use crate::rig::{Guest, Queue, READ_WRITE, eventually, launch, release};
use crate::support::{is_child, visible};

const BYTES: u64 = 2 << 20;
const LONG: Duration = Duration::from_secs(60);
const MODULE: u64 = 0x1000;
/// Last argument of a worker before those that every worker gets.
const WORKER: &str = "clients-on-cuda";
/// Last argument but one of the process that starts workers, and the test that runs it.
const STARTER: &str = "starter-of-clients";
const STARTER_TEST: &str = "clients::starter_process";
/// Steps of a kernel that has none to spare.
const STEPS: u32 = 5;

fn open() -> Arc<Cuda> {
    let config = Config {
        visible: Some(visible()),
        ..Config::default()
    };
    Cuda::open(&config).unwrap()
}

/// No test, but what tests start as a worker.
#[test]
fn worker_process() {
    let mut words = std::env::args().rev();
    let (_session, parent, word) = (words.next(), words.next(), words.next());
    if word.as_deref() != Some(WORKER) {
        return;
    }
    let equip = || {
        Ok::<_, std::convert::Infallible>(Equipment {
            backend: open(),
            gpus: causeway_mediator::Gpus::default(),
            device: None,
            supplement: Box::new(Vec::new),
        })
    };
    // The test harness has threads: a process with threads cannot confine itself.
    serve(parent.unwrap().parse().unwrap(), Confinement::off(), equip).unwrap();
}

/// No test, but what starts workers for tests.
#[test]
fn starter_process() {
    let mut words = std::env::args().rev();
    let (parent, word) = (words.next(), words.next());
    if word.as_deref() == Some(STARTER) {
        start_workers(parent.unwrap().parse().unwrap()).unwrap();
    }
}

fn inside() -> (Arc<Cuda>, Guest<Session>) {
    let cuda = open();
    let mediator = Mediator::new(Arc::clone(&cuda) as _);
    (cuda, Guest::open(&mediator, Quota::default()))
}

fn in_worker() -> Guest<WorkerSession> {
    let test = "clients::worker_process";
    let program = Program {
        groups: None,
        path: std::env::current_exe().unwrap(),
        arguments: [test, "--exact", "--nocapture", "--quiet", WORKER]
            .map(Into::into)
            .to_vec(),
        environment: causeway_cuda::ENVIRONMENT
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        starter: [STARTER_TEST, "--exact", "--nocapture", "--quiet", STARTER]
            .map(Into::into)
            .to_vec(),
    };
    let workers = Workers::new(&program, None).unwrap();
    let host = FakeHost::new(1 << 20, 64 << 20).unwrap();
    let session = workers.open_worker(Arc::clone(&host) as _, Quota::default(), "test");
    let client = Client::FIRST;
    let session = session.unwrap();
    Guest {
        host,
        session,
        client,
    }
}

fn pid(session: &WorkerSession) -> Pid {
    Pid::from_raw(session.process_id().unwrap().cast_signed()).unwrap()
}

fn kernel<S: GuestSession>(guest: &Guest<S>, space: u32, name: &str) -> u32 {
    let module = guest.load_module(space, special::PTX, MODULE).unwrap();
    guest.kernel(module, name).unwrap().handle
}

/// Has a kernel begin that ends when the first word of the mapping is not zero.
fn begin_endless<S: GuestSession>(guest: &Guest<S>, space: u32) -> (Queue, Mapping) {
    let (va, view) = guest.buffer(space, BYTES);
    let mut queue = guest.command_buffer(space);
    let endless = kernel(guest, space, special::FOREVER);
    let (begun, kernel) = (release(va + 8, 1), launch(endless, va.as_bytes()));
    queue.submit(&[begun.as_bytes(), &kernel]);
    guest.wait(space, va + 8, 1, LONG).unwrap();
    await_consumer(&queue);
    (queue, view)
}

/// Waits until all packets are the GPU's: a consumer that is stopped begins no other.
fn await_consumer(queue: &Queue) {
    let producer = &queue.producer;
    eventually("the last packet", || {
        producer.consumed() == producer.position()
    });
}

/// Has the GPU compute something.
fn works<S: GuestSession>(guest: &Guest<S>) {
    let space = guest.space();
    let (va, view) = guest.buffer(space, BYTES);
    let mut queue = guest.command_buffer(space);
    let spin = kernel(guest, space, special::SPIN);
    queue.submit(&[&spinning(spin, va + 64), release(va, 1).as_bytes()]);
    guest.wait(space, va, 1, LONG).unwrap();
    let state = view.load_u64(64, Ordering::Acquire).unwrap() as u32;
    assert_eq!(state, special::spun(0, STEPS));
}

fn spinning(kernel: u32, states: u64) -> Vec<u8> {
    let mut parameters = u64::from(STEPS).to_le_bytes().to_vec();
    parameters.extend_from_slice(&states.to_le_bytes());
    launch(kernel, &parameters)
}

/// A kernel goes on for longer than a queue waits at the end of a session, and another that uses
/// memory of the device comes after it.
fn a_long_kernel_may_end<S: GuestSession>(first: &Guest<S>) {
    let (long, other) = (first.beside(1), first.beside(2));
    works(&other);
    let space = long.space();
    let memory = long.memory(MemoryKind::Device, BYTES);
    let states = long.map_gpu(space, memory, BYTES, READ_WRITE).unwrap();
    // Before the long kernel begins: a driver may load modules only when kernels under way are
    // done.
    let spin = kernel(&long, space, special::SPIN);
    let (mut queue, view) = begin_endless(&long, space);
    queue.submit(&[&spinning(spin, states)]);
    await_consumer(&queue);
    std::thread::scope(|scope| {
        scope.spawn(|| long.reset());
        std::thread::sleep(Duration::from_millis(600));
        view.store_u64(0, 1, Ordering::Release).unwrap();
    });
    assert!(!long.owns() && other.owns());
    assert_eq!(other.session.status_bits(), status::READY);
    works(&other);
    long.hello();
    works(&long);
    let report = other.session.report();
    assert_eq!((report.statistics.faults, &report.fault), (0, &None));
    for guest in [long, other] {
        guest.reset();
    }
    assert_nothing_left(first);
}

/// An endless kernel costs the others their device, and they are told.
fn an_endless_kernel_costs_the_device<S: GuestSession>(first: &Guest<S>) -> Mapping {
    let (endless, other) = (first.beside(1), first.beside(2));
    works(&other);
    let space = endless.space();
    let (_queue, view) = begin_endless(&endless, space);
    endless.reset();
    assert!(!endless.owns() && other.owns());
    assert_eq!(other.session.status_bits(), status::LOST);
    let (told, text) = other.fault();
    assert_eq!(told, Some(Status::DeviceLost));
    assert!(text.contains("did not end"), "{text}");
    for guest in [&endless, &other] {
        let refused = guest.try_space().unwrap_err();
        assert_eq!(refused.0, Status::DeviceLost);
    }
    assert_eq!(view.load_u64(0, Ordering::Acquire).unwrap(), 0);
    // A successor on the page of the first, which owns nothing, changes nothing.
    endless.reset();
    assert_eq!(other.session.status_bits(), status::LOST);
    other.reset();
    assert_eq!(other.session.status_bits(), status::READY);
    assert_nothing_left(first);
    view
}

fn assert_nothing_left<S: GuestSession>(guest: &Guest<S>) {
    assert_eq!(guest.session.owners(), 0);
    assert!(guest.host.placements().is_empty());
    assert!(guest.host.doorbells().is_empty());
}

#[test]
fn a_long_kernel_of_a_client_may_end() {
    if !is_child("clients::a_long_kernel_of_a_client_may_end", &[]) {
        return;
    }
    let (cuda, guest) = inside();
    a_long_kernel_may_end(&guest);
    assert!(!cuda.is_poisoned());
    assert_eq!(guest.session.report().statistics.memory_used_bytes, 0);
}

#[test]
fn a_long_kernel_of_a_client_may_end_in_a_worker() {
    if !is_child(
        "clients::a_long_kernel_of_a_client_may_end_in_a_worker",
        &[],
    ) {
        return;
    }
    let guest = in_worker();
    let before = pid(&guest.session);
    a_long_kernel_may_end(&guest);
    assert_eq!(pid(&guest.session), before);
    let SessionReport {
        worker, statistics, ..
    } = guest.session.report();
    assert_eq!(
        (worker.unwrap().restarts, statistics.memory_used_bytes),
        (0, 0)
    );
}

#[test]
fn an_endless_kernel_of_a_client_costs_all_the_device() {
    if !is_child(
        "clients::an_endless_kernel_of_a_client_costs_all_the_device",
        &[],
    ) {
        return;
    }
    let (cuda, guest) = inside();
    let view = an_endless_kernel_costs_the_device(&guest);
    assert!(cuda.is_poisoned());
    // What was lost once is not lost again with the next client.
    let (one, other) = (guest.beside(1), guest.beside(2));
    one.space();
    other.space();
    one.reset();
    assert_eq!(other.session.status_bits(), status::READY);
    other.reset();
    assert_nothing_left(&guest);
    view.store_u64(0, 1, Ordering::Release).unwrap();
}

#[test]
fn an_endless_kernel_of_a_client_costs_all_their_worker() {
    if !is_child(
        "clients::an_endless_kernel_of_a_client_costs_all_their_worker",
        &[],
    ) {
        return;
    }
    let guest = in_worker();
    let before = pid(&guest.session);
    an_endless_kernel_costs_the_device(&guest);
    assert!(test_kill_process(before).is_err(), "the kernel goes on");
    assert_ne!(pid(&guest.session), before);
    let (one, other) = (guest.beside(1), guest.beside(2));
    works(&one);
    works(&other);
    one.reset();
    assert!(other.owns() && !one.owns());
    assert_eq!(other.session.status_bits(), status::READY);
    other.reset();
    assert_nothing_left(&guest);
    let report = guest.session.report();
    assert_eq!(report.statistics.memory_used_bytes, 0);
    // Those of the worker that is gone count.
    assert_eq!(report.statistics.launches, 4);
    assert_eq!(report.worker.unwrap().restarts, 1);
}

#[test]
fn a_worker_ends_with_its_endless_kernel_while_others_are_yet_to_notice() {
    if !is_child(
        "clients::a_worker_ends_with_its_endless_kernel_while_others_are_yet_to_notice",
        &[],
    ) {
        return;
    }
    let guest = in_worker();
    let (endless, other) = (guest.beside(1), guest.beside(2));
    let worker = pid(&guest.session);
    let kept = other.memory(MemoryKind::Host, BYTES);
    let offset = other.map_cpu(kept, 0, BYTES, READ_WRITE).unwrap();
    let (_queue, _view) = begin_endless(&endless, endless.space());
    endless.reset();
    let running = || {
        let status = format!("/proc/{}/status", worker.as_raw_nonzero());
        std::fs::read_to_string(status).is_ok_and(|status| !status.contains("State:\tZ"))
    };
    eventually("the end of the worker", || !running());
    // What the other waits for stays readable until it notices.
    assert_eq!(
        other.host.placements().keys().collect::<Vec<_>>(),
        [&offset]
    );
    assert!(other.by_handle(Opcode::Free, kept).is_err());
    other.reset();
    assert_nothing_left(&guest);
}
