//! `--control` and `causeway control`: a run that is shown, paused, resumed and stopped.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::bare_images::elf;
use crate::command::{Outcome, Running, Scratch, kvm};
use crate::schema;
use crate::stat::{as_nobody, end, records, start_exiting, stat};

const USAGE: i32 = 2;
const IMAGE: i32 = 4;
const TIMEOUT: i32 = 6;
const TERMINATED: i32 = 143;
const KILLED: i32 = -9;
const PATIENCE: Duration = Duration::from_secs(60);
/// A guest that runs for ever without an exit of its own.
const ENDLESS: [u8; 2] = [0xeb, 0xfe];
/// What the VMM counts an exit by a pause as.
const PAUSE: &str = "signal:pause";

/// Runs `control` for the socket `control` in the folder of a run.
fn control(scratch: &Scratch, words: &[&str]) -> Outcome {
    let path = scratch.path("control");
    Scratch::beside(scratch).run(&[&["control", path.to_str().unwrap()], words].concat())
}

/// The answer that `control --json` prints.
#[track_caller]
fn answer(scratch: &Scratch, words: &[&str]) -> Value {
    let outcome = control(scratch, &[words, &["--json"]].concat());
    assert_eq!((outcome.code, &*outcome.stderr), (0, ""), "{outcome:?}");
    let answer: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(answer["schema"], "causeway.control/1");
    schema::assert_valid(&answer);
    answer
}

/// The states of the VMs of an answer.
fn states(answer: &Value) -> Vec<&str> {
    let vms = answer["vms"].as_array().unwrap().iter();
    vms.map(|vm| vm["state"].as_str().unwrap()).collect()
}

/// Starts VMs whose virtual CPUs run for ever, and waits until all run.
fn start_endless(scratch: &Scratch, more: &[&str]) -> Running {
    let image = scratch.file("guest.elf", &elf(&ENDLESS));
    let words = ["run", "--kernel", &image, "--memory", "64", "--control"];
    let running = scratch.start(&[&words[..], &["control"], more].concat());
    await_running(scratch, &running);
    running
}

/// Waits until all VMs of a run run.
fn await_running(scratch: &Scratch, running: &Running) {
    let deadline = Instant::now() + PATIENCE;
    let socket = scratch.path("control");
    let runs = || {
        let info = exchange(&socket, b"GET /info HTTP/1.1\r\n\r\n");
        info.is_some_and(|info| info.contains(r#""running""#) && !info.contains(r#""starting""#))
    };
    while !runs() {
        assert!(Instant::now() < deadline, "{}", running.stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What comes for some bytes; nothing if nobody listens yet.
fn exchange(path: &Path, request: &[u8]) -> Option<String> {
    let mut stream = UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may have been refused before it was all sent.
    let _ = stream.write_all(request);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Status and JSON of the answer to a request as curl sends it.
#[track_caller]
fn as_curl(path: &Path, what: &str, body: &str) -> (u16, Value) {
    let length = match body.len() {
        0 => String::new(),
        bytes => format!(
            "Content-Length: {bytes}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        ),
    };
    let head = "Host: localhost\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n";
    let request = format!("{what} HTTP/1.1\r\n{head}{length}\r\n{body}");
    let answer = exchange(path, request.as_bytes()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    schema::assert_valid(&body);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

/// Ends a run, and returns its report.
fn stop(scratch: &Scratch, running: Running) -> (Outcome, Value) {
    let stopped = answer(scratch, &["stop"]);
    assert_eq!(stopped["stopping"], true);
    let outcome = running.finish();
    assert_eq!(outcome.code, TERMINATED, "{outcome:?}");
    let text = fs::read_to_string(scratch.path("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    schema::assert_valid(&report);
    (outcome, report)
}

/// Exits that each VM has had, by the VMM's count without those by pauses.
fn exits(scratch: &Scratch) -> Vec<u64> {
    let (status, snapshot) = {
        let request = b"GET /snapshot HTTP/1.1\r\n\r\n";
        let answer = exchange(&scratch.path("control"), request).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        (head.contains(" 200 "), body)
    };
    assert!(status, "{snapshot}");
    let of_vm = |guest: &Value| {
        let counts = guest["vm"]["vmm_exits"].as_object().unwrap().iter();
        let own = counts.filter(|(reason, _)| *reason != PAUSE);
        own.map(|(_, count)| count.as_u64().unwrap()).sum()
    };
    let guests = snapshot["guests"].as_array().unwrap();
    guests.iter().map(of_vm).collect()
}

/// Waits until a VM has had more exits than `before`.
fn await_exits(scratch: &Scratch, vm: usize, before: u64) {
    let deadline = Instant::now() + PATIENCE;
    while exits(scratch)[vm] <= before {
        assert!(Instant::now() < deadline, "VM {vm} does not run");
    }
}

#[test]
fn vms_stand_still_while_they_are_paused() {
    if !kvm("a paused run") {
        return;
    }
    let scratch = Scratch::new();
    let more = ["--vms", "2", "--vcpus", "2", "--control", "control"];
    let running = start_exiting(&scratch, &[&more[..], &["--json", "report.json"]].concat());
    let info = answer(&scratch, &["info"]);
    assert_eq!(info["pid"].to_string(), running.id().to_string());
    assert!(info["guest"].as_str().unwrap().ends_with("guest.elf"));
    assert_eq!(states(&info), ["running", "running"]);
    assert_eq!(info["vms"][1]["memory_bytes"], 64 << 20);

    let paused = answer(&scratch, &["pause"]);
    assert_eq!(states(&paused), ["paused", "paused"]);
    let still = exits(&scratch);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(exits(&scratch), still);
    let pid = running.id().to_string();
    for record in records(&stat(&scratch, &[&pid, "--json", "--once"])) {
        assert_eq!(record["state"], "paused");
    }
    let table = stat(&scratch, &[&pid, "--once"]).stdout;
    assert!(table.contains(" pause "), "{table}");
    // A pause of what is paused changes nothing.
    let again = answer(&scratch, &["pause", "--vm", "vm0"]);
    assert_eq!(again["vms"][0]["pauses"], 1);

    let resumed = answer(&scratch, &["resume", "--vm", "vm1"]);
    assert_eq!(states(&resumed), ["paused", "running"]);
    await_exits(&scratch, 1, still[1]);
    assert_eq!(exits(&scratch)[0], still[0]);
    let resumed = answer(&scratch, &["resume"]);
    assert_eq!(states(&resumed), ["running", "running"]);
    await_exits(&scratch, 0, still[0]);

    let table = control(&scratch, &["info"]).stdout;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[1][..2], ["VM", "STATE"]);
    assert_eq!(lines[2][..3], ["vm0", "running", "2"]);
    let (outcome, report) = stop(&scratch, running);
    assert!(
        outcome.stdout.contains("it was paused 1 times"),
        "{outcome:?}"
    );
    for vm in [0, 1] {
        let vm = &report["vms"][vm];
        assert_eq!(vm["pauses"]["count"], 1);
        assert_eq!(vm["pauses"]["at_end"], false);
        assert!(vm["pauses"]["duration_ns"].as_u64().unwrap() >= 100_000_000);
        assert_eq!(vm["result"], "interrupted by signal 15");
    }
    assert!(!scratch.path("control").exists());
}

#[test]
fn each_pause_is_one_counted_exit_of_each_virtual_cpu_that_runs() {
    if !kvm("exits by pauses") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_endless(&scratch, &["--vcpus", "2", "--json", "report.json"]);
    let socket = scratch.path("control");
    for _ in 0..20 {
        let (status, paused) = as_curl(&socket, "PUT /pause", "");
        assert_eq!((status, states(&paused)), (200, vec!["paused"]));
        let (status, resumed) = as_curl(&socket, "PUT /resume", r#"{"vm": "vm0"}"#);
        assert_eq!((status, states(&resumed)), (200, vec!["running"]));
    }
    let (outcome, report) = stop(&scratch, running);
    let vm = &report["vms"][0];
    assert_eq!(vm["pauses"]["count"], 20);
    // One that is resumed may be paused before it is in guest code, and has no exit then.
    let exits = vm["vmm_exits"][PAUSE].as_u64().unwrap();
    assert!((2..=40).contains(&exits), "{exits}");
    assert!(outcome.stdout.contains(PAUSE), "{outcome:?}");
}

#[test]
fn a_paused_run_can_be_stopped_and_runs_into_its_time_limit() {
    if !kvm("a paused run that ends") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_endless(&scratch, &["--vcpus", "2", "--json", "report.json"]);
    assert_eq!(states(&answer(&scratch, &["pause"])), ["paused"]);
    let (_, report) = stop(&scratch, running);
    let pauses = &report["vms"][0]["pauses"];
    assert_eq!(
        (&pauses["count"], &pauses["at_end"]),
        (&1.into(), &true.into())
    );

    let scratch = Scratch::new();
    let running = start_endless(&scratch, &[]);
    answer(&scratch, &["pause"]);
    end(running);

    let scratch = Scratch::new();
    let running = start_endless(&scratch, &["--timeout", "5"]);
    answer(&scratch, &["pause"]);
    let outcome = running.finish();
    assert_eq!(outcome.code, TIMEOUT, "{outcome:?}");
    assert!(outcome.stderr.contains("vm0: it was paused"), "{outcome:?}");
}

#[test]
fn a_guest_goes_on_with_its_gpu_after_a_pause() {
    if !kvm("a paused guest with a GPU") {
        return;
    }
    for gpu in ["software,cores=1", "software,cores=1,isolation=process"] {
        let scratch = Scratch::new();
        let words = ["run", "--guest", "compute", "--control", "control", "--gpu"];
        let running = scratch.start(&[&words[..], &[gpu]].concat());
        await_running(&scratch, &running);
        // The guest may end between two requests.
        for _ in 0..5 {
            let paused = control(&scratch, &["pause"]);
            let resumed = control(&scratch, &["resume"]);
            assert!(
                paused.code == 0 || resumed.code != 0,
                "{paused:?} {resumed:?}"
            );
        }
        running.finish().assert_passed();
    }
}

#[test]
fn curl_works_as_the_documentation_says() {
    if !kvm("curl") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_endless(&scratch, &["--json", "report.json"]);
    let curl = |words: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--unix-socket"]);
        command.arg(scratch.path("control")).args(words);
        let output = command.output().ok()?;
        assert!(output.status.success(), "{output:?}");
        Some(serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let Some(info) = curl(&["http://localhost/info"]) else {
        eprintln!("skipped: there is no curl");
        end(running);
        return;
    };
    assert_eq!(states(&info), ["running"]);
    let pause = ["-X", "PUT", "http://localhost/pause"];
    assert_eq!(states(&curl(&pause).unwrap()), ["paused"]);
    let body = [r#"{"vm": "vm0"}"#, "http://localhost/resume"];
    let resume = [&["-X", "PUT", "-d"], &body[..]].concat();
    assert_eq!(states(&curl(&resume).unwrap()), ["running"]);
    let refused = curl(&["http://localhost/pause"]).unwrap();
    assert!(
        refused["error"].as_str().unwrap().contains("use PUT"),
        "{refused}"
    );
    let stopped = curl(&["-X", "PUT", "http://localhost/stop"]).unwrap();
    assert_eq!(stopped["stopping"], true);
    assert_eq!(running.finish().code, TERMINATED);
}

#[test]
fn mistakes_are_refused_and_hold_nobody_up() {
    if !kvm("bad requests") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_endless(&scratch, &["--json", "report.json"]);
    let socket = scratch.path("control");
    let silent: Vec<_> = (0..40)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    let mut half = UnixStream::connect(&socket).unwrap();
    half.write_all(b"PUT /stop HTTP/1.1\r\nContent-Length: 5\r\n\r\n{}")
        .unwrap();
    for (what, body, status, part) in [
        ("GET /", "", 404, "there is no / here"),
        ("PUT /snapshots", "", 404, "there is no /snapshots here"),
        ("DELETE /pause", "", 405, "use PUT"),
        ("PUT /pause", r#"{"vm":"vm1"}"#, 404, "choose one of vm0"),
        ("PUT /pause", r#"{"vm":7}"#, 400, "expected a string"),
        ("PUT /resume", r#"{"all":true}"#, 400, "unknown field `all`"),
        ("PUT /stop", r#"{"vm":"vm0"}"#, 400, "whole run"),
        (
            "PUT /add-disk",
            r#"{"path":"/x"}"#,
            400,
            "unknown field `path`",
        ),
        ("PUT /add-disk", "", 400, "missing field `image`"),
        ("PUT /add-disk", r#"{"image":"/x"}"#, 409, "--disk-folder"),
    ] {
        let (answered, told) = as_curl(&socket, what, body);
        assert_eq!(answered, status, "{what} {body}: {told}");
        let error = told["error"].as_str().unwrap();
        assert!(error.contains(part), "{what} {body}: {error}");
    }
    drop(silent);
    for (words, part) in [
        (&["pause", "--vm", "vm7"][..], "there is no VM vm7"),
        (&["add-disk", "x"], "with --disk-folder DIR"),
        (&["remove-disk", "x"], "with --disk-folder DIR"),
    ] {
        control(&scratch, words).assert_refused(USAGE, &[part]);
    }
    assert_eq!(states(&answer(&scratch, &["info"])), ["running"]);
    stop(&scratch, running);
}

/// Wrong arguments of `control`, and parts of what it says.
const WRONG: &[(&[&str], &[&str])] = &[
    (&[], &["PATH", "causeway control --help"]),
    (&["x"], &["ACTION", "causeway control --help"]),
    (
        &["x", "start"],
        &["invalid value start for ACTION", "choose info, pause"],
    ),
    (
        &["x", "info", "--vm", "vm0"],
        &["--vm is for pause, resume, add-disk and remove-disk"],
    ),
    (&["x", "add-disk"], &["name the image", "add-disk work.img"]),
    (&["x", "pause", "vm0"], &["unexpected argument vm0", "--vm"]),
    (
        &["absent", "info"],
        &["at absent", "no file is at this path"],
    ),
    (&["file", "info"], &["at file", "no process listens"]),
];

#[test]
fn what_controls_no_run_is_refused_with_the_way_out() {
    let scratch = Scratch::new();
    scratch.file("file", b"");
    for (words, parts) in WRONG {
        scratch
            .run(&[&["control"], *words].concat())
            .assert_refused(USAGE, parts);
    }
    let help = scratch.run(&["control", "--help"]).stdout;
    assert!(
        help.contains("pause") && help.contains("add-disk"),
        "{help}"
    );
}

#[test]
fn a_socket_of_something_else_is_named_as_such() {
    if !kvm("control at a socket for metrics") {
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &["--metrics-socket", "control"]);
    let refused = control(&scratch, &["info"]);
    refused.assert_refused(USAGE, &["does not answer as the socket of"]);
    end(running);
}

#[test]
fn a_path_in_use_is_refused_and_a_stale_socket_is_replaced() {
    if !kvm("paths of control sockets") {
        return;
    }
    let scratch = Scratch::new();
    drop(UnixListener::bind(scratch.path("control")).unwrap());
    let running = start_endless(&scratch, &["--json", "report.json"]);
    let mode = fs::metadata(scratch.path("control"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let socket = scratch.path("control");
    let second = ["run", "--control", socket.to_str().unwrap()];
    let refused = Scratch::beside(&scratch).run(&second);
    refused.assert_refused(
        USAGE,
        &["for --control", "another process listens at this path"],
    );
    assert_eq!(states(&answer(&scratch, &["info"])), ["running"]);
    stop(&scratch, running);

    let file = scratch.file("precious.log", b"text");
    for path in [file.as_str(), "absent/control", "/proc/control"] {
        let outcome = Scratch::beside(&scratch).run(&["run", "--control", path]);
        outcome.assert_refused(USAGE, &["--control", path]);
    }
    assert_eq!(fs::read(file).unwrap(), b"text");
    let same = ["run", "--control", "a", "--metrics-socket", "a"];
    scratch
        .run(&same)
        .assert_refused(USAGE, &["--control", "--metrics-socket"]);
}

#[test]
fn the_socket_goes_with_a_run_that_fails_or_is_killed() {
    if !kvm("ends of runs with control sockets") {
        return;
    }
    for sandbox in ["on", "off"] {
        let scratch = Scratch::new();
        let image = scratch.file("bad.elf", &elf(&ENDLESS)[..100]);
        let words = [
            "run",
            "--kernel",
            &image,
            "--control",
            "control",
            "--sandbox",
        ];
        let failed = scratch.run(&[&words[..], &[sandbox]].concat());
        assert_eq!(failed.code, IMAGE, "{failed:?}");
        assert!(!scratch.path("control").exists());
        let running = start_endless(&scratch, &["--sandbox", sandbox]);
        assert!(answer(&scratch, &["pause"])["vms"].is_array());
        end(running);
        assert!(!scratch.path("control").exists());
    }
    let scratch = Scratch::new();
    let running = start_endless(&scratch, &[]);
    running.signal(Signal::KILL);
    let deadline = Instant::now() + PATIENCE;
    while scratch.path("control").exists() {
        assert!(Instant::now() < deadline, "it is left");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.finish().code, KILLED);
}

#[test]
fn a_run_is_not_controlled_by_another_user() {
    if !kvm("control by another user") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be two users");
        return;
    }
    let scratch = Scratch::new();
    let running = start_endless(&scratch, &["--json", "report.json"]);
    let path = scratch.path("control");
    let ask = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.arg("control").arg(&path).arg("pause");
        as_nobody(command, "control")
    };
    if let Some(output) = ask() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("belongs to another user"), "{said}");
    }
    // Even if its file lets them in.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    if let Some(output) = ask() {
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
    }
    assert_eq!(states(&answer(&scratch, &["info"])), ["running"]);
    stop(&scratch, running);
}
