//! Processes of other users, and processes that are served.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::command::{Scratch, kvm};
use crate::workers::{await_output, workers};

use super::{await_published, end, records, start_exiting, stat};

/// The user who owns nothing.
const NOBODY: u32 = 65534;

/// Runs a command as somebody else. None, with the reason said, where that is not possible.
pub fn as_nobody(mut command: Command, what: &str) -> Option<Output> {
    match command.uid(NOBODY).gid(NOBODY).current_dir("/").output() {
        Ok(output) => Some(output),
        Err(e) => {
            eprintln!("skipped: {what} as another user: {e}");
            None
        }
    }
}

#[test]
fn a_process_of_another_user_is_named_as_such_and_does_not_answer() {
    if !kvm("stat of another user") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be two users");
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &["--metrics-socket", "metrics"]);
    let pid = running.id().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command.args(["stat", &pid, "--json"]);
    if let Some(output) = as_nobody(command, "stat") {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains(&format!("process {pid} belongs to user 0")),
            "{said}"
        );
        assert!(said.contains("--all"), "{said}");
    }
    // Even if its file lets them in.
    let path = scratch.path("metrics");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let scrape = || {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--unix-socket"]);
        command.arg(&path).arg("http://localhost/metrics");
        command
    };
    if let Ok(own) = scrape().output() {
        let answer = String::from_utf8_lossy(&own.stdout);
        assert!(answer.ends_with("# EOF\n"), "{own:?}");
        if let Some(output) = as_nobody(scrape(), "curl") {
            assert!(
                !output.status.success() && output.stdout.is_empty(),
                "{output:?}"
            );
        }
    } else {
        eprintln!("skipped: there is no curl");
    }
    end(running);
}

#[test]
fn limits_are_not_changed_for_another_user() {
    if !kvm("limits of another user") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be two users");
        return;
    }
    let scratch = Scratch::new();
    let running = start_exiting(&scratch, &[]);
    let pid = running.id().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command.args(["limit", &pid, "queues=7"]);
    if let Some(output) = as_nobody(command, "limit") {
        let said = String::from_utf8_lossy(&output.stderr);
        let told = format!("process {pid} belongs to user 0");
        assert!(
            said.contains(&told) && output.status.code() == Some(2),
            "{said}"
        );
    }
    // Even if folder and file let them in.
    let socket = scratch.runtime().join(&pid);
    for path in [scratch.runtime(), &socket] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let put = |queues: &str| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--request", "PUT"]);
        command.args([
            "--data",
            &format!("{{\"limits\":{{\"queues\":\"{queues}\"}}}}"),
        ]);
        command.arg("--unix-socket").arg(&socket);
        command.arg("http://localhost/limits");
        command
    };
    if let Ok(own) = put("8").output() {
        let answer = String::from_utf8_lossy(&own.stdout);
        assert!(answer.contains("\"queues\":\"8\""), "{own:?}");
        if let Some(output) = as_nobody(put("7"), "curl") {
            assert!(
                !output.status.success() && output.stdout.is_empty(),
                "{output:?}"
            );
        }
        fs::set_permissions(scratch.runtime(), fs::Permissions::from_mode(0o700)).unwrap();
        let shown = Scratch::beside(&scratch).run(&["limit", &pid]);
        assert!(shown.stdout.contains("  8 "), "{shown:?}");
    } else {
        eprintln!("skipped: there is no curl");
    }
    end(running);
}

#[test]
fn processes_that_are_served_are_seen_like_vms() {
    let scratch = Scratch::new();
    let running = scratch.start(&["serve", "--socket", "socket", "--gpu", "software,cores=1"]);
    await_output(&running, "causeway: serving", 1);
    await_published(&scratch, &running);
    let pid = running.id().to_string();
    assert!(records(&stat(&scratch, &[&pid, "--json", "--once"])).is_empty());
    let beside = Scratch::beside(&scratch);
    let holder = crate::serving::program(&beside, "processes", &["hold"], &scratch.path("socket"));
    crate::serving::await_work(&holder);
    let records = records(&stat(&scratch, &[&pid, "--json", "--once"]));
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!(
        (&record["command"], &record["guest"]),
        (&"serve".into(), &"process1".into())
    );
    assert!(record["vm"].is_null());
    assert!(
        record["session"]["memory_used_bytes"].as_u64().unwrap() > 0,
        "{record}"
    );
    assert!(
        record["aperture"]["placements"].as_u64().unwrap() > 0,
        "{record}"
    );
    holder.signal(Signal::KILL);
    holder.finish();
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 0);
}

#[test]
fn a_spare_worker_is_no_session_and_serves_the_next_process() {
    let scratch = Scratch::new();
    let gpu = "software,cores=1,isolation=process";
    let words = ["serve", "--socket", "socket", "--gpu", gpu];
    let running = scratch.start(&[&words[..], &["--spare-workers", "1"]].concat());
    await_output(&running, "causeway: serving", 1);
    await_published(&scratch, &running);
    let spares = workers(&running);
    assert_eq!(spares.len(), 1);
    let pid = running.id().to_string();
    let records = || records(&stat(&scratch, &[&pid, "--json", "--once"]));
    assert!(records().is_empty());
    let beside = Scratch::beside(&scratch);
    let holder = crate::serving::program(&beside, "processes", &["hold"], &scratch.path("socket"));
    crate::serving::await_work(&holder);
    assert_eq!(records().len(), 1);
    // Another spare comes later.
    let deadline = Instant::now() + Duration::from_secs(60);
    while workers(&running).len() != 2 {
        assert!(Instant::now() < deadline, "{:?}", workers(&running));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(workers(&running).contains(&spares[0]), "it serves");
    assert_eq!(records().len(), 1);
    holder.signal(Signal::KILL);
    holder.finish();
    let left = workers(&running);
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 0);
    for worker in left {
        assert!(rustix::process::test_kill_process(worker).is_err());
    }
}
