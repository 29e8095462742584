//! What a command says when the limits of its sessions exceed those of the host.

use std::process::Command;

use rustix::process::Signal;

use crate::command::{Running, Scratch, kvm};
use crate::workers::await_output;

const WARNING: &str = "warning: 1 session with 5000 allocations and 64 command buffers each may \
                       need 5256 file descriptors, where this process may have 4096 (`ulimit -Hn`)";

/// Starts the command with at most 4096 file descriptors, and limits of its session beyond that.
fn start(scratch: &Scratch, words: &[&str]) -> Running {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 4096 && exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_causeway")).args(words);
    command.args(["--gpu", "software,allocations=5000"]);
    scratch.start_command(command)
}

#[test]
fn a_run_beyond_the_limits_of_the_host_warns_once() {
    if !kvm("limits of the host") {
        return;
    }
    let scratch = Scratch::new();
    let outcome = start(&scratch, &["run", "--guest", "spin", "--timeout", "1"]).finish();
    assert_eq!(outcome.stderr.matches(WARNING).count(), 1, "{outcome:?}");
}

#[test]
fn a_server_beyond_the_limits_of_the_host_warns_once() {
    let scratch = Scratch::new();
    let words = ["serve", "--socket", "socket", "--processes", "1"];
    let server = start(&scratch, &words);
    await_output(&server, "serving", 1);
    server.signal(Signal::TERM);
    let outcome = server.finish();
    assert_eq!(outcome.stderr.matches(WARNING).count(), 1, "{outcome:?}");
}
