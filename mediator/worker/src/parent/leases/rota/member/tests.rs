//! The cap of one session.

use super::*;

const MS: u64 = 1_000_000;

fn capped(percent: u32) -> Compute {
    Compute {
        share_percent: Some(percent),
        ..Compute::DEFAULT
    }
}

#[test]
fn a_cap_ends_a_lease_with_its_savings_and_allows_the_next_with_half_of_them() {
    let mut member = Member::new(Compute::DEFAULT, 0);
    member.set(capped(50), 0);
    assert_eq!(member.cap_due_ns(3), Some(3 + 20 * MS));
    assert!(member.told(LeaseReport::Wanted, 0, 0) && member.waits(0));
    member.charge(20 * MS, true);
    assert!(!member.waits(0), "it has nothing left");
    assert_eq!(member.waits_from_ns(0), Some(20 * MS));
    member.save(20 * MS - 1);
    assert!(!member.waits(0));
    member.save(1);
    assert!(member.waits(0));
}

#[test]
fn only_another_cap_renews_what_a_session_has_saved_up() {
    let mut member = Member::new(capped(50), 0);
    member.told(LeaseReport::Wanted, 0, 0);
    member.charge(20 * MS, true);
    assert!(!member.waits(0), "it has nothing left");
    let heavier = Compute {
        weight: Some(2),
        ..capped(50)
    };
    member.set(heavier, 0);
    assert!(!member.waits(0));
    member.set(capped(51), 0);
    assert!(member.waits(0));
    assert_eq!(member.cap_due_ns(0), Some(20 * MS));
}
