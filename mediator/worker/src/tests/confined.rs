//! Workers that code inside has taken over: what it can reach.

use std::collections::BTreeMap;

use causeway_mediator::GuestSession;

use super::attempts::{Attempt, attempts};
use super::rig::{Guest, program};
use crate::Workers;

/// Errors by which a sandbox refuses something.
const REFUSALS: [i32; 3] = [libc::EPERM, libc::EACCES, libc::ENOSYS];

/// The error of each attempt in a worker of this kind.
fn errors(kind: &str) -> BTreeMap<String, i32> {
    let workers = Workers::new(&program("rig::worker_process", kind), None).unwrap();
    let guest = Guest::open(&workers);
    guest.works();
    let report = guest.session.report().worker.unwrap();
    let text = String::from_utf8(report.supplements.concat()).unwrap();
    // After its attempts it works as before; without a sandbox, they have changed the process.
    if !kind.starts_with("unconfined") {
        guest.works();
    }
    let line = |line: &str| {
        let (error, name) = line.split_once(' ').unwrap();
        (name.to_owned(), error.parse().unwrap())
    };
    text.lines().map(line).collect()
}

/// Names of those of `tried` that were not refused.
fn not_refused(tried: &[Attempt], errors: &BTreeMap<String, i32>) -> Vec<(&'static str, i32)> {
    let tried = tried.iter().map(|(name, _)| (*name, errors[*name]));
    tried
        .filter(|(_, error)| !REFUSALS.contains(error))
        .collect()
}

#[test]
fn a_worker_that_is_taken_over_is_refused_everything_but_its_work() {
    let (everywhere, of_drivers) = attempts();
    assert!(everywhere.len() >= 100, "{}", everywhere.len());
    let errors = errors("attacker");
    assert_eq!(not_refused(&everywhere, &errors), []);
    assert_eq!(not_refused(of_drivers, &errors), []);
}

#[test]
fn a_worker_with_a_driver_is_refused_all_but_what_drivers_do() {
    let (everywhere, of_drivers) = attempts();
    let errors = errors("driver attacker");
    assert_eq!(not_refused(&everywhere, &errors), []);
    assert_eq!(not_refused(of_drivers, &errors).len(), of_drivers.len());
}

/// Or the list would show nothing. Some are refused by the kernel anyway, as to a user who is not
/// root.
#[test]
fn without_a_sandbox_most_of_it_is_not_refused() {
    let (everywhere, _) = attempts();
    let errors = errors("unconfined attacker");
    let possible = not_refused(&everywhere, &errors);
    assert!(possible.len() >= 60, "{}: {possible:?}", possible.len());
}
