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
    fn attach(membership: &Membership) -> Self {
        let (socket, end) = Socket::pair().unwrap();
        end.set_patience(Duration::from_secs(20)).unwrap();
        membership.attach(7, socket).unwrap();
        Self(end)
    }

    #[track_caller]
    fn hears(&self, wanted: LeaseOrder) {
        assert_eq!(self.next_order(), wanted);
    }

    /// Hears that the lease is to be returned, at whatever time.
    #[track_caller]
    fn hears_return(&self) {
        let order = self.next_order();
        assert!(matches!(order, LeaseOrder::Return(_)), "{order:?}");
    }

    #[track_caller]
    fn next_order(&self) -> LeaseOrder {
        let mut room = [0; ROOM_BYTES];
        let datagram = self.0.receive(&mut room).unwrap();
        let lease: Lease = datagram.body().unwrap();
        lease.order().unwrap()
    }

    fn tells(&self, report: LeaseReport) {
        let report = LeaseReported::new(report);
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
fn two() -> (Arc<Leases>, [Membership; 2], [Worker; 2]) {
    let leases = Leases::new().unwrap();
    let memberships = [(); 2].map(|()| leases.join(weight(1)));
    let workers = memberships.each_ref().map(Worker::attach);
    workers
        .iter()
        .for_each(|worker| worker.hears(LeaseOrder::Ask));
    workers
        .iter()
        .for_each(|worker| worker.tells(LeaseReport::Returned(0)));
    (leases, memberships, workers)
}

#[test]
fn the_device_goes_from_one_worker_to_the_other_and_back() {
    let (_, memberships, [one, other]) = two();
    for number in 1..4 {
        one.tells(LeaseReport::Wanted);
        one.hears(LeaseOrder::Grant(number));
        other.tells(LeaseReport::Wanted);
        one.hears_return();
        one.tells(LeaseReport::Stopped(number));
        other.hears(LeaseOrder::Grant(number));
        one.tells(LeaseReport::Returned(number));
        other.tells(LeaseReport::Returned(number));
    }
    // Its last report may be on its way.
    drop((one, other));
    let used = memberships.each_ref().map(Membership::used_ns);
    // Each lease takes at least a system call of both processes.
    assert!(used[0] > 1, "{used:?}");
}

#[test]
fn a_worker_that_breaks_the_protocol_is_lent_nothing_and_the_other_goes_on() {
    for bad in [
        Some((Kind::Lease, 0_u32, 1)),
        Some((Kind::LeaseReported, 9, 1)),
        // It returns a lease with a number that it does not have.
        Some((Kind::LeaseReported, 2, 100)),
        None,
    ] {
        let (leases, _tenancies, [one, other]) = two();
        match bad {
            Some((kind, number, times)) => {
                let body = [number, 77];
                for _ in 0..times {
                    // The last ones may come too late.
                    let _ = one.0.send(kind, &[body.as_bytes()], &[]);
                }
                assert!(one.is_dropped());
            }
            // It has ended.
            None => drop(one),
        }
        other.tells(LeaseReport::Wanted);
        other.hears(LeaseOrder::Grant(1));
        assert!(leases.state.lock().has_thread);
    }
}

#[test]
fn a_worker_that_does_not_read_holds_nobody_up() {
    let (_, memberships, [one, other]) = two();
    let deadline = Instant::now() + Duration::from_secs(60);
    // Each change is an order, if the thread sees it, and nothing is read.
    while memberships[0].is_attached(7) || memberships[1].is_attached(7) {
        assert!(Instant::now() < deadline, "it goes on");
        memberships[1].change(|_| Compute::DEFAULT);
        std::thread::yield_now();
        memberships[1].change(|_| weight(1));
    }
    assert!(one.is_dropped() && other.is_dropped());
}

#[test]
fn the_thread_ends_with_the_last_session() {
    let (leases, memberships, workers) = two();
    drop(memberships);
    assert!(workers.iter().all(Worker::is_dropped));
    let deadline = Instant::now() + Duration::from_secs(20);
    while leases.state.lock().has_thread {
        assert!(Instant::now() < deadline, "it goes on");
        std::thread::yield_now();
    }
    // Another one begins with the next session.
    let membership = leases.join(Compute {
        share_percent: Some(10),
        ..Compute::DEFAULT
    });
    Worker::attach(&membership).hears(LeaseOrder::Ask);
}

#[test]
fn the_next_worker_of_a_session_takes_the_place_of_the_last() {
    let (_, memberships, [one, other]) = two();
    one.tells(LeaseReport::Wanted);
    one.hears(LeaseOrder::Grant(1));
    other.tells(LeaseReport::Wanted);
    let next = Worker::attach(&memberships[0]);
    assert!(one.is_dropped());
    next.hears(LeaseOrder::Ask);
    other.hears(LeaseOrder::Grant(1));
    assert!(memberships[0].is_attached(7) && !memberships[0].is_attached(8));
}

#[test]
fn a_session_that_closes_or_has_no_weight_is_in_nobodys_way() {
    let (leases, memberships, [one, other]) = two();
    assert!(memberships[0].is_needed());
    assert!(!leases.join(Compute::DEFAULT).is_needed());
    memberships[1].close();
    assert!(other.is_dropped());
    one.hears(LeaseOrder::Free);
    assert_eq!(memberships[1].compute(), weight(1));
}

/// Two sessions of the same weight that may ask, without a thread; and the ends of their workers.
fn told_to_ask() -> (State, [Worker; 2]) {
    let mut state = State::default();
    let workers = [1, 2].map(|number| {
        let (socket, end) = Socket::pair().unwrap();
        end.set_patience(Duration::from_secs(1)).unwrap();
        state.rota.join(number, weight(1));
        state.rota.set_present(number, true);
        let borrower = Borrower {
            worker: number,
            socket: Arc::new(socket),
            idle_reports: 0,
        };
        state.borrowers.insert(number, borrower);
        Worker(end)
    });
    state.decide(0);
    (state, workers)
}

#[test]
fn a_lease_for_a_worker_that_has_ended_goes_to_the_next_at_once() {
    let (mut state, [one, other]) = told_to_ask();
    for session in [1, 2] {
        for report in [LeaseReport::Returned(0), LeaseReport::Wanted] {
            state.take(session, report, 0).unwrap();
        }
    }
    drop(one);
    state.decide(0);
    assert!(!state.borrowers.contains_key(&1));
    other.hears(LeaseOrder::Ask);
    other.hears(LeaseOrder::Grant(1));
}

#[test]
fn only_so_many_reports_in_a_row_may_mean_nothing() {
    let (mut state, _workers) = told_to_ask();
    for meant in [LeaseReport::Returned(0), LeaseReport::Wanted] {
        for _ in 0..IDLE_REPORTS_MAX {
            state.take(1, LeaseReport::Returned(9), 0).unwrap();
        }
        state.take(1, meant, 0).unwrap();
    }
    for _ in 0..IDLE_REPORTS_MAX {
        state.take(1, LeaseReport::Returned(9), 0).unwrap();
    }
    let refused = state.take(1, LeaseReport::Returned(9), 0);
    assert!(matches!(refused, Err(SocketError::Malformed(_))));
}
