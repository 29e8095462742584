//! A lender, and workers that are sockets of the test.

use super::*;

fn weight(weight: u32) -> Compute {
    Compute {
        weight: Some(weight),
        ..Compute::DEFAULT
    }
}

/// A worker's end of a lease channel.
struct Worker(Socket);

impl Worker {
    fn attach(tenancy: &Tenancy) -> Self {
        let (socket, end) = Socket::pair().unwrap();
        end.set_patience(Duration::from_secs(20)).unwrap();
        tenancy.attach(socket).unwrap();
        Self(end)
    }

    #[track_caller]
    fn hears(&self, wanted: Order) {
        let mut room = [0; ROOM_BYTES];
        let datagram = self.0.receive(&mut room).unwrap();
        let lease: Lease = datagram.body().unwrap();
        assert_eq!(Order::from_wire(lease.order), Some(wanted));
    }

    fn tells(&self, report: LeaseReport) {
        let report = LeaseReported::from(report);
        self.0
            .send(Kind::LeaseReported, &[report.as_bytes()], &[])
            .unwrap();
    }

    /// Waits until the lender has closed its end.
    fn is_dropped(&self) -> bool {
        let mut room = [0; ROOM_BYTES];
        loop {
            match self.0.receive(&mut room) {
                Ok(_) => {}
                Err(SocketError::Closed) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// A lender with two sessions of the same weight, and workers that ask.
fn two() -> (Arc<Leases>, [Tenancy; 2], [Worker; 2]) {
    let leases = Leases::new().unwrap();
    let tenancies = [(); 2].map(|()| leases.join(weight(1)));
    let workers = tenancies.each_ref().map(Worker::attach);
    workers.iter().for_each(|worker| worker.hears(Order::Ask));
    (leases, tenancies, workers)
}

#[test]
fn the_device_goes_from_one_worker_to_the_other_and_back() {
    let (_, tenancies, [one, other]) = two();
    for _ in 0..3 {
        one.tells(LeaseReport::Wanted);
        one.hears(Order::Grant);
        other.tells(LeaseReport::Wanted);
        one.hears(Order::Return);
        one.tells(LeaseReport::Stopped);
        other.hears(Order::Grant);
        one.tells(LeaseReport::Returned);
        other.tells(LeaseReport::Returned);
    }
    // Its last report may be on its way.
    drop((one, other));
    let used = tenancies.each_ref().map(Tenancy::used_ns);
    assert!(used[0] > 0, "{used:?}");
}

#[test]
fn a_worker_that_breaks_the_protocol_is_lent_nothing_and_the_other_goes_on() {
    for bad in [
        Some((Kind::Lease, 0_u32)),
        Some((Kind::LeaseReported, 9)),
        None,
    ] {
        let (leases, _tenancies, [one, other]) = two();
        match bad {
            Some((kind, number)) => {
                let body = [number, 0];
                one.0.send(kind, &[body.as_bytes()], &[]).unwrap();
                assert!(one.is_dropped());
            }
            // It has ended.
            None => drop(one),
        }
        // Alone it needs no lease.
        other.hears(Order::Free);
        assert!(leases.state.lock().has_thread);
    }
}

#[test]
fn a_worker_that_does_not_read_holds_nobody_up() {
    let (_, tenancies, [one, other]) = two();
    // Each change is two orders, and nothing is read.
    for _ in 0..10_000 {
        tenancies[1].change(|_| Compute::DEFAULT);
        tenancies[1].change(|_| weight(1));
    }
    drop(tenancies);
    assert!(one.is_dropped() && other.is_dropped());
}

#[test]
fn the_thread_ends_with_the_last_session() {
    let (leases, tenancies, workers) = two();
    drop(tenancies);
    assert!(workers.iter().all(Worker::is_dropped));
    let deadline = Instant::now() + Duration::from_secs(20);
    while leases.state.lock().has_thread {
        assert!(Instant::now() < deadline, "it goes on");
        std::thread::yield_now();
    }
    // Another one begins with the next session.
    let tenancy = leases.join(Compute {
        share_percent: Some(10),
        ..Compute::DEFAULT
    });
    Worker::attach(&tenancy).hears(Order::Ask);
}

#[test]
fn the_next_worker_of_a_session_takes_the_place_of_the_last() {
    let (_, tenancies, [one, other]) = two();
    one.tells(LeaseReport::Wanted);
    one.hears(Order::Grant);
    other.tells(LeaseReport::Wanted);
    let next = Worker::attach(&tenancies[0]);
    assert!(one.is_dropped());
    next.hears(Order::Ask);
    other.hears(Order::Grant);
}
