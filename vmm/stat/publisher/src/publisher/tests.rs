use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use causeway_mediator_testing::FakeSession;
use causeway_protocol::message::Status;

use super::*;
use crate::fixture;
use crate::listener::Listener;

const CHANGE: &str = r#"{"limits":{"queues":"7"}}"#;

/// A server with all doors, and one guest.
struct Rig {
    folder: PathBuf,
    address: SocketAddr,
    guest: LimitedGuest,
    _publisher: Publisher,
}

fn same(guest: &LimitedGuest) -> LimitedGuest {
    LimitedGuest {
        name: guest.name.clone(),
        session: Arc::clone(&guest.session),
    }
}

impl Rig {
    fn new(name: &str) -> Self {
        let name = format!("causeway-publisher-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let guest = LimitedGuest {
            name: "vm0".to_owned(),
            session: FakeSession::new(|_| Status::Ok),
        };
        let own = ProcessSocket::within(&[folder.join("causeway")]).unwrap();
        let metrics = Listener::bind_stream(&folder.join("metrics")).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let known = same(&guest);
        let published = Published {
            look: Box::new(fixture::snapshot),
            guests: Box::new(move || vec![same(&known)]),
            shortage: |quotas| {
                let many = quotas.iter().any(|quota| quota.allocations > 5000);
                many.then(|| String::from("too many"))
            },
        };
        let doors = vec![
            Door::Process(own),
            Door::Socket(metrics, None),
            Door::Address(tcp),
        ];
        Self {
            _publisher: Publisher::serve(published, doors).unwrap(),
            folder,
            address,
            guest,
        }
    }

    fn own(&self) -> PathBuf {
        let pid = std::process::id().to_string();
        self.folder.join("causeway").join(pid)
    }

    fn queues(&self) -> u64 {
        self.guest.session.limits().command_buffers
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn put(body: &str) -> String {
    let length = body.len();
    format!("PUT /limits HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn exchange(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn at(path: &Path, request: &str) -> String {
    exchange(UnixStream::connect(path).unwrap(), request)
}

#[test]
fn limits_that_the_host_cannot_keep_are_warned_of_when_they_come() {
    let rig = Rig::new("warned");
    let change = |allocations| {
        let body = format!(r#"{{"limits":{{"allocations":"{allocations}"}}}}"#);
        at(&rig.own(), &put(&body))
    };
    assert!(!change("5000").contains("warning"));
    assert!(change("5001").contains(r#""warning":"too many""#));
    // It was so before.
    assert!(!change("5002").contains("warning"));
    assert!(!change("5000").contains("warning"));
}

#[test]
fn limits_are_shown_and_changed_at_the_socket_of_the_process() {
    let rig = Rig::new("own");
    let shown = at(&rig.own(), "GET /limits HTTP/1.1\r\n\r\n");
    assert!(shown.starts_with("HTTP/1.1 200 OK\r\n"), "{shown}");
    assert!(shown.contains(r#""queues":"64""#), "{shown}");
    let changed = at(&rig.own(), &put(CHANGE));
    assert!(changed.starts_with("HTTP/1.1 200 OK\r\n"), "{changed}");
    assert!(changed.contains(r#""queues":"7""#), "{changed}");
    assert_eq!(rig.queues(), 7);
    let refused = at(&rig.own(), &put(r#"{"limits":{"weight":"8"}}"#));
    assert!(refused.starts_with("HTTP/1.1 422 "), "{refused}");
    assert!(refused.ends_with("without isolation=none"), "{refused}");
}

#[test]
fn who_has_a_place_for_metrics_reads_metrics_and_no_limits() {
    let rig = Rig::new("metrics");
    let metrics = rig.folder.join("metrics");
    let tcp = |request: &str| {
        let stream = std::net::TcpStream::connect(rig.address).unwrap();
        exchange(stream, request)
    };
    for request in [&put(CHANGE), "GET /limits HTTP/1.1\r\n\r\n"] {
        for answer in [at(&metrics, request), tcp(request)] {
            assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        }
    }
    assert_eq!(rig.queues(), 64);
    let read = at(&metrics, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(read.ends_with("# EOF\n"), "{read}");
}

#[test]
fn a_change_that_is_too_long_or_never_comes_changes_nothing() {
    let rig = Rig::new("long");
    let padded = format!("{CHANGE}{}", " ".repeat(http::BODY_BYTES_MAX));
    let refused = at(&rig.own(), &put(&padded)[..200]);
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    // The connection ends when its time is over, and holds nobody up meanwhile.
    let mut slow = UnixStream::connect(rig.own()).unwrap();
    let request = put(CHANGE);
    slow.write_all(&request.as_bytes()[..request.len() - 1])
        .unwrap();
    assert!(at(&rig.own(), "GET /limits HTTP/1.1\r\n\r\n").contains(r#""64""#));
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert_eq!((answer.as_str(), rig.queues()), ("", 64));
}
