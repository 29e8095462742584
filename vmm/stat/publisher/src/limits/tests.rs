use causeway_mediator_testing::{FakeBackend, FakeHost, FakeSession};
use causeway_protocol::message::Status;

use super::*;

/// Guests whose sessions are in one process, on a back end that shares out its time.
fn guests(backend: &Arc<FakeBackend>) -> Vec<LimitedGuest> {
    let mediator = causeway_mediator::Mediator::new(Arc::clone(backend) as _);
    let guest = |name: &str| LimitedGuest {
        name: name.to_owned(),
        session: mediator.open(
            FakeHost::new(1 << 20, 1 << 20).unwrap(),
            Quota::default(),
            name,
        ),
    };
    ["vm0", "vm1"].map(guest).into()
}

fn sharing() -> Vec<LimitedGuest> {
    let backend = FakeBackend::new();
    backend.share_time();
    guests(&backend)
}

fn refusal(guests: &[LimitedGuest], body: &str) -> String {
    let before = Limits::of(guests);
    let refused = Limits::change(guests, body.as_bytes()).unwrap_err();
    assert_eq!(Limits::of(guests), before, "{refused}");
    refused.to_string()
}

#[test]
fn a_change_is_for_one_guest_or_for_all() {
    let guests = sharing();
    let body = br#"{"guest":"vm1","limits":{"weight":"8","memory":"64M"}}"#;
    let changed = Limits::change(&guests, body).unwrap();
    assert_eq!(changed.guests.len(), 1);
    assert_eq!(changed.guests[0].guest, "vm1");
    assert!(!changed.guests[0].is_late);
    assert_eq!(changed.guests[0].limits["memory"], "64MiB");
    let present = Limits::of(&guests);
    assert_eq!(present.pid, std::process::id());
    assert_eq!(present.guests[1], changed.guests[0]);
    assert_eq!(present.guests[0].limits["weight"], "none");
    let body = br#"{"limits":{"share":"25"}}"#;
    assert_eq!(Limits::change(&guests, body).unwrap().guests.len(), 2);
    for guest in Limits::of(&guests).guests {
        assert_eq!(guest.limits["share"], "25", "{}", guest.guest);
    }
}

#[test]
fn what_one_guest_cannot_have_no_guest_gets() {
    let mut guests = sharing();
    // As one on a GPU without a worker process.
    guests.push(LimitedGuest {
        name: "vm2".to_owned(),
        session: FakeSession::new(|_| Status::Ok),
    });
    let message = refusal(&guests, r#"{"limits":{"queues":"7","weight":"8"}}"#);
    let because = "no limit was changed, because of vm2: weight, share and timeout";
    assert!(message.starts_with(because), "{message}");
    let message = refusal(&guests, r#"{"limits":{"memory":"2G"}}"#);
    let because = "because of vm0: invalid value 2048 MiB for memory: the back end has 1024 MiB";
    assert!(message.contains(because), "{message}");
    let body = br#"{"guest":"vm2","limits":{"memory":"2G"}}"#;
    Limits::change(&guests, body).unwrap();
}

#[test]
fn every_mistake_is_named() {
    let guests = sharing();
    let pid = std::process::id();
    for (body, part) in [
        ("", "not a change of limits"),
        ("{}", "missing field `limits`"),
        ("[1]", "not a change of limits"),
        (r#"{"limits":{"weight":8}}"#, "expected a string"),
        (r#"{"limits":{},"vm":"vm0"}"#, "unknown field `vm`"),
        (r#"{"limits":{}}"#, "nothing to change: name a limit"),
        (
            r#"{"limits":{"speed":"11"}}"#,
            "unknown key `speed`: the keys are memory, ",
        ),
        (
            r#"{"limits":{"queues":"0"}}"#,
            "invalid value 0 for queues: 1 to 256",
        ),
        (
            r#"{"guest":"vm7","limits":{"queues":"1"}}"#,
            &format!("process {pid} has no guest vm7 that runs: it has vm0, vm1"),
        ),
    ] {
        let message = refusal(&guests, body);
        assert!(message.contains(part), "{body}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
    let message = refusal(&[], r#"{"limits":{"queues":"1"}}"#);
    assert!(message.contains("has no guest that runs"), "{message}");
}
