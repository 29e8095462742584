//! Units of a ring: whatever a guest writes there, the consumer answers with a fault word or goes
//! on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_mediator::{GuestSession, Mediator, Quota, Session};
use causeway_mediator_testing::{FakeBackend, FakeHost, Live, ask};
use causeway_memory::Mapping;
use causeway_protocol::message::{
    AddressReply, Allocate, AllocateReply, ArrayReply, CommandBufferReply, CreateArray,
    CreateCommandBuffer, CreateRecording, Empty, GetKernel, HandleReply, HandleRequest, Hello,
    KernelReply, LoadModule, LoadModuleReply, MapCpu, MapGpu, MemoryKind, Opcode,
};
use causeway_protocol::packet::{self, UNIT_BYTES};
use causeway_protocol::ring::{
    CONSUMER, FAULT_STATUS, HEADER_BYTES, PRODUCER, UNITS_MIN, ring_bytes,
};
use causeway_protocol::{Access, VERSION_MAJOR, VERSION_MINOR};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const RAM_BYTES: u64 = 64 << 10;
/// Guest-physical address of packets to record.
const PACKETS: u64 = 4096;
const APERTURE_BYTES: u64 = 1 << 20;
const RING_BYTES: u64 = ring_bytes(UNITS_MIN);
const BUFFER_BYTES: u64 = 64 << 10;
/// A consumer that has not moved for so long waits for a fence.
const PATIENCE: Duration = Duration::from_millis(2);

/// A session with a command buffer, a kernel, and memory that packets can name.
pub struct Packets {
    backend: Arc<FakeBackend>,
    host: Arc<FakeHost>,
    session: Arc<Session>,
    space: u32,
    ring: u32,
    queue: Queue,
    /// GPU address of [`BUFFER_BYTES`] bytes.
    pub buffer: u64,
    /// Handle of a kernel with 16 bytes of parameters.
    pub kernel: u32,
    /// Handle of a recording that launches that kernel and releases a fence in the buffer.
    pub recording: u32,
    /// Handle of an array of 8 numbers of 32 bits in a row, 8 rows and 4 slices.
    pub array: u32,
}

struct Queue {
    handle: u32,
    doorbell: u32,
    memory: Mapping,
    position: u64,
}

impl Default for Packets {
    fn default() -> Self {
        Self::new()
    }
}

impl Packets {
    /// A session that is ready for packets.
    pub fn new() -> Self {
        let backend = FakeBackend::new();
        backend.define("k", 16, |_| Ok(()));
        let host = FakeHost::new(RAM_BYTES, APERTURE_BYTES).expect("memory for a guest");
        host.ram_mapping()
            .write(0, b"kernel k")
            .expect("RAM for a module");
        let mediator = Mediator::new(Arc::clone(&backend) as _);
        let session = mediator.open(Arc::clone(&host) as _, Quota::default(), "fuzz");
        let hello = Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            ..Hello::default()
        };
        let _: causeway_protocol::message::HelloReply = get(&session, Opcode::Hello, &hello);
        let space: HandleReply = get(&session, Opcode::CreateSpace, &Empty {});
        let (buffer, kernel) = prepare(&session, space.handle);
        let recording = record(&session, &host, space.handle, (buffer, kernel));
        let array = CreateArray {
            space: space.handle,
            width: 8,
            height: 8,
            depth: 4,
            format: 3,
            channels: 1,
            ..CreateArray::default()
        };
        let array: ArrayReply = get(&session, Opcode::CreateArray, &array);
        let ring = allocate(&session, RING_BYTES);
        let queue = Queue::new(&session, &host, space.handle, ring);
        Self {
            backend,
            host,
            session,
            space: space.handle,
            ring,
            queue,
            buffer,
            kernel,
            recording,
            array: array.handle,
        }
    }

    /// Publishes whole units of any bytes, waits for the consumer, and puts a new one in place of
    /// one that stopped.
    pub fn submit(&mut self, units: &[u8]) {
        let queue = &mut self.queue;
        let count = (units.len() / UNIT_BYTES).min(UNITS_MIN as usize) as u64;
        for (index, unit) in (0..count).zip(units.chunks_exact(UNIT_BYTES)) {
            let place = (queue.position + index) % UNITS_MIN;
            let at = HEADER_BYTES + place * UNIT_BYTES as u64;
            queue.memory.write(at, unit).expect("within the ring");
        }
        queue.position += count;
        queue.publish();
        self.host.ring(queue.doorbell);
        if !queue.consumed() {
            self.renew();
        }
    }

    /// Publishes a producer position of any value.
    pub fn claim(&mut self, position: u64) {
        self.queue.position = position;
        self.queue.publish();
        self.host.ring(self.queue.doorbell);
        if !self.queue.consumed() {
            self.renew();
        }
    }

    /// Whether a fault has ended the session, so that it takes no more.
    pub fn lost(&self) -> bool {
        self.session.fault().is_some()
    }

    fn renew(&mut self) {
        if self.lost() {
            return;
        }
        let request = HandleRequest {
            handle: self.queue.handle,
            ..HandleRequest::default()
        };
        // The session may be lost at any moment; what it says then does not matter.
        let _ = ask::<_, Empty>(&self.session, Opcode::DestroyCommandBuffer, &request);
        if !self.lost() {
            self.queue = Queue::new(&self.session, &self.host, self.space, self.ring);
        }
    }

    /// Ends the session, and sees to it that everything is gone.
    pub fn finish(self) {
        let Self {
            backend,
            session,
            queue,
            ..
        } = self;
        drop(queue);
        session.close();
        assert_eq!(backend.live(), Live::default());
    }
}

impl Queue {
    fn new(session: &Arc<Session>, host: &FakeHost, space: u32, ring: u32) -> Self {
        let request = CreateCommandBuffer {
            space,
            allocation: ring,
            length: RING_BYTES,
            ..CreateCommandBuffer::default()
        };
        let reply: CommandBufferReply = get(session, Opcode::CreateCommandBuffer, &request);
        Self {
            handle: reply.handle,
            doorbell: reply.doorbell,
            memory: view(session, host, ring),
            position: 0,
        }
    }

    fn publish(&self) {
        let stored = self
            .memory
            .store_u64(PRODUCER as u64, self.position, Ordering::SeqCst);
        stored.expect("within the header");
    }

    fn load(&self, word: usize) -> u64 {
        let word = self.memory.load_u64(word as u64, Ordering::Acquire);
        word.expect("within the header")
    }

    /// Whether the consumer has taken everything; false if it stopped.
    fn consumed(&self) -> bool {
        let begun = Instant::now();
        let mut last = self.load(CONSUMER);
        let mut moved = begun;
        loop {
            if self.load(FAULT_STATUS) != 0 {
                return false;
            }
            let position = self.load(CONSUMER);
            if position == self.position {
                return true;
            }
            if position != last {
                (last, moved) = (position, Instant::now());
            }
            if moved.elapsed() > PATIENCE {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

fn get<Q: IntoBytes + Immutable, P: FromBytes>(
    session: &Arc<Session>,
    opcode: Opcode,
    request: &Q,
) -> P {
    match ask(session, opcode, request) {
        Ok(reply) => reply,
        Err((status, detail)) => panic!("{}: {status:?} ({detail})", opcode.name()),
    }
}

fn allocate(session: &Arc<Session>, size: u64) -> u32 {
    let request = Allocate {
        size,
        kind: MemoryKind::Host as u32,
        ..Allocate::default()
    };
    let reply: AllocateReply = get(session, Opcode::Allocate, &request);
    reply.handle
}

/// Maps a ring into the aperture, and looks at it from there. The mapping is given up again at
/// once: what the host maps of the object stays.
fn view(session: &Arc<Session>, host: &FakeHost, ring: u32) -> Mapping {
    let request = MapCpu {
        allocation: ring,
        access: Access::ReadWrite.wire(),
        offset: 0,
        length: RING_BYTES,
    };
    let reply: AddressReply = get(session, Opcode::MapCpu, &request);
    let view = host.map(reply.address).expect("placed in the aperture");
    let request = causeway_protocol::message::SpaceAddress {
        address: reply.address,
        ..Default::default()
    };
    let _: Empty = get(session, Opcode::UnmapCpu, &request);
    view
}

/// Memory and a kernel for packets to name.
fn prepare(session: &Arc<Session>, space: u32) -> (u64, u32) {
    let request = MapGpu {
        space,
        allocation: allocate(session, BUFFER_BYTES),
        length: BUFFER_BYTES,
        access: Access::ReadWrite.wire(),
        ..MapGpu::default()
    };
    let buffer: AddressReply = get(session, Opcode::MapGpu, &request);
    let request = LoadModule {
        space,
        image_bytes: "kernel k".len() as u64,
        ..LoadModule::default()
    };
    let module: LoadModuleReply = get(session, Opcode::LoadModule, &request);
    let mut request = GetKernel {
        module: module.handle,
        name_bytes: 1,
        ..GetKernel::default()
    };
    request.name[0] = b'k';
    let kernel: KernelReply = get(session, Opcode::GetKernel, &request);
    (buffer.address, kernel.handle)
}

/// A launch and a release, recorded.
fn record(session: &Arc<Session>, host: &FakeHost, space: u32, names: (u64, u32)) -> u32 {
    let (address, kernel) = names;
    let head = |opcode: packet::Opcode, units| packet::Header {
        opcode: opcode as u16,
        reserved: 0,
        units,
    };
    let launch = packet::Launch {
        header: head(packet::Opcode::Launch, 2),
        kernel,
        shape: packet::LaunchShape {
            shared_bytes: 0,
            grid: [1; 3],
            block: [1; 3],
        },
        parameter_bytes: 16,
        ..packet::Launch::default()
    };
    let release = packet::Fence {
        header: head(packet::Opcode::FenceRelease, 1),
        address,
        value: 1,
        ..packet::Fence::default()
    };
    let ram = host.ram_mapping();
    let written = ram.write(PACKETS, launch.as_bytes());
    let written =
        written.and_then(|()| ram.write(PACKETS + 2 * UNIT_BYTES as u64, release.as_bytes()));
    written.expect("RAM for packets");
    let request = CreateRecording {
        space,
        reserved: 0,
        address: PACKETS,
        bytes: 3 * UNIT_BYTES as u64,
    };
    let reply: HandleReply = get(session, Opcode::CreateRecording, &request);
    reply.handle
}
