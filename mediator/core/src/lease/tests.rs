//! Orders and reports of one session.

use super::*;

/// Keeps what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<LeaseReport>>);

impl Lender for Told {
    fn tell(&self, report: LeaseReport) {
        self.0.lock().push(report);
    }
}

impl Told {
    #[track_caller]
    fn expect(&self, reports: &[LeaseReport]) {
        assert_eq!(std::mem::take(&mut *self.0.lock()), reports);
    }
}

fn lease() -> (Arc<Lease>, Arc<Told>) {
    let (lease, told) = (Arc::<Lease>::default(), Arc::<Told>::default());
    lease.set_lender(Arc::clone(&told) as _);
    (lease, told)
}

const SOON: Duration = Duration::from_secs(60);

#[test]
fn who_is_free_tells_nothing_and_is_not_metered() {
    let (lease, told) = lease();
    let mut tenant = Tenant::new(&lease);
    assert!(!tenant.is_metered() && tenant.begin() && tenant.is_busy());
    assert!(tenant.rest() && !tenant.is_busy());
    lease.obey(LeaseOrder::Return(Duration::ZERO));
    lease.obey(LeaseOrder::Grant);
    assert!(lease.look().is_none() && !tenant.is_metered());
    told.expect(&[]);
}

#[test]
fn a_lease_is_asked_for_once_and_kept_until_it_is_wanted_back() {
    let (lease, told) = lease();
    let (mut first, mut second) = (Tenant::new(&lease), Tenant::new(&lease));
    lease.obey(LeaseOrder::Ask);
    assert!(!first.begin() && !second.begin() && !first.begin());
    told.expect(&[LeaseReport::Wanted]);
    lease.obey(LeaseOrder::Grant);
    assert!(first.begin() && second.begin() && first.is_metered());
    assert!(first.rest() && second.rest() && first.begin());
    told.expect(&[]);
    lease.obey(LeaseOrder::Return(SOON));
    assert!(lease.look().is_some(), "it has work");
    assert!(!first.rest(), "more may come at once");
    std::thread::sleep(2 * LINGER);
    assert!(first.begin(), "as it does");
    assert!(!first.rest());
    std::thread::sleep(2 * LINGER);
    assert!(first.rest());
    told.expect(&[LeaseReport::Returned]);
    assert!(!second.begin());
    told.expect(&[LeaseReport::Wanted]);
}

#[test]
fn an_idle_session_returns_its_lease_after_a_moment() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    lease.obey(LeaseOrder::Grant);
    lease.obey(LeaseOrder::Return(SOON));
    std::thread::sleep(2 * LINGER);
    assert!(lease.look().is_none());
    told.expect(&[LeaseReport::Returned]);
    assert!(!Tenant::new(&lease).begin());
}

#[test]
fn when_the_time_is_over_nothing_is_submitted_and_the_end_of_the_work_is_told() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    let (mut first, mut second) = (Tenant::new(&lease), Tenant::new(&lease));
    assert!(!first.begin());
    lease.obey(LeaseOrder::Grant);
    assert!(first.begin() && second.begin());
    lease.obey(LeaseOrder::Return(Duration::ZERO));
    assert!(lease.look().is_none());
    assert!(!first.begin() && first.is_stopping(), "it may not submit");
    first.near_end();
    first.near_end();
    told.expect(&[LeaseReport::Wanted]);
    second.near_end();
    told.expect(&[LeaseReport::Stopped]);
    assert!(first.rest());
    told.expect(&[]);
    // A command buffer that ends has no work, either.
    drop(second);
    told.expect(&[LeaseReport::Returned]);
}

#[test]
fn a_command_buffer_that_ends_is_not_waited_for() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    lease.obey(LeaseOrder::Grant);
    let mut both = [Tenant::new(&lease), Tenant::new(&lease)];
    for _ in 0..2 {
        assert!(both.iter_mut().all(Tenant::begin));
        lease.obey(LeaseOrder::Return(Duration::ZERO));
        assert!(lease.look().is_none());
        both[0].near_end();
        both[1].end();
        told.expect(&[LeaseReport::Stopped]);
        both[0].end();
        told.expect(&[LeaseReport::Returned]);
        // What counted for the last lease does not count for the next.
        lease.obey(LeaseOrder::Grant);
    }
}

#[test]
fn work_from_before_the_first_lease_is_of_none() {
    let (lease, told) = lease();
    let mut tenant = Tenant::new(&lease);
    assert!(tenant.begin());
    lease.obey(LeaseOrder::Ask);
    assert!(!tenant.begin() && tenant.is_busy());
    tenant.end();
    told.expect(&[LeaseReport::Wanted]);
    lease.obey(LeaseOrder::Free);
    assert!(tenant.begin());
}

#[test]
fn who_waits_goes_on_when_the_lease_comes() {
    let (lease, _) = lease();
    lease.obey(LeaseOrder::Ask);
    let mut tenant = Tenant::new(&lease);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            while !tenant.begin() {
                tenant.wait(SOON);
            }
        });
        while lease.state.lock().standing != Standing::Wanted {
            std::thread::yield_now();
        }
        lease.obey(LeaseOrder::Grant);
        waits.join().unwrap();
    });
}
