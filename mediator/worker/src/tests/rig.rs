//! Guests on fake hosts with sessions in worker processes.

#[allow(dead_code, reason = "the mediator's own tests use the rest of it")]
#[path = "../../../core/tests/rig/guest.rs"]
mod guest;
#[allow(dead_code, reason = "as above")]
#[path = "../../../core/tests/rig/queue.rs"]
mod queue;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use causeway_mediator::Quota;
use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, Exported, Memory, Space,
};
use causeway_mediator_testing::{FakeBackend, FakeHost};
use causeway_memory::SharedMemory;
use causeway_protocol::message::MemoryKind;
use causeway_software::{Config, Software};
use rustix::process::{Pid, Signal, kill_process};
use zerocopy::IntoBytes;

use crate::{Confinement, Equipment, Program, WorkerSession, Workers, serve, start_workers};
use causeway_sandbox::{Profile, Sandbox};

use super::attempts;
pub use guest::{PAGE, READ, READ_WRITE};
pub use queue::{eventually, release};

/// A guest whose session is in a worker process.
pub type Guest = guest::Guest<WorkerSession>;

/// Argument of this test binary by which it starts workers.
pub const STARTER: &str = "tests::rig::starter";

/// Set for the process of a test that changes what all threads have in common.
pub const ALONE: &str = "CAUSEWAY_TEST_ALONE";

/// Runs the test of this name, which begins with its module, in a process of its own, in which
/// `ALONE` is set. Returns whether this is that process.
pub fn is_alone(test: &str) -> bool {
    is_alone_at(&format!("tests::{test}"))
}

/// Does what [`is_alone`] does for a test of any module: `path` names all modules that it is in.
pub fn is_alone_at(path: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([path, "--exact", "--nocapture"]);
    assert!(command.env(ALONE, "").status().unwrap().success());
    false
}

/// This test binary, as a program that runs `test` only. `word` is for that test to find among its
/// arguments.
pub fn program(test: &str, word: &str) -> Program {
    let test = format!("tests::{test}");
    let arguments = [test.as_str(), "--exact", "--nocapture", "--quiet", word];
    Program {
        path: std::env::current_exe().unwrap(),
        arguments: arguments.map(Into::into).to_vec(),
        environment: Vec::new(),
        starter: vec![STARTER.into()],
        groups: None,
    }
}

/// The process ID of the parent and the word, if this test was started as a program.
pub fn started_as_program() -> Option<(u32, String)> {
    let mut words = std::env::args().rev();
    let _partition: u32 = words.next()?.parse().ok()?;
    let (parent, word) = (words.next()?.parse().ok()?, words.next()?);
    std::env::var_os("CUDA_CACHE_DISABLE")?;
    Some((parent, word))
}

pub fn equipment() -> Equipment {
    let software = Software::new(Config {
        memory_bytes: 256 << 20,
        cores: Some(1),
        ..Config::default()
    });
    Equipment {
        backend: Arc::new(software),
        gpus: causeway_mediator::Gpus::default(),
        device: None,
        supplement: Box::new(|| b"added".to_vec()),
    }
}

/// How a worker of the tests confines itself: as one of `causeway run` does.
fn confinement(word: &str) -> Confinement {
    Confinement {
        sandbox: match word {
            "unconfined attacker" => Sandbox::Off,
            // It writes a file.
            word if word.starts_with('/') => Sandbox::Off,
            _ => Sandbox::On,
        },
        profile: match word {
            "driver attacker" => Profile::driver(),
            _ => Profile::computation(),
        },
    }
}

/// No test, but the name of what the tests start.
#[test]
fn worker_process() {}

#[used]
#[allow(unsafe_code)]
// SAFETY: the linker collects addresses of functions in this section, and the C library calls them
// before `main`. The standard library's own, which takes the arguments, comes first.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// Runs a worker process, or the one that starts workers, instead of the test harness. The harness
/// runs every test in a thread, and a process with two threads cannot confine itself.
extern "C" fn before_main() {
    let words: Vec<_> = std::env::args().collect();
    if let [_, word, parent] = &words[..]
        && word == STARTER
    {
        let served = start_workers(parent.parse().unwrap());
        std::process::exit(served.is_err().into());
    }
    let is_worker = |word: String| word == "tests::rig::worker_process";
    if std::env::args().any(is_worker)
        && let Some((parent, word)) = started_as_program()
    {
        run_worker(parent, &word);
        std::process::exit(0);
    }
}

fn run_worker(parent: u32, word: &str) {
    // A word that is a path is that of a file: while it exists, back ends take for ever.
    serve(parent, confinement(word), || match word {
        "absent" => Err(std::io::Error::other(
            "there is no such GPU: choose another",
        )),
        "slow" => {
            std::thread::sleep(Duration::from_millis(500));
            Ok(equipment())
        }
        // As if its driver did.
        "hangs" => loop {
            std::thread::park();
        },
        word if word.starts_with('/') && Path::new(word).exists() => {
            std::fs::write(Path::new(word).with_extension("seen"), "").unwrap();
            loop {
                std::thread::park();
            }
        }
        // Its guest controls it by now.
        word if word.ends_with("attacker") => Ok(Equipment {
            supplement: Box::new(attempts::report),
            ..equipment()
        }),
        "poisoned" => {
            let backend = FakeBackend::new();
            backend.poison();
            Ok(Equipment {
                backend,
                ..equipment()
            })
        }
        "keeper" => Ok(Equipment {
            backend: Arc::new(Keeper(equipment().backend)),
            ..equipment()
        }),
        _ => Ok(equipment()),
    })
    .unwrap();
}

/// A back end with work under way that never lets go of an import.
struct Keeper(Arc<dyn Backend>);

impl Backend for Keeper {
    fn attributes(&self) -> &Attributes {
        self.0.attributes()
    }

    fn allocate(
        &self,
        kind: MemoryKind,
        bytes: u64,
        options: AllocateOptions,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        self.0.allocate(kind, bytes, options)
    }

    fn import(&self, exported: Exported) -> Result<Arc<dyn Memory>, BackendError> {
        let memory = self.0.import(exported)?;
        std::mem::forget(Arc::clone(&memory));
        Ok(memory)
    }

    fn register_ram(
        &self,
        ram: Arc<SharedMemory>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<dyn Memory>, BackendError> {
        self.0.register_ram(ram, offset, bytes)
    }

    fn create_space(&self, stop: Arc<AtomicBool>) -> Result<Arc<dyn Space>, BackendError> {
        self.0.create_space(stop)
    }
}

pub fn workers() -> Workers {
    Workers::new(&program("rig::worker_process", "software"), None).unwrap()
}

impl Guest {
    pub fn open(workers: &Workers) -> Self {
        let host = FakeHost::new(guest::RAM_BYTES, 64 << 20).unwrap();
        let session = workers
            .open_worker(Arc::clone(&host) as _, Quota::default(), "test")
            .unwrap();
        Self::new(host, session)
    }

    /// A page of memory that the host has, too.
    pub fn page(&self) -> u32 {
        self.memory(MemoryKind::Host, PAGE)
    }

    /// Has the GPU store to memory that the guest reads: everything must work for that.
    pub fn works(&self) {
        let space = self.space();
        let (address, memory) = self.buffer(space, PAGE);
        let mut queue = self.command_buffer(space);
        queue.submit(&[release(address, 0x1234).as_bytes()]);
        self.wait(space, address, 0x1234, Duration::from_secs(20))
            .unwrap();
        let mut word = [0; 8];
        memory.read(0, &mut word).unwrap();
        assert_eq!(u64::from_le_bytes(word), 0x1234);
    }

    pub fn pid(&self) -> Pid {
        let pid = self.session.process_id().expect("a worker").cast_signed();
        Pid::from_raw(pid).unwrap()
    }

    /// Stops the worker, and waits until every thread of it stands still.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        let stopped = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status"));
            status.is_ok_and(|status| status.contains("State:\tT"))
        };
        eventually("standstill", || {
            let mut tasks = std::fs::read_dir(&tasks).unwrap();
            tasks.all(|task| stopped(task.unwrap()))
        });
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }
}
