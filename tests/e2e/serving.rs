//! `causeway serve` with programs that are written for Linux guests, run as ordinary processes of
//! this host.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use causeway_embedded_linux::image;
use rustix::process::Signal;

use crate::command::{Running, Scratch, alone};
use crate::workers::await_output;

/// What the command ends with when an argument is at fault.
const USAGE: i32 = 2;
/// Longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of SIGKILL, negative as an outcome's code is.
const KILLED: i32 = -9;

/// A server under way.
struct Server {
    running: Running,
    scratch: Scratch,
}

impl Server {
    fn start(gpu: &str) -> Self {
        let scratch = Scratch::new();
        let running = scratch.start(&["serve", "--socket", "socket", "--gpu", gpu]);
        await_output(&running, "causeway: serving", 1);
        Self { running, scratch }
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path("socket")
    }

    /// Starts a program in a scratch directory that is not the server's.
    fn client(&self, scratch: &Scratch, name: &str, arguments: &[&str]) -> Running {
        program(scratch, name, arguments, &self.socket())
    }

    /// Runs `compute`, which has to verify every kernel.
    fn computes(&self) {
        let scratch = Scratch::new();
        let outcome = self.client(&scratch, "compute", &[]).finish();
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let verified = format!("kernels verified: {}", causeway_kernels::CASES.len());
        assert!(outcome.stdout.contains(&verified), "{outcome:?}");
    }

    /// Asks it to end, which it has to do with nothing left behind.
    fn end(self) {
        let socket = self.socket();
        self.running.signal(Signal::TERM);
        let outcome = self.running.finish();
        assert_eq!(outcome.code, 0, "{outcome:?}");
        assert!(!socket.exists());
    }
}

/// Starts a program that finds its device at `socket`.
pub fn program(scratch: &Scratch, name: &str, arguments: &[&str], socket: &Path) -> Running {
    let mut command = installed(scratch, name);
    command.args(arguments).env("CAUSEWAY_SOCKET", socket);
    scratch.start_command(command)
}

/// Writes a program into a scratch directory, and returns it as a command.
fn installed(scratch: &Scratch, name: &str) -> Command {
    let content = image(name).unwrap_or_else(|| panic!("there is no program {name}"));
    let path = scratch.path(name);
    let copy = scratch.file("program", content);
    // Another test's child may have a file that is written here open for a moment, and then it
    // cannot be executed (ETXTBSY).
    let install = Command::new("install")
        .args(["-m", "755", &copy])
        .arg(&path)
        .status();
    assert!(install.unwrap().success());
    Command::new(path)
}

/// Waits until `processes hold` has half of the quota, and the device works for it.
pub fn await_work(holder: &Running) {
    let deadline = Instant::now() + PATIENCE;
    while !holder.stdout().contains("holding: ") {
        let said = holder.stderr();
        assert!(Instant::now() < deadline, "it holds nothing: {said}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_program_for_guests_computes_as_an_ordinary_process() {
    let _alone = alone();
    for gpu in ["software", "software,isolation=process"] {
        let server = Server::start(gpu);
        server.computes();
        server.end();
    }
}

#[test]
fn the_first_program_of_the_documentation_adds_its_vectors() {
    let server = Server::start("software,memory=64");
    let scratch = Scratch::new();
    let outcome = server.client(&scratch, "vector_add", &[]).finish();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert_eq!(outcome.stdout, "100000 sums are right\n");
    server.end();
    let outcome = program(&scratch, "vector_add", &[], &scratch.path("nobody")).finish();
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let way_out = "is `causeway serve --socket";
    assert!(outcome.stderr.contains(way_out), "{outcome:?}");
}

#[test]
fn server_and_program_that_are_told_no_path_meet_in_the_users_runtime_directory() {
    let (server, scratch) = (Scratch::new(), Scratch::new());
    let serve = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.args(["serve", "--gpu", "software,memory=64"]);
        command
    };
    let mut homeless = serve();
    homeless.env_remove("XDG_RUNTIME_DIR");
    let outcome = server.start_command(homeless).finish();
    outcome.assert_refused(USAGE, &["missing --socket PATH", "XDG_RUNTIME_DIR"]);

    let folder = server.path("");
    let mut command = serve();
    command.env("XDG_RUNTIME_DIR", &folder);
    let running = server.start_command(command);
    await_output(&running, "causeway-gpu.socket", 1);
    let mut command = installed(&scratch, "vector_add");
    command.env("XDG_RUNTIME_DIR", &folder);
    command.env_remove("CAUSEWAY_SOCKET");
    let outcome = scratch.start_command(command).finish();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 0);
}

#[test]
fn a_second_server_at_the_same_path_is_refused_and_the_first_goes_on() {
    let server = Server::start("software,memory=64");
    let socket = server.socket();
    let second = Scratch::new();
    let path = socket.to_str().unwrap();
    let outcome = second.run(&["serve", "--socket", path]);
    outcome.assert_refused(USAGE, &[path, "another process listens at this path"]);
    assert!(socket.exists());
    let scratch = Scratch::new();
    let outcome = server.client(&scratch, "causeway-info", &[]).finish();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.stdout.contains("of 64 MiB"), "{outcome:?}");
    server.end();
}

#[test]
fn a_process_for_which_there_is_no_room_gets_the_reason() {
    let scratch = Scratch::new();
    let words = [
        "serve",
        "--socket",
        "socket",
        "--gpu",
        "software,memory=64",
        "--processes",
        "1",
    ];
    let running = scratch.start(&words);
    await_output(&running, "causeway: serving", 1);
    let server = Server { running, scratch };
    let scratch = Scratch::new();
    let holder = server.client(&scratch, "processes", &["hold"]);
    await_work(&holder);
    let second = Scratch::new();
    let outcome = server.client(&second, "causeway-info", &[]).finish();
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let reason =
        "refuses this process: as many processes as --processes of `causeway serve` allows";
    assert!(outcome.stderr.contains(reason), "{outcome:?}");
    holder.signal(Signal::KILL);
    assert_eq!(holder.finish().code, KILLED);
    server.end();
}

#[test]
fn a_process_that_is_killed_at_work_leaves_the_server_usable() {
    let _alone = alone();
    let server = Server::start("software,memory=256");
    for _ in 0..3 {
        let scratch = Scratch::new();
        let holder = server.client(&scratch, "processes", &["hold"]);
        await_work(&holder);
        holder.signal(Signal::KILL);
        assert_eq!(holder.finish().code, KILLED);
    }
    server.computes();
    server.end();
}

#[test]
fn a_server_ends_although_a_process_is_at_work_and_is_missed_by_name() {
    let server = Server::start("software,memory=64");
    let scratch = Scratch::new();
    let holder = server.client(&scratch, "processes", &["hold"]);
    await_work(&holder);
    server.running.signal(Signal::TERM);
    let outcome = server.running.finish();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    holder.signal(Signal::KILL);
    assert_eq!(holder.finish().code, KILLED);
    let missing = scratch.path("nobody");
    let outcome = program(&scratch, "causeway-info", &[], &missing).finish();
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let wanted = format!(
        "is `causeway serve --socket {}` running?",
        missing.display()
    );
    assert!(outcome.stderr.contains(&wanted), "{outcome:?}");
}
