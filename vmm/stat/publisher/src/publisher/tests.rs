use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_mediator_testing::FakeSession;
use causeway_protocol::message::Status;
use causeway_vmm::pause::RunState;
use serde_json::Value;

use super::*;
use crate::control::tests::{FakeVm, control};
use crate::fixture;
use crate::listener::Listener;

const CHANGE: &str = r#"{"limits":{"queues":"7"}}"#;

/// A server with all doors, and one guest.
struct Rig {
    folder: PathBuf,
    address: SocketAddr,
    guest: LimitedGuest,
    vms: [FakeVm; 2],
    stops: Arc<AtomicU32>,
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
        Self::after(name, |_| ())
    }

    /// A rig whose server starts when something has been done in the folder of its sockets.
    fn after(name: &str, before: impl FnOnce(&Path)) -> Self {
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
        let controlled = Listener::bind_stream(&folder.join("control")).unwrap();
        let (control, vms, stops) = control();
        let published = Published {
            look: Box::new(fixture::snapshot),
            guests: Box::new(move || vec![same(&known)]),
            shortage: |quotas| {
                let many = quotas.iter().any(|quota| quota.allocations > 5000);
                many.then(|| String::from("too many"))
            },
            control: Some(control),
        };
        let doors = vec![
            Door::Process(own),
            Door::Socket(metrics, None),
            Door::Address(tcp),
            Door::Control(controlled, None),
        ];
        before(&folder);
        Self {
            _publisher: Publisher::serve(published, doors).unwrap(),
            folder,
            address,
            guest,
            vms,
            stops,
        }
    }

    /// The answer to a request at the control socket: its status and its JSON.
    fn control(&self, request: &str) -> (u16, Value) {
        parsed(&at(&self.folder.join("control"), request))
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

/// Status and body of an answer in JSON.
#[track_caller]
fn parsed(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("\r\nContent-Type: application/json\r\n"),
        "{answer}"
    );
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

/// A request with a method and a path, and a body if it is not empty.
fn request(what: &str, body: &str) -> String {
    String::from_utf8(crate::client::request(what, body)).unwrap()
}

#[test]
fn the_answer_to_a_pause_waits_for_it_and_holds_nobody_up() {
    let rig = Rig::new("pause");
    let mut asked = UnixStream::connect(rig.folder.join("control")).unwrap();
    asked
        .write_all(request("PUT /pause", r#"{"vm":"vm1"}"#).as_bytes())
        .unwrap();
    while *rig.vms[1].state.lock() != RunState::Pausing {
        std::thread::yield_now();
    }
    let (status, seen) = rig.control("GET /info HTTP/1.1\r\n\r\n");
    assert_eq!((status, &seen["vms"][1]["state"]), (200, &"pausing".into()));
    asked.set_nonblocking(true).unwrap();
    let early = asked.read(&mut [0; 16]).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    asked.set_nonblocking(false).unwrap();
    rig.vms[1].set(RunState::Paused);
    let mut answer = String::new();
    asked.read_to_string(&mut answer).unwrap();
    let (status, paused) = parsed(&answer);
    assert_eq!(
        (status, &paused["vms"][1]["state"]),
        (200, &"paused".into())
    );
    assert_eq!(paused["vms"][0]["state"], "running");
}

#[test]
fn a_pause_that_takes_long_is_answered_in_time_and_one_that_nobody_awaits_is_forgotten() {
    let rig = Rig::new("slow");
    let gone = UnixStream::connect(rig.folder.join("control")).unwrap();
    (&gone)
        .write_all(request("PUT /pause", "").as_bytes())
        .unwrap();
    drop(gone);
    let (status, seen) = rig.control(&request("PUT /pause", ""));
    assert_eq!((status, &seen["vms"][0]["state"]), (202, &"pausing".into()));
    // What else is asked for does not wait.
    rig.vms[0].set(RunState::Paused);
    let (status, seen) = rig.control(&request("PUT /resume", r#"{"vm":"vm0"}"#));
    assert_eq!((status, &seen["vms"][0]["state"]), (200, &"running".into()));
    assert_eq!(seen["vms"][1]["state"], "pausing");
    let (status, seen) = rig.control(&request("PUT /resume", ""));
    assert_eq!((status, &seen["vms"][0]["state"]), (200, &"running".into()));
}

#[test]
fn nothing_is_done_for_a_client_that_has_gone_before_it_was_heard() {
    let rig = Rig::after("gone", |folder| {
        let gone = UnixStream::connect(folder.join("control")).unwrap();
        (&gone)
            .write_all(request("PUT /stop", "").as_bytes())
            .unwrap();
    });
    let (status, seen) = rig.control("GET /info HTTP/1.1\r\n\r\n");
    assert_eq!((status, &seen["stopping"]), (200, &false.into()));
    assert_eq!(rig.stops.load(Ordering::Acquire), 0);
}

#[test]
fn a_run_is_controlled_at_its_control_socket_only() {
    let rig = Rig::new("only");
    for what in ["GET /info", "PUT /pause", "PUT /stop", "GET /stop"] {
        for path in [rig.own(), rig.folder.join("metrics")] {
            let answer = at(&path, &request(what, ""));
            assert!(answer.starts_with("HTTP/1.1 404 "), "{what}: {answer}");
        }
    }
    assert_eq!(rig.stops.load(Ordering::Relaxed), 0);
    let (status, stopped) = rig.control(&request("PUT /stop", ""));
    assert_eq!((status, &stopped["stopping"]), (200, &true.into()));
    assert_eq!(rig.stops.load(Ordering::Relaxed), 1);
}

#[test]
fn limits_and_statistics_are_at_the_control_socket_too() {
    let rig = Rig::new("all");
    let (status, changed) = rig.control(&put(CHANGE));
    assert_eq!(
        (status, &changed["guests"][0]["limits"]["queues"]),
        (200, &"7".into())
    );
    let (status, refused) = rig.control(&put("{}"));
    assert_eq!(status, 422);
    assert!(
        refused["error"].as_str().unwrap().contains("missing field"),
        "{refused}"
    );
    assert_eq!(rig.control("GET /snapshot HTTP/1.1\r\n\r\n").0, 200);
}

#[test]
fn mistakes_at_the_control_socket_are_told_in_json_with_the_way_out() {
    let rig = Rig::new("mistakes");
    let long = request("PUT /pause", &" ".repeat(http::BODY_BYTES_MAX + 1));
    for (request, status, part) in [
        (
            request("GET /nothing", ""),
            404,
            "there is no /nothing here: use GET /info",
        ),
        (request("GET /", ""), 404, "there is no / here"),
        (
            request("POST /pause", ""),
            405,
            "/pause does not take this method: use PUT",
        ),
        (request("PUT /info", ""), 405, "use GET, HEAD"),
        (request("PUT /pause", "x"), 400, "send nothing for all VMs"),
        (request("PUT /add-disk", "{}"), 400, "missing field `image`"),
        (String::from("rubbish\r\n\r\n"), 400, "HTTP/1.1"),
        (
            String::from("PUT /limits HTTP/1.1\r\n\r\n"),
            411,
            "Content-Length",
        ),
        (long[..150].to_owned(), 413, "at most 4096"),
        ("a".repeat(http::REQUEST_BYTES_MAX), 431, "fewer fields"),
    ] {
        let (answered, told) = rig.control(&request);
        assert_eq!(
            (answered, &told["schema"]),
            (status, &"causeway.control-error/1".into())
        );
        let error = told["error"].as_str().unwrap();
        assert!(error.contains(part), "{error}");
    }
    let head = at(&rig.folder.join("control"), "GET /stop HTTP/1.1\r\n\r\n");
    assert!(head.contains("\r\nAllow: PUT\r\n"), "{head}");
    let head = at(&rig.folder.join("control"), "HEAD /info HTTP/1.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}
