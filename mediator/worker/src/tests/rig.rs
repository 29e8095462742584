//! Guests on fake hosts with sessions in worker processes, and what they ask for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use causeway_mediator::backend::{
    AllocateOptions, Attributes, Backend, BackendError, Exported, Memory, Space,
};
use causeway_mediator::fake::{FakeHost, Producer, ask_as};
use causeway_mediator::{Client, GuestSession, Quota};
use causeway_memory::{Mapping, SharedMemory};
use causeway_protocol::message::{
    AddressReply, Allocate, AllocateReply, CommandBufferReply, CreateCommandBuffer, Empty, Export,
    FaultReport, HandleReply, Hello, HelloReply, Import, MapCpu, MapGpu, MemoryKind, Opcode,
    Status, Token, Wait,
};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR, packet, ring};
use causeway_software::{Config, Software};
use rustix::process::{Pid, Signal, kill_process};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Equipment, Program, WorkerSession, Workers, serve};

pub const READ: u32 = 1;
pub const READ_WRITE: u32 = 3;
pub const PAGE: u64 = 4096;
const RING_BYTES: u64 = ring::ring_bytes(256);

pub type Refused = (Status, u32);

/// This test binary, as a program that runs `test` only. `word` is for that test to find among its arguments.
pub fn program(test: &str, word: &str) -> Program {
    let test = format!("tests::{test}");
    let arguments = [test.as_str(), "--exact", "--nocapture", "--quiet", word];
    Program {
        path: std::env::current_exe().unwrap(),
        arguments: arguments.map(Into::into).to_vec(),
        environment: Vec::new(),
    }
}

/// The number of the parent and the word, if this test was started as a program.
pub fn started_as_program() -> Option<(u32, String)> {
    let mut words = std::env::args().rev();
    let _session: u64 = words.next()?.parse().ok()?;
    let (parent, word) = (words.next()?.parse().ok()?, words.next()?);
    std::env::var_os("CUDA_CACHE_DISABLE")?;
    Some((parent, word))
}

pub fn equipment() -> Equipment {
    let software = Software::new(Config {
        memory_bytes: 256 << 20,
        cores: Some(1),
    });
    Equipment {
        backend: Arc::new(software),
        device: None,
        supplement: Box::new(|| b"added".to_vec()),
    }
}

/// No test, but what the tests start.
#[test]
fn worker_process() {
    let Some((parent, word)) = started_as_program() else {
        return;
    };
    serve(parent, || match word.as_str() {
        "absent" => Err(std::io::Error::other(
            "there is no such GPU: choose another",
        )),
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
    Workers::new(program("rig::worker_process", "software"), None).unwrap()
}

/// A guest with an open session.
pub struct Guest {
    pub host: Arc<FakeHost>,
    pub session: Arc<WorkerSession>,
    pub client: Client,
}

/// A command buffer, as its guest sees it.
pub struct Queue {
    doorbell: u32,
    pub producer: Producer,
    host: Arc<FakeHost>,
}

impl Guest {
    pub fn open(workers: &Workers) -> Self {
        let host = FakeHost::new(1 << 20, 64 << 20).unwrap();
        let session = workers
            .open_worker(Arc::clone(&host) as _, Quota::default(), "test")
            .unwrap();
        let client = Client::FIRST;
        let guest = Self {
            host,
            session,
            client,
        };
        guest.hello();
        guest
    }

    /// Another client of the same guest, that has said hello.
    pub fn beside(&self, client: u32) -> Self {
        let guest = Self {
            host: Arc::clone(&self.host),
            session: Arc::clone(&self.session),
            client: Client::new(client).unwrap(),
        };
        guest.hello();
        guest
    }

    pub fn ask<Q: IntoBytes + Immutable, P: FromBytes>(
        &self,
        opcode: Opcode,
        request: &Q,
    ) -> Result<P, Refused> {
        ask_as(&self.session, self.client, opcode, request)
    }

    /// Whether this client owns something.
    pub fn owns(&self) -> bool {
        self.session.owners() & self.client.bit() != 0
    }

    pub fn hello(&self) {
        let hello = Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            ..Hello::default()
        };
        self.ask::<_, HelloReply>(Opcode::Hello, &hello).unwrap();
    }

    pub fn try_space(&self) -> Result<u32, Refused> {
        let reply: HandleReply = self.ask(Opcode::CreateSpace, &Empty {})?;
        Ok(reply.handle)
    }

    pub fn memory(&self, size: u64) -> u32 {
        let request = Allocate {
            size,
            kind: MemoryKind::Host as u32,
            ..Allocate::default()
        };
        let reply: AllocateReply = self.ask(Opcode::Allocate, &request).unwrap();
        reply.handle
    }

    pub fn map_cpu(&self, allocation: u32, length: u64, access: u32) -> Result<u64, Refused> {
        let request = MapCpu {
            allocation,
            access,
            offset: 0,
            length,
        };
        let reply: AddressReply = self.ask(Opcode::MapCpu, &request)?;
        Ok(reply.address)
    }

    /// A buffer in `space`: its address there, and the memory.
    pub fn buffer(&self, space: u32) -> (u64, Mapping) {
        let allocation = self.memory(PAGE);
        let request = MapGpu {
            space,
            allocation,
            length: PAGE,
            access: READ_WRITE,
            ..MapGpu::default()
        };
        let reply: AddressReply = self.ask(Opcode::MapGpu, &request).unwrap();
        let offset = self.map_cpu(allocation, PAGE, READ_WRITE).unwrap();
        (reply.address, self.host.map(offset).unwrap())
    }

    pub fn command_buffer(&self, space: u32) -> Queue {
        let allocation = self.memory(RING_BYTES);
        let request = CreateCommandBuffer {
            space,
            allocation,
            length: RING_BYTES,
            ..CreateCommandBuffer::default()
        };
        let reply: CommandBufferReply = self.ask(Opcode::CreateCommandBuffer, &request).unwrap();
        let offset = self.map_cpu(allocation, RING_BYTES, READ_WRITE).unwrap();
        Queue {
            doorbell: reply.doorbell,
            producer: Producer::new(self.host.map(offset).unwrap()).unwrap(),
            host: Arc::clone(&self.host),
        }
    }

    pub fn wait(
        &self,
        space: u32,
        address: u64,
        value: u64,
        limit: Duration,
    ) -> Result<(), Refused> {
        let request = Wait {
            space,
            address,
            value,
            timeout_ns: limit.as_nanos() as u64,
            ..Wait::default()
        };
        self.ask::<_, Empty>(Opcode::Wait, &request).map(drop)
    }

    /// Has the GPU store to memory that the guest reads: everything must work for that.
    pub fn works(&self) {
        let space = self.try_space().unwrap();
        let (address, memory) = self.buffer(space);
        let mut queue = self.command_buffer(space);
        queue.release(address, 0x1234);
        self.wait(space, address, 0x1234, Duration::from_secs(20))
            .unwrap();
        let mut word = [0; 8];
        memory.read(0, &mut word).unwrap();
        assert_eq!(u64::from_le_bytes(word), 0x1234);
    }

    pub fn fault(&self) -> String {
        let report: FaultReport = self.ask(Opcode::QueryFault, &Empty {}).unwrap();
        String::from_utf8_lossy(&report.text[..report.text_bytes as usize]).into_owned()
    }

    pub fn export(&self, allocation: u32, access: u32) -> Token {
        let request = Export { allocation, access };
        self.ask(Opcode::Export, &request).unwrap()
    }

    pub fn import(&self, token: &Token, access: u32) -> Result<u32, Refused> {
        let request = Import {
            token: token.token,
            access,
            reserved: 0,
        };
        let reply: AllocateReply = self.ask(Opcode::Import, &request)?;
        Ok(reply.handle)
    }

    pub fn revoke(&self, token: &Token) -> Result<(), Refused> {
        self.ask::<_, Empty>(Opcode::Revoke, token).map(drop)
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

impl Queue {
    pub fn release(&mut self, address: u64, value: u64) {
        let packet = packet::Fence {
            header: packet::Header {
                opcode: packet::Opcode::FenceRelease as u16,
                reserved: 0,
                units: 1,
            },
            address,
            value,
            ..packet::Fence::default()
        };
        self.producer.push(packet.as_bytes());
        if self.producer.publish() {
            assert!(self.host.ring(self.doorbell));
        }
    }
}

/// Waits for something that happens by itself.
#[track_caller]
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !happened() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}
