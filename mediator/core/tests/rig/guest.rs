//! What a guest asks for, wherever its session is.

use std::sync::Arc;
use std::time::Duration;

use causeway_mediator::{Client, GuestSession, Session};
use causeway_mediator_testing::{FakeHost, ask_as};
use causeway_memory::Mapping;
use causeway_protocol::message::*;
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR, ring};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::queue::Queue;

pub const READ: u32 = 1;
pub const READ_WRITE: u32 = 3;
pub const PAGE: u64 = 4096;
pub const RAM_BYTES: u64 = 1 << 20;
/// Where packets to record are put in guest RAM.
pub const RECORDING_ADDRESS: u64 = 0x4_0000;
pub const RING_BYTES: u64 = ring::ring_bytes(256);

pub type Refused = (Status, u32);

/// A guest with an open session, wherever that is.
pub struct Guest<S = Session> {
    pub host: Arc<FakeHost>,
    pub session: Arc<S>,
    pub client: Client,
}

impl<S: GuestSession> Guest<S> {
    /// The first client of a guest, that has said hello.
    pub fn new(host: Arc<FakeHost>, session: Arc<S>) -> Self {
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

    /// Ends what this client has.
    pub fn reset(&self) {
        self.session.reset_client(self.client);
    }

    /// Whether this client owns something.
    pub fn owns(&self) -> bool {
        self.session.owners() & self.client.bit() != 0
    }

    /// Asks for an interrupt; whether there will be one.
    pub fn notify(&self, space: u32, address: u64, value: u64) -> Result<bool, Refused> {
        let request = Notify {
            space,
            address,
            value,
            ..Notify::default()
        };
        let reply: NotifyReply = self.ask(Opcode::Notify, &request)?;
        Ok(reply.reached == 0)
    }

    pub fn hello(&self) -> HelloReply {
        let hello = Hello {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR,
            ..Hello::default()
        };
        self.ask(Opcode::Hello, &hello).unwrap()
    }

    pub fn space(&self) -> u32 {
        self.try_space().unwrap()
    }

    pub fn try_space(&self) -> Result<u32, Refused> {
        let reply: HandleReply = self.ask(Opcode::CreateSpace, &Empty {})?;
        Ok(reply.handle)
    }

    pub fn allocate(&self, kind: MemoryKind, size: u64) -> Result<AllocateReply, Refused> {
        let request = Allocate {
            size,
            kind: kind as u32,
            ..Allocate::default()
        };
        self.ask(Opcode::Allocate, &request)
    }

    pub fn memory(&self, kind: MemoryKind, size: u64) -> u32 {
        self.allocate(kind, size).unwrap().handle
    }

    pub fn by_handle(&self, opcode: Opcode, handle: u32) -> Result<(), Refused> {
        let request = HandleRequest {
            handle,
            ..HandleRequest::default()
        };
        self.ask::<_, Empty>(opcode, &request).map(drop)
    }

    pub fn free(&self, handle: u32) -> Result<(), Refused> {
        self.by_handle(Opcode::Free, handle)
    }

    pub fn map_gpu(
        &self,
        space: u32,
        allocation: u32,
        length: u64,
        access: u32,
    ) -> Result<u64, Refused> {
        self.map_gpu_at(MapGpu {
            space,
            allocation,
            length,
            access,
            ..MapGpu::default()
        })
    }

    pub fn map_gpu_at(&self, request: MapGpu) -> Result<u64, Refused> {
        let reply: AddressReply = self.ask(Opcode::MapGpu, &request)?;
        Ok(reply.address)
    }

    pub fn map_cpu(
        &self,
        allocation: u32,
        offset: u64,
        length: u64,
        access: u32,
    ) -> Result<u64, Refused> {
        let request = MapCpu {
            allocation,
            access,
            offset,
            length,
        };
        let reply: AddressReply = self.ask(Opcode::MapCpu, &request)?;
        Ok(reply.address)
    }

    pub fn unmap(&self, opcode: Opcode, space: u32, address: u64) -> Result<(), Refused> {
        let request = SpaceAddress {
            space,
            address,
            ..SpaceAddress::default()
        };
        self.ask::<_, Empty>(opcode, &request).map(drop)
    }

    pub fn set_access(&self, space: u32, address: u64, access: u32) -> Result<(), Refused> {
        let request = SetAccess {
            space,
            access,
            address,
        };
        self.ask::<_, Empty>(Opcode::SetAccess, &request).map(drop)
    }

    pub fn export(&self, allocation: u32, access: u32) -> Result<Token, Refused> {
        self.export_to(allocation, access, 0)
    }

    pub fn export_to(&self, allocation: u32, access: u32, gpus: u64) -> Result<Token, Refused> {
        let request = Export {
            allocation,
            access,
            gpus,
        };
        self.ask(Opcode::Export, &request)
    }

    pub fn import(&self, token: &Token, access: u32) -> Result<AllocateReply, Refused> {
        let request = Import {
            token: token.token,
            access,
            ..Import::default()
        };
        self.ask(Opcode::Import, &request)
    }

    pub fn revoke(&self, token: &Token) -> Result<(), Refused> {
        self.ask::<_, Empty>(Opcode::Revoke, token).map(drop)
    }

    pub fn wait(
        &self,
        space: u32,
        address: u64,
        value: u64,
        timeout: Duration,
    ) -> Result<(), Refused> {
        let request = Wait {
            space,
            address,
            value,
            timeout_ns: timeout.as_nanos() as u64,
            ..Wait::default()
        };
        self.ask::<_, Empty>(Opcode::Wait, &request).map(drop)
    }

    /// Loads a module whose text is put into guest RAM at `address`.
    pub fn load_module(&self, space: u32, text: &str, address: u64) -> Result<u32, Refused> {
        self.host
            .ram_mapping()
            .write(address, text.as_bytes())
            .unwrap();
        let request = LoadModule {
            space,
            image_address: address,
            image_bytes: text.len() as u64,
            ..LoadModule::default()
        };
        let reply: LoadModuleReply = self.ask(Opcode::LoadModule, &request)?;
        Ok(reply.handle)
    }

    pub fn kernel(&self, module: u32, name: &str) -> Result<KernelReply, Refused> {
        let mut request = GetKernel {
            module,
            name_bytes: name.len() as u32,
            ..GetKernel::default()
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        self.ask(Opcode::GetKernel, &request)
    }

    pub fn variable(&self, module: u32, name: &str) -> Result<VariableReply, Refused> {
        let mut request = GetVariable {
            module,
            name_bytes: name.len() as u32,
            ..GetVariable::default()
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        self.ask(Opcode::GetVariable, &request)
    }

    /// Records packets, which are put into guest RAM at [`RECORDING_ADDRESS`].
    pub fn record(&self, space: u32, packets: &[&[u8]]) -> Result<u32, Refused> {
        let bytes = packets.concat();
        let ram = self.host.ram_mapping();
        ram.write(RECORDING_ADDRESS, &bytes).unwrap();
        self.record_at(space, RECORDING_ADDRESS, bytes.len() as u64)
    }

    /// Records what lies in guest RAM at `address`.
    pub fn record_at(&self, space: u32, address: u64, bytes: u64) -> Result<u32, Refused> {
        let request = CreateRecording {
            space,
            address,
            bytes,
            ..CreateRecording::default()
        };
        let reply: HandleReply = self.ask(Opcode::CreateRecording, &request)?;
        Ok(reply.handle)
    }

    pub fn attributes(&self) -> Attributes {
        self.ask(Opcode::QueryAttributes, &Empty {}).unwrap()
    }

    pub fn fault(&self) -> (Option<Status>, String) {
        let report: FaultReport = self.ask(Opcode::QueryFault, &Empty {}).unwrap();
        let text = &report.text[..report.text_bytes as usize];
        let text = String::from_utf8(text.to_vec()).unwrap();
        (Status::from_wire(report.status), text)
    }

    /// A command buffer of 256 units in memory of its own.
    pub fn command_buffer(&self, space: u32) -> Queue {
        self.try_command_buffer(space).unwrap()
    }

    pub fn try_command_buffer(&self, space: u32) -> Result<Queue, Refused> {
        self.try_ring(space, RING_BYTES)
    }

    /// A command buffer with a ring of so many bytes.
    pub fn try_ring(&self, space: u32, bytes: u64) -> Result<Queue, Refused> {
        let memory = self.memory(MemoryKind::Host, bytes);
        let request = CreateCommandBuffer {
            space,
            allocation: memory,
            length: bytes,
            ..CreateCommandBuffer::default()
        };
        let reply: CommandBufferReply = self.ask(Opcode::CreateCommandBuffer, &request)?;
        let offset = self.map_cpu(memory, 0, bytes, READ_WRITE).unwrap();
        Ok(Queue::new(&self.host, &reply, memory, offset))
    }

    /// Memory mapped for the GPU and for the CPU: GPU address and the CPU's view.
    pub fn buffer(&self, space: u32, bytes: u64) -> (u64, Mapping) {
        let memory = self.memory(MemoryKind::Host, bytes);
        let va = self.map_gpu(space, memory, bytes, READ_WRITE).unwrap();
        let offset = self.map_cpu(memory, 0, bytes, READ_WRITE).unwrap();
        (va, self.host.map(offset).unwrap())
    }
}
