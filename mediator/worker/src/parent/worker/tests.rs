//! Workers that no session has, and what they say.

use causeway_mediator_testing::FakeHost;
use rustix::process::{Resource, getrlimit, setrlimit};
use zerocopy::FromZeros;

use super::*;
use crate::parent::leases::Leases;
use crate::parent::starter::Starter;
use crate::socket::buffer;
use crate::tests::rig::{is_alone_at, program};
use crate::wire::{Place, Placed};

/// Starts a worker for a guest on the host that this returns, too.
fn start() -> (Arc<Worker>, Arc<FakeHost>) {
    let program = program("rig::worker_process", "software");
    let shared = Shared {
        starter: Starter::new(&program).unwrap(),
        broker: Arc::default(),
        gpu: 0,
        partitions: Arc::default(),
        import_device: None,
        leases: Leases::new().unwrap(),
        overdue: Arc::default(),
    };
    let host = FakeHost::new(1 << 20, 1 << 20).unwrap();
    let quota = Quota::default();
    let order = Order {
        session: 1,
        partition: 0,
        name: "test".to_owned(),
        host: Arc::clone(&host) as _,
        limits: Arc::new(LiveLimits::new(&quota)),
        grants: Arc::default(),
        membership: shared.leases.join(quota.compute),
    };
    let worker = Worker::start(&shared, &order, &mut || false).unwrap();
    (worker, host)
}

#[test]
fn a_worker_that_is_closed_has_ended_before_it_is_dropped() {
    let (worker, _host) = start();
    worker.close();
    assert!(worker.process.ending().is_some(), "it still runs");
}

#[test]
fn what_a_worker_has_placed_is_removed_when_it_is_dropped() {
    let (worker, host) = start();
    let memory = SharedMemory::new("test", PAGE_BYTES, PageSize::Small).unwrap();
    let request = Place {
        offset: 0,
        bytes: PAGE_BYTES,
        memory_bytes: PAGE_BYTES,
        access: Access::Read.wire() as u16,
        kind: Placed::Host as u16,
        pages: 0,
    };
    let file = memory.file().try_clone_to_owned().unwrap();
    assert!(worker.guest.place(&request, file).is_ok());
    assert_eq!(host.placements().len(), 1);
    drop(worker);
    assert!(host.placements().is_empty());
}

#[test]
fn a_lack_of_descriptors_is_waited_out_up_to_the_limit() {
    if !is_alone_at("parent::worker::tests::a_lack_of_descriptors_is_waited_out_up_to_the_limit") {
        return;
    }
    let (worker, _host) = start();
    // The only one.
    let used = worker.channel(None).unwrap();
    // No descriptor is left beside standard input, output and error.
    let mut rlimit = getrlimit(Resource::Nofile);
    rlimit.current = Some(3);
    setrlimit(Resource::Nofile, rlimit).unwrap();
    let (begun, limit) = (Instant::now(), Duration::from_millis(100));
    let refused = std::thread::scope(|scope| {
        let caller = scope.spawn(|| worker.channel(Some(limit)).err());
        while !caller.is_finished() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(CHANNEL_PAUSE);
        }
        // Ends the wait of a caller that would wait for ever.
        worker.channels.lock().push(used);
        caller.join().unwrap()
    });
    assert!(begun.elapsed() >= limit);
    assert!(refused.is_some_and(|error| error.is_shortage()));
}

#[test]
fn a_worker_whose_back_end_is_poisoned_is_not_as_new() {
    let (worker, vmm) = Socket::pair().unwrap();
    let mut room = buffer();
    let mut says = |body: &[u8]| {
        worker.send(Kind::ResetDone, &[body], &[]).unwrap();
        is_fresh(&mut vmm.receive(&mut room).unwrap()).ok()
    };
    let mut done = ResetDone::new_zeroed();
    assert_eq!(says(done.as_bytes()), Some(true));
    done.poisoned = 1;
    assert_eq!(says(done.as_bytes()), Some(false));
    assert_eq!(says(&[]), None, "it says nothing");
}
