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
    let mut user = LeaseUser::new(&lease);
    assert!(!user.is_metered() && user.begin() && user.is_busy());
    assert!(user.rest() && !user.is_busy());
    lease.obey(LeaseOrder::Return(Duration::ZERO));
    lease.obey(LeaseOrder::Grant(3));
    assert!(lease.look().is_none() && !user.is_metered());
    told.expect(&[]);
}

#[test]
fn a_lease_is_asked_for_once_and_kept_until_it_is_wanted_back() {
    let (lease, told) = lease();
    let (mut first, mut second) = (LeaseUser::new(&lease), LeaseUser::new(&lease));
    lease.obey(LeaseOrder::Ask);
    told.expect(&[LeaseReport::Returned(0)]);
    assert!(!first.begin() && !second.begin() && !first.begin());
    told.expect(&[LeaseReport::Wanted]);
    lease.obey(LeaseOrder::Grant(3));
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
    told.expect(&[LeaseReport::Returned(3)]);
    assert!(!second.begin());
    told.expect(&[LeaseReport::Wanted]);
}

#[test]
fn an_idle_session_returns_its_lease_after_a_moment() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    lease.obey(LeaseOrder::Grant(3));
    lease.obey(LeaseOrder::Return(SOON));
    std::thread::sleep(2 * LINGER);
    assert!(lease.look().is_none());
    told.expect(&[LeaseReport::Returned(0), LeaseReport::Returned(3)]);
    assert!(!LeaseUser::new(&lease).begin());
}

#[test]
fn a_session_without_work_is_looked_at_when_its_moment_is_over() {
    let (lease, _told) = lease();
    lease.obey(LeaseOrder::Ask);
    lease.obey(LeaseOrder::Grant(3));
    lease.obey(LeaseOrder::Return(2 * SOON));
    // Late enough for the slowest host.
    let idle_since = Instant::now() + SOON;
    lease.state.lock().idle_since = Some(idle_since);
    assert_eq!(lease.look(), Some(idle_since + LINGER));
}

#[test]
fn a_session_without_work_returns_its_lease_at_the_end_of_its_time() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    lease.obey(LeaseOrder::Grant(3));
    lease.obey(LeaseOrder::Return(Duration::ZERO));
    // So late that its moment is not over on the slowest host, either.
    lease.state.lock().idle_since = Some(Instant::now() + SOON);
    assert!(lease.look().is_none());
    told.expect(&[LeaseReport::Returned(0), LeaseReport::Returned(3)]);
}

#[test]
fn when_the_time_is_over_nothing_is_submitted_and_the_end_of_the_work_is_told() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    let (mut first, mut second) = (LeaseUser::new(&lease), LeaseUser::new(&lease));
    assert!(!first.begin() && !first.is_stopping(), "it has no work");
    lease.obey(LeaseOrder::Grant(3));
    assert!(first.begin() && second.begin() && !first.is_stopping());
    lease.obey(LeaseOrder::Return(Duration::ZERO));
    assert!(lease.look().is_none());
    told.expect(&[LeaseReport::Returned(0), LeaseReport::Wanted]);
    assert!(first.is_stopping());
    first.near_end();
    first.near_end();
    told.expect(&[]);
    second.near_end();
    told.expect(&[LeaseReport::Stopped(3)]);
    assert!(first.rest());
    told.expect(&[]);
    // A command buffer that ends has no work, either.
    drop(second);
    told.expect(&[LeaseReport::Returned(3)]);
}

#[test]
fn a_command_buffer_that_ends_is_not_waited_for() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    lease.obey(LeaseOrder::Grant(3));
    told.expect(&[LeaseReport::Returned(0)]);
    let mut both = [LeaseUser::new(&lease), LeaseUser::new(&lease)];
    for _ in 0..2 {
        assert!(both.iter_mut().all(LeaseUser::begin));
        lease.obey(LeaseOrder::Return(Duration::ZERO));
        assert!(lease.look().is_none());
        both[0].near_end();
        both[1].end();
        told.expect(&[LeaseReport::Stopped(3)]);
        both[0].end();
        told.expect(&[LeaseReport::Returned(3)]);
        // What counted for the last lease does not count for the next.
        lease.obey(LeaseOrder::Grant(3));
    }
}

#[test]
fn a_command_buffer_that_has_ended_does_not_count_for_another() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    lease.obey(LeaseOrder::Grant(3));
    let mut all = [(); 3].map(|()| LeaseUser::new(&lease));
    assert!(all.iter_mut().all(LeaseUser::begin));
    lease.obey(LeaseOrder::Return(Duration::ZERO));
    assert!(lease.look().is_none());
    told.expect(&[LeaseReport::Returned(0)]);
    all[0].near_end();
    all[0].end();
    all[1].near_end();
    // The device has not begun the last work of the third.
    told.expect(&[]);
    all[2].near_end();
    told.expect(&[LeaseReport::Stopped(3)]);
}

#[test]
fn work_that_outlasts_a_lease_is_told_of_again_in_the_next() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    told.expect(&[LeaseReport::Returned(0)]);
    let mut user = LeaseUser::new(&lease);
    for number in 1..4 {
        lease.obey(LeaseOrder::Grant(number));
        assert!(user.begin());
        lease.obey(LeaseOrder::Return(Duration::ZERO));
        assert!(lease.look().is_none());
        user.near_end();
        told.expect(&[LeaseReport::Stopped(number)]);
    }
}

#[test]
fn work_from_before_the_first_lease_is_of_none_and_its_end_is_told() {
    let (lease, told) = lease();
    let mut user = LeaseUser::new(&lease);
    assert!(user.begin());
    lease.obey(LeaseOrder::Ask);
    assert!(!user.begin() && user.is_busy());
    told.expect(&[LeaseReport::Wanted]);
    user.end();
    told.expect(&[LeaseReport::Returned(0)]);
    assert!(!user.begin());
    told.expect(&[]);
    lease.obey(LeaseOrder::Free);
    assert!(user.begin());
}

#[test]
fn each_lease_allows_some_fences_behind_it() {
    let (lease, _) = lease();
    lease.obey(LeaseOrder::Ask);
    let mut user = LeaseUser::new(&lease);
    for number in 1..4 {
        lease.obey(LeaseOrder::Grant(number));
        // Its work goes on from one lease to the next.
        assert!(user.begin());
        lease.obey(LeaseOrder::Return(Duration::ZERO));
        assert!(lease.look().is_none());
        let allowed = (0..2 * SMALL_MAX).filter(|_| user.begin_small()).count();
        assert_eq!(allowed, SMALL_MAX as usize);
    }
}

#[test]
fn work_under_way_may_wait_for_work_of_the_next_lease() {
    let (lease, told) = lease();
    lease.obey(LeaseOrder::Ask);
    lease.obey(LeaseOrder::Grant(1));
    let (mut waits, mut other) = (LeaseUser::new(&lease), LeaseUser::new(&lease));
    assert!(waits.begin());
    lease.obey(LeaseOrder::Return(Duration::ZERO));
    assert!(lease.look().is_none());
    assert!(!other.begin());
    told.expect(&[LeaseReport::Returned(0), LeaseReport::Wanted]);
    lease.obey(LeaseOrder::Grant(2));
    assert!(other.begin());
    lease.obey(LeaseOrder::Return(Duration::ZERO));
    assert!(lease.look().is_none());
    waits.end();
    other.end();
    told.expect(&[LeaseReport::Returned(2)]);
}

#[test]
fn who_waits_goes_on_when_the_lease_comes() {
    let (lease, _) = lease();
    lease.obey(LeaseOrder::Ask);
    let mut user = LeaseUser::new(&lease);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            while !user.begin() {
                user.wait(SOON);
            }
        });
        while !lease.state.lock().has_asked {
            std::thread::yield_now();
        }
        lease.obey(LeaseOrder::Grant(3));
        waits.join().unwrap();
    });
}

#[test]
fn a_hurry_is_expected_again_for_a_while_and_not_for_as_long_as_a_lease_lasts() {
    let (lease, _told) = lease();
    let mut user = LeaseUser::new(&lease);
    lease.obey(LeaseOrder::Ask);
    lease.obey(LeaseOrder::Grant(1));
    assert!(user.begin() && !user.is_hurried());
    lease.obey(LeaseOrder::Return(SOON));
    lease.obey(LeaseOrder::Return(Duration::ZERO));
    assert!(!user.is_hurried(), "that is for the next lease");
    user.end();
    lease.obey(LeaseOrder::Grant(2));
    assert!(user.begin() && user.is_hurried());
    std::thread::sleep(HURRY);
    user.wait_for_end(Duration::ZERO);
    assert!(!user.is_hurried());
    // A lease that ends when others can wait is no sign of it.
    lease.obey(LeaseOrder::Return(SOON));
    user.end();
    lease.obey(LeaseOrder::Grant(3));
    assert!(!user.is_hurried());
}
