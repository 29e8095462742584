//! `causeway serve`, with processes that do what they should not.

pub mod client;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_protocol::Access;
use causeway_protocol::registers::{Register, features};
use rustix::fs::{OFlags, SealFlags, fcntl_get_seals, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::command::{Running, Scratch};
use crate::workers::await_output;
use client::{Client, Queue};

/// Longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A counter that takes no more (eventfd(2)).
const FULL: u64 = u64::MAX - 1;

/// Serves one process at a time at `socket`, with this back end.
pub fn for_one_process(gpu: &str) -> [&str; 7] {
    [
        "serve",
        "--socket",
        "socket",
        "--processes",
        "1",
        "--gpu",
        gpu,
    ]
}

/// A server under way.
struct Server {
    running: Running,
    socket: PathBuf,
    _scratch: Scratch,
}

impl Server {
    /// Serves one process at a time, with this back end.
    fn start(gpu: &str) -> Self {
        Self::start_with_log(gpu, "warn")
    }

    /// The same, with the log at another level.
    fn start_with_log(gpu: &str, log: &str) -> Self {
        let scratch = Scratch::new();
        let mut command = std::process::Command::new("env");
        command.arg(format!("RUST_LOG={log}"));
        command
            .arg(env!("CARGO_BIN_EXE_causeway"))
            .args(for_one_process(gpu));
        let running = scratch.start_command(command);
        await_output(&running, "serving", 1);
        Self {
            running,
            socket: scratch.path("socket"),
            _scratch: scratch,
        }
    }

    /// A process that says hello, as soon as there is room for it.
    fn admit(&self) -> Client {
        let mut admitted = None;
        eventually("room for a process", || {
            admitted = Client::connect(&self.socket);
            admitted.is_some()
        });
        let mut client = admitted.unwrap();
        client.hello();
        client
    }

    /// Asks it to end, which it has to do with nothing left behind.
    fn end(self) {
        self.running.signal(Signal::TERM);
        let outcome = self.running.finish();
        assert_eq!(outcome.code, 0, "{outcome:?}");
    }
}

#[track_caller]
fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happens() {
        assert!(Instant::now() < deadline, "no {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Writes a packet that is none, and waits until the consumer has ended of it.
fn end_consumer(queue: &mut Queue) {
    queue.producer.push(&[0xff; 64]);
    let _ = queue.producer.publish();
    ring(&queue.doorbell, 1);
    eventually("fault", || queue.producer.fault() != 0);
}

fn ring(doorbell: &OwnedFd, times: u64) {
    rustix::io::write(doorbell, &times.to_ne_bytes()).unwrap();
}

fn set_nonblocking(doorbell: &OwnedFd, wanted: bool) {
    let mut flags = fcntl_getfl(doorbell).unwrap();
    flags.set(OFlags::NONBLOCK, wanted);
    fcntl_setfl(doorbell, flags).unwrap();
}

/// Empties the counter.
fn empty(doorbell: &OwnedFd) {
    set_nonblocking(doorbell, true);
    let _ = rustix::io::read(doorbell, &mut [0; 8]);
}

#[test]
fn a_process_cannot_hold_the_server_up_by_its_doorbell() {
    for gpu in ["software,isolation=none", "software,isolation=process"] {
        let server = Server::start(gpu);
        for (consumer_lives, nonblocking, fill) in [
            (false, false, true),
            (true, false, true),
            (true, true, true),
            (true, true, false),
        ] {
            let mut client = server.admit();
            let mut queue = client.command_buffer();
            if !consumer_lives {
                end_consumer(&mut queue);
            }
            empty(&queue.doorbell);
            set_nonblocking(&queue.doorbell, nonblocking);
            if fill {
                ring(&queue.doorbell, FULL);
            }
            drop(client);
        }
        server.end();
    }
}

#[test]
fn a_process_that_reads_its_doorbell_does_not_hold_the_server_up() {
    let server = Server::start("software,isolation=none");
    let mut client = server.admit();
    let doorbell = client.command_buffer().doorbell;
    set_nonblocking(&doorbell, false);
    let thieves: Vec<_> = (0..4)
        .map(|_| {
            let doorbell = doorbell.try_clone().unwrap();
            // Until somebody writes, who need not be the server.
            std::thread::spawn(move || rustix::io::read(&doorbell, &mut [0; 8]))
        })
        .collect();
    drop(client);
    drop(server.admit());
    server.end();
    while !thieves.iter().all(JoinHandle::is_finished) {
        ring(&doorbell, 1);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_is_handed_out_sealed_and_with_no_more_rights_than_asked_for() {
    const BYTES: u64 = 4 << 20;
    for gpu in ["software,isolation=none", "software,isolation=process"] {
        let server = Server::start(gpu);
        let mut client = server.admit();
        let allocation = client.allocate(BYTES);
        let reader = client.map(allocation, BYTES, Access::Read);
        let writer = client.map(allocation, BYTES, Access::ReadWrite);
        for file in [&reader, &writer] {
            let seals = fcntl_get_seals(file).unwrap();
            assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW), "{gpu}");
        }
        assert!(rustix::fs::ftruncate(&writer, 0).is_err(), "{gpu}");
        assert!(rustix::io::pwrite(&reader, b"x", 0).is_err(), "{gpu}");
        rustix::io::pwrite(&writer, b"x", 0).unwrap();
        drop(client);
        server.end();
    }
}

#[test]
fn hello_and_the_registers_have_the_same_features() {
    for gpu in ["software,isolation=none", "software,isolation=process"] {
        let server = Server::start(gpu);
        let mut client = server.admit();
        let hello = client.hello();
        let low = client.load(Register::FeaturesLow);
        let high = client.load(Register::FeaturesHigh);
        assert_eq!(hello, u64::from(high) << 32 | u64::from(low), "{gpu}");
        let absent = features::DEVICE_VISIBLE | features::NOTIFY | features::GUEST_RAM;
        assert_eq!(hello & (absent | features::CLIENTS), 0, "{hello:#x}");
        let present = features::KERNELS | features::SHARING | features::APERTURE_ADDRESSES;
        assert_eq!(hello & present, present, "{hello:#x}");
        drop(client);
        server.end();
    }
}

#[test]
fn who_is_turned_away_again_and_again_does_not_flood_the_log() {
    let server = Server::start("software,isolation=none");
    let client = server.admit();
    for _ in 0..50 {
        assert!(Client::connect(&server.socket).is_none());
    }
    let told = server
        .running
        .stderr()
        .matches("refused a client process")
        .count();
    assert!((1..=8).contains(&told), "told {told} times");
    drop(client);
    server.end();
}

#[test]
fn a_server_without_descriptors_waits_for_some() {
    // As few as that leave room for none, and are enough for a look at signals, ends and the
    // socket.
    const STANDARD_FILES: u64 = 3;
    let server = Server::start_with_log("software,isolation=none", "debug");
    let pid = Pid::from_raw(server.running.id());
    let limit = |current| Rlimit {
        current: Some(current),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    let started = Instant::now();
    let before = prlimit(pid, Resource::Nofile, limit(STANDARD_FILES)).unwrap();
    let socket = server.socket.clone();
    let waiting = std::thread::spawn(move || Client::connect(&socket).is_some());
    let told = || server.running.stderr().matches("cannot accept").count();
    eventually("second try", || told() >= 2);
    let times = told() as u128;
    // The first at once, and each of the others after a pause.
    let pauses = started.elapsed().as_millis() / 100;
    assert!(times <= pauses + 1, "{times} times");
    prlimit(pid, Resource::Nofile, before).unwrap();
    assert!(waiting.join().unwrap(), "taken in the end");
    server.end();
}

#[test]
fn a_process_that_connects_again_and_again_fills_no_log() {
    /// Lines that one place of the program logs at once, and more than it logs in the time of this
    /// test, one each second.
    const LINES_MAX: usize = 256 + 120;
    const TIMES: usize = 2 * LINES_MAX;
    let server = Server::start_with_log("software,isolation=none", "debug");
    let lines = |of: &str| server.running.stderr().matches(of).count();
    let client = server.admit();
    for _ in 0..TIMES {
        assert!(Client::connect(&server.socket).is_none(), "served");
    }
    drop(client);
    let refused = lines("refused a client process");
    assert!((8..=LINES_MAX).contains(&refused), "{refused} lines");
    for _ in 0..TIMES {
        drop(server.admit());
    }
    let connected = lines("has connected");
    assert!((8..=LINES_MAX).contains(&connected), "{connected} lines");
    let told = server.running.stderr();
    assert!(
        told.contains("from now on one in 1 s at most"),
        "what is left out is told: {told}"
    );
    server.end();
}
