//! The sockets themselves: their files, and those who use them badly.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::command::{Running, Scratch, kvm};
use crate::workers::await_output;

use super::{USAGE, end, records, start_exiting, stat};

/// What a process says of its guests; nothing if it is not there.
pub fn snapshot(path: &Path) -> Option<String> {
    let mut stream = UnixStream::connect(path).ok()?;
    stream.write_all(b"GET /snapshot HTTP/1.1\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200 OK").then_some(answer)
}

/// Sends bytes, and takes what comes until the other side has enough.
fn exchange(path: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // It may have been refused before it was all sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    if let Err(e) = stream.read_to_end(&mut answer) {
        assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn scrapers_are_answered_in_open_metrics() {
    if !kvm("metrics socket") {
        return;
    }
    let scratch = Scratch::new();
    // The folder that is named may be everybody's, and stays as it is.
    let everybodys = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(scratch.runtime_parent(), everybodys).unwrap();
    let parent = fs::metadata(scratch.runtime_parent()).unwrap();
    let mode_before = parent.permissions().mode();
    let running = start_exiting(&scratch, &["--metrics-socket", "metrics", "--vms", "2"]);
    let own = scratch.runtime().join(running.id().to_string());
    let metrics = scratch.path("metrics");
    for path in [&own, &metrics] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let answer = exchange(path, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(head.contains(kind), "{head}");
        assert!(
            head.contains(&format!("Content-Length: {}", body.len())),
            "{head}"
        );
        assert!(body.ends_with("\n# EOF\n"), "{body}");
        for guest in ["vm0", "vm1"] {
            let series = format!(
                "causeway_vm_user_exits_total{{guest=\"{guest}\",cause=\"io:unclaimed:stray\"}} "
            );
            let sample = body.lines().find_map(|line| line.strip_prefix(&series));
            assert!(sample.unwrap().parse::<u64>().unwrap() > 0, "{body}");
        }
    }
    end(running);
    assert!(!own.exists() && !metrics.exists());
    assert!(!scratch.runtime().exists());
    let parent = fs::metadata(scratch.runtime_parent()).unwrap();
    assert_eq!(parent.permissions().mode(), mode_before);
}

#[test]
fn a_place_for_metrics_that_cannot_be_is_found_before_anything_runs() {
    if !kvm("bad metrics socket") {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("precious", b"text");
    for path in [file.as_str(), "absent/metrics", "/proc/metrics"] {
        let outcome = Scratch::beside(&scratch).run(&["run", "--metrics-socket", path]);
        outcome.assert_refused(USAGE, &["--metrics-socket", path]);
    }
    assert_eq!(fs::read(file).unwrap(), b"text");
}

/// The TCP address at which a process says that it serves metrics.
fn address(running: &Running) -> SocketAddr {
    await_output(running, "metrics are at ", 1);
    let said = running.stderr();
    let (_, rest) = said.split_once("metrics are at http://").unwrap();
    rest.split_once("/metrics").unwrap().0.parse().unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_and_nothing_else_are_served_over_tcp() {
    if !kvm("metrics over TCP") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &["-v", "--metrics", "127.0.0.1:0"]);
    let address = address(&running);
    let answer = get(address, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\n# EOF\n"), "{answer}");
    assert!(answer.contains("causeway_gpu_busy_seconds_total{guest=\"vm0\"} "));
    let refused = get(address, "/snapshot");
    assert!(refused.starts_with("HTTP/1.1 404 "), "{refused}");
    // Those who connect and say nothing do not keep others out.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address)).collect();
    assert!(get(address, "/metrics").starts_with("HTTP/1.1 200 OK"));
    drop(silent);
    end(running);
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
}

#[test]
fn an_address_for_metrics_that_cannot_be_or_that_others_reach_is_refused() {
    if !kvm("bad metrics address") {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (address, part) in [
        ("9400", "127.0.0.1:9400"),
        ("0.0.0.0:9400", "--metrics-any-address"),
        (&taken, "free port"),
        ("127.0.0.1:70000", "127.0.0.1:9400"),
    ] {
        let scratch = Scratch::new();
        let outcome = scratch.run(&["run", "--metrics", address]);
        outcome.assert_refused(USAGE, &["--metrics", address, part]);
        let words = ["serve", "--socket", "socket", "--metrics", address];
        let outcome = Scratch::new().run(&words);
        outcome.assert_refused(USAGE, &["--metrics", address, part]);
    }
    let outcome = Scratch::new().run(&["run", "--metrics-any-address"]);
    outcome.assert_refused(USAGE, &["--metrics"]);
    let scratch = Scratch::new();
    let more = ["--metrics", "0.0.0.0:0", "--metrics-any-address"];
    let running = start_exiting(&scratch, &more);
    let said = running.stderr();
    assert!(
        said.contains("warning: everybody who can reach 0.0.0.0:"),
        "{said}"
    );
    end(running);
}

#[test]
fn those_who_stall_or_send_rubbish_hold_nobody_up() {
    if !kvm("bad watchers") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &[]);
    let path = scratch.runtime().join(running.id().to_string());
    let connect = |_| UnixStream::connect(&path).unwrap();
    let mut silent: Vec<UnixStream> = (0..40).map(connect).collect();
    for stream in &mut silent {
        // Those before them are gone when there are too many.
        let _ = stream.write_all(b"GET /metr");
    }
    let pid = running.id().to_string();
    assert_eq!(
        records(&stat(&scratch, &[&pid, "--json", "--once"])).len(),
        1
    );
    for (request, status) in [
        (&b"\x00\xff\r\n\r\n"[..], "400"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (&[b'x'; 100_000], "431"),
    ] {
        let answer = exchange(&path, request);
        let expected = format!("HTTP/1.1 {status} ");
        assert!(
            answer.starts_with(&expected) || answer.is_empty(),
            "{answer}"
        );
    }
    // One that asks, and does not read.
    let mut deaf = UnixStream::connect(&path).unwrap();
    deaf.write_all(b"GET /snapshot HTTP/1.1\r\n\r\n").unwrap();
    // One that hangs up while it is answered.
    let mut hasty = UnixStream::connect(&path).unwrap();
    hasty.write_all(b"GET /snapshot HTTP/1.1\r\n\r\n").unwrap();
    drop(hasty);
    assert_eq!(
        records(&stat(&scratch, &[&pid, "--json", "--once"])).len(),
        1
    );
    // All of them are let go after a while, whatever they do.
    for stream in &mut silent {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        // Unlike `read`, this goes on after an interruption: a read with a timeout is not restarted
        // by the kernel (signal(7)).
        match stream.read_to_end(&mut Vec::new()) {
            Ok(bytes) => assert_eq!(bytes, 0),
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
        }
    }
    end(running);
}

#[test]
fn the_socket_for_metrics_goes_with_a_killed_run_too() {
    if !kvm("killed run with metrics") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &["--metrics-socket", "metrics"]);
    assert!(scratch.path("metrics").exists());
    running.signal(Signal::KILL);
    let deadline = Instant::now() + Duration::from_secs(20);
    while scratch.path("metrics").exists() {
        assert!(Instant::now() < deadline, "it is left");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.finish().code, -9);
}
