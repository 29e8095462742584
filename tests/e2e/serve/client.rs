//! A process of `causeway serve`, which keeps the descriptors that it is given.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use causeway_mediator_testing::{Batch, Producer};
use causeway_memory::{PageSize, SharedMemory};
use causeway_protocol::message::{
    AddressReply, Allocate, AllocateReply, Attributes, CommandBufferReply, CreateCommandBuffer,
    Empty, HandleReply, HandleRequest, Hello, HelloReply, MapCpu, MemoryKind, Opcode, Status,
};
use causeway_protocol::registers::Register;
use causeway_protocol::socket::{Event, EventKind, Greeting, MAGIC, Request, RequestKind};
use causeway_protocol::{Access, VERSION_MAJOR, VERSION_MINOR, ring};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of the ring of a command buffer.
const RING_BYTES: u64 = ring::ring_bytes(256);

/// A connection.
pub struct Client {
    socket: OwnedFd,
    /// What the server said and nobody has looked at.
    told: Vec<(Event, Option<OwnedFd>)>,
}

/// A command buffer of a client.
pub struct Queue {
    pub producer: Producer,
    /// The eventfd that wakes the consumer.
    pub doorbell: OwnedFd,
}

impl Client {
    /// Connects. Nothing, if the server hangs up instead of a greeting.
    pub fn connect(path: &Path) -> Option<Self> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        let client = Self {
            socket,
            told: Vec::new(),
        };
        let (bytes, _) = client.receive();
        let greeting = Greeting::read_from_bytes(&bytes).ok()?;
        assert_eq!(greeting.magic, MAGIC);
        Some(client)
    }

    /// Opens the session. Returns its features.
    pub fn hello(&mut self) -> u64 {
        let hello = Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            ..Hello::default()
        };
        self.ask::<_, HelloReply>(Opcode::Hello, &hello).features
    }

    /// Loads a register.
    pub fn load(&mut self, register: Register) -> u32 {
        let request = Request {
            kind: RequestKind::Load as u32,
            register: register as u32,
            ..Request::default()
        };
        let mut none = SendAncillaryBuffer::default();
        let slices = [IoSlice::new(request.as_bytes())];
        sendmsg(&self.socket, &slices, &mut none, SendFlags::NOSIGNAL).unwrap();
        let (datagram, _) = self.receive();
        Event::read_from_bytes(&datagram).unwrap().argument
    }

    /// Executes one message, which has to succeed.
    pub fn ask<Q: IntoBytes + Immutable, P: FromBytes>(
        &mut self,
        opcode: Opcode,
        request: &Q,
    ) -> P {
        let reply = self.try_ask(opcode, request);
        reply.unwrap_or_else(|status| panic!("{opcode:?}: {status:?}"))
    }

    /// Executes one message. Returns its status if it fails.
    fn try_ask<Q: IntoBytes + Immutable, P: FromBytes>(
        &mut self,
        opcode: Opcode,
        request: &Q,
    ) -> Result<P, Status> {
        let mut batch = Batch::new();
        let bytes = batch.push(opcode, request).bytes_mut();
        let head = Request {
            kind: RequestKind::Batch as u32,
            value: bytes.len() as u32,
            ..Request::default()
        };
        let slices = [IoSlice::new(head.as_bytes()), IoSlice::new(bytes)];
        let mut none = SendAncillaryBuffer::default();
        sendmsg(&self.socket, &slices, &mut none, SendFlags::NOSIGNAL).unwrap();
        loop {
            let (datagram, descriptor) = self.receive();
            let (event, rest) = Event::read_from_prefix(&datagram).unwrap();
            if event.kind == EventKind::Reply as u32 {
                assert_eq!(event.argument, Status::Ok as u32);
                bytes.copy_from_slice(rest);
                break;
            }
            self.told.push((event, descriptor));
        }
        match batch.outcome(0).0.unwrap() {
            Status::Ok => Ok(batch.reply(0).unwrap()),
            status => Err(status),
        }
    }

    /// The descriptor that came with the last event of a kind.
    pub fn descriptor(&mut self, kind: EventKind) -> OwnedFd {
        let event = |(event, _): &(Event, _)| event.kind == kind as u32;
        let at = self.told.iter().rposition(event).unwrap();
        self.told.remove(at).1.unwrap()
    }

    /// Host memory.
    pub fn allocate(&mut self, size: u64) -> u32 {
        self.try_allocate(size).unwrap()
    }

    /// Host memory, or the status that refuses it.
    pub fn try_allocate(&mut self, size: u64) -> Result<u32, Status> {
        let request = Allocate {
            size,
            kind: MemoryKind::Host as u32,
            ..Allocate::default()
        };
        self.try_ask::<_, AllocateReply>(Opcode::Allocate, &request)
            .map(|reply| reply.handle)
    }

    /// Gives an allocation back.
    pub fn free(&mut self, handle: u32) {
        let request = HandleRequest {
            handle,
            ..HandleRequest::default()
        };
        self.ask::<_, Empty>(Opcode::Free, &request);
    }

    /// What the session may use at present.
    pub fn attributes(&mut self) -> Attributes {
        self.ask(Opcode::QueryAttributes, &Empty {})
    }

    /// The descriptor of an allocation that is mapped for the CPU.
    pub fn map(&mut self, allocation: u32, length: u64, access: Access) -> OwnedFd {
        let request = MapCpu {
            allocation,
            access: access.wire(),
            offset: 0,
            length,
        };
        self.ask::<_, AddressReply>(Opcode::MapCpu, &request);
        self.descriptor(EventKind::Place)
    }

    /// A command buffer.
    pub fn command_buffer(&mut self) -> Queue {
        let space = self.ask::<_, HandleReply>(Opcode::CreateSpace, &Empty {});
        let allocation = self.allocate(RING_BYTES);
        let request = CreateCommandBuffer {
            space: space.handle,
            allocation,
            length: RING_BYTES,
            ..CreateCommandBuffer::default()
        };
        self.ask::<_, CommandBufferReply>(Opcode::CreateCommandBuffer, &request);
        let doorbell = self.descriptor(EventKind::Bind);
        let file = self.map(allocation, RING_BYTES, Access::ReadWrite);
        let ring = SharedMemory::adopt(file, PageSize::Small).unwrap();
        let ring = ring.map(0, RING_BYTES, Access::ReadWrite).unwrap();
        Queue {
            producer: Producer::new(ring).unwrap(),
            doorbell,
        }
    }

    /// A datagram, with the descriptor that came along.
    fn receive(&self) -> (Vec<u8>, Option<OwnedFd>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = vec![0; 4096];
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let socket = self.socket.as_fd();
        let received = recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        // A server that hangs up before it has read what was sent resets the connection.
        let bytes = received.map_or(0, |received| received.bytes);
        let descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        let descriptor = descriptors.last();
        buffer.truncate(bytes);
        (buffer, descriptor)
    }
}
