//! Control operations, by subject. Each is a method of [`ClientSession`] that takes a decoded
//! request, with handles already resolved, and returns the reply.

mod execution;
mod fabric;
mod guest_memory;
mod mapping;
mod memory;
mod module;
mod notify;
mod query;
mod recording;
mod sharing;
mod texture;

use causeway_protocol::Access;
use causeway_protocol::message::{
    AddressReply, Allocate, AllocateReply, ArrayReply, Attributes, BusyReply, CommandBufferReply,
    CreateArray, CreateCommandBuffer, CreatePriorityCommandBuffer, CreateRecording, CreateTexture,
    DeviceFacts, Empty, EncodeTensorMap, Export, FabricHandle, FaultReport, GetKernel, GetKernelAt,
    GetVariable, GpusReply, HandleReply, HandleRequest, Hello, HelloReply, Import, ImportFabric,
    KernelFacts, KernelNameAt, KernelNameReply, KernelReply, LoadModule, LoadModuleReply, MapCpu,
    MapGpu, Notify, NotifyReply, Opcode, OutputReply, RegisterRam, SetAccess, SpaceAddress, Status,
    TensorMapReply, TextureReply, Token, VariableReply, Wait,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::client_session::ClientSession;
use crate::decode::{self, Previous};
use crate::refusal::Refusal;

/// A request, whose handles may refer to the previous message of the batch.
trait Request: FromBytes {
    fn resolve(&mut self, previous: &Previous) -> Result<(), Refusal>;
}

/// A reply, which may name a new object.
trait Reply: IntoBytes + Immutable {
    fn created(&self) -> Option<u32>;
}

macro_rules! requests {
    ($($type:ty: $($field:ident)*;)*) => {$(
        impl Request for $type {
            fn resolve(&mut self, previous: &Previous) -> Result<(), Refusal> {
                $(self.$field = previous.resolve(self.$field)?;)*
                let _ = previous;
                Ok(())
            }
        }
    )*};
}

macro_rules! replies {
    ($($type:ty: $($field:ident)?;)*) => {$(
        impl Reply for $type {
            fn created(&self) -> Option<u32> {
                None::<u32>$(.or(Some(self.$field)))?
            }
        }
    )*};
}

requests! {
    Empty: ;
    Hello: ;
    HandleRequest: handle;
    Allocate: ;
    MapGpu: space allocation;
    SpaceAddress: space;
    MapCpu: allocation;
    SetAccess: space;
    Export: allocation;
    Import: ;
    ImportFabric: ;
    Token: ;
    LoadModule: space;
    GetKernel: module;
    CreateCommandBuffer: space allocation;
    CreatePriorityCommandBuffer: space allocation;
    RegisterRam: ;
    Wait: space;
    CreateRecording: space;
    Notify: space;
    GetVariable: module;
    KernelNameAt: module;
    GetKernelAt: module;
    EncodeTensorMap: space;
    CreateArray: space;
    CreateTexture: space array;
}

replies! {
    Empty: ;
    HelloReply: ;
    Attributes: ;
    FaultReport: ;
    HandleReply: handle;
    AllocateReply: handle;
    AddressReply: ;
    Token: ;
    FabricHandle: ;
    LoadModuleReply: handle;
    KernelReply: handle;
    CommandBufferReply: handle;
    NotifyReply: ;
    DeviceFacts: ;
    VariableReply: ;
    KernelFacts: ;
    KernelNameReply: ;
    OutputReply: ;
    TensorMapReply: ;
    BusyReply: ;
    GpusReply: ;
    ArrayReply: handle;
    TextureReply: handle;
}

/// Executes a message whose framing and reserved fields were checked.
pub(crate) fn dispatch(
    session: &ClientSession<'_>,
    opcode: Opcode,
    body: &mut [u8],
    previous: &mut Previous,
) -> Result<(), Refusal> {
    match opcode {
        Opcode::Hello => call(body, previous, |r| session.hello(r)),
        Opcode::QueryAttributes => call(body, previous, |r| session.query_attributes(r)),
        Opcode::QueryFault => call(body, previous, |r| session.query_fault(r)),
        Opcode::CreateSpace => call(body, previous, |r| session.create_space(r)),
        Opcode::DestroySpace => call(body, previous, |r| session.destroy_space(r)),
        Opcode::Allocate => call(body, previous, |r| session.allocate(r)),
        Opcode::Free => call(body, previous, |r| session.free(r)),
        Opcode::MapGpu => call(body, previous, |r| session.map_gpu(r)),
        Opcode::UnmapGpu => call(body, previous, |r| session.unmap_gpu(r)),
        Opcode::MapCpu => call(body, previous, |r| session.map_cpu(r)),
        Opcode::UnmapCpu => call(body, previous, |r| session.unmap_cpu(r)),
        Opcode::SetAccess => call(body, previous, |r| session.set_access(r)),
        Opcode::Export => call(body, previous, |r| session.export(r)),
        Opcode::Import => call(body, previous, |r| session.import(r)),
        Opcode::Revoke => call(body, previous, |r| session.revoke(r)),
        Opcode::LoadModule => load_module(session, body, previous),
        Opcode::UnloadModule => call(body, previous, |r| session.unload_module(r)),
        Opcode::GetKernel => call(body, previous, |r| session.get_kernel(r)),
        Opcode::CreateCommandBuffer => call(body, previous, |r| session.create_command_buffer(r)),
        Opcode::CreatePriorityCommandBuffer => call(body, previous, |r| {
            session.create_priority_command_buffer(r)
        }),
        Opcode::DestroyCommandBuffer => call(body, previous, |r| session.destroy_command_buffer(r)),
        Opcode::RegisterRam => call(body, previous, |r| session.register_ram(r)),
        Opcode::Wait => call(body, previous, |r| session.wait(r)),
        Opcode::CreateRecording => call(body, previous, |r| session.create_recording(r)),
        Opcode::DestroyRecording => call(body, previous, |r| session.destroy_recording(r)),
        Opcode::Notify => call(body, previous, |r| session.notify(r)),
        Opcode::QueryDevice => call(body, previous, |r| session.query_device(r)),
        Opcode::GetVariable => call(body, previous, |r| session.get_variable(r)),
        Opcode::QueryKernel => call(body, previous, |r| session.query_kernel(r)),
        Opcode::KernelName => call(body, previous, |r| session.kernel_name(r)),
        Opcode::GetKernelAt => call(body, previous, |r| session.get_kernel_at(r)),
        Opcode::ReadOutput => call(body, previous, |r| session.read_output(r)),
        Opcode::EncodeTensorMap => call(body, previous, |r| session.encode_tensor_map(r)),
        Opcode::QueryBusy => call(body, previous, |r| session.query_busy(r)),
        Opcode::QueryGpus => call(body, previous, |r| session.query_gpus(r)),
        Opcode::ExportFabric => call(body, previous, |r| session.export_fabric(r)),
        Opcode::ImportFabric => call(body, previous, |r| session.import_fabric(r)),
        Opcode::CreateArray => call(body, previous, |r| session.create_array(r)),
        Opcode::DestroyArray => call(body, previous, |r| session.destroy_array(r)),
        Opcode::CreateTexture => call(body, previous, |r| session.create_texture(r)),
        Opcode::DestroyTexture => call(body, previous, |r| session.destroy_texture(r)),
    }
}

fn call<Q: Request, P: Reply>(
    body: &mut [u8],
    previous: &mut Previous,
    operation: impl FnOnce(Q) -> Result<P, Refusal>,
) -> Result<(), Refusal> {
    let mut request: Q = decode::request(body)?;
    request.resolve(previous)?;
    let reply = operation(request)?;
    // A question may have no object for an answer.
    if let Some(handle) = reply.created().filter(|handle| *handle != 0) {
        previous.set(handle);
    }
    decode::reply(body, &reply);
    Ok(())
}

/// Statuses of refused modules for which there may be a log.
const LOGGED: [Status; 4] = [
    Status::BadModule,
    Status::Unsupported,
    Status::QuotaBytes,
    Status::QuotaAllocations,
];

/// Loads a module: the only operation with a reply when it fails, the length of the log.
fn load_module(
    session: &ClientSession<'_>,
    body: &mut [u8],
    previous: &mut Previous,
) -> Result<(), Refusal> {
    let mut request: LoadModule = decode::request(body)?;
    request.resolve(previous)?;
    let mut log_bytes = 0;
    let loaded = session.load_module(request, &mut log_bytes);
    let has_log = |refusal: Refusal| LOGGED.contains(&refusal.status);
    if loaded.is_ok() || loaded.is_err_and(has_log) {
        let handle = loaded.unwrap_or(0);
        decode::reply(body, &LoadModuleReply { handle, log_bytes });
    }
    previous.set(loaded?);
    Ok(())
}

fn access(wire: u32) -> Result<Access, Refusal> {
    Access::from_wire(wire).ok_or(Refusal::new(Status::BadAccess))
}

/// Refuses numbers that are not multiples of `alignment`.
fn check_aligned(alignment: u64, numbers: &[u64]) -> Result<(), Refusal> {
    match numbers
        .iter()
        .all(|number| number.is_multiple_of(alignment))
    {
        true => Ok(()),
        false => Err(Refusal::with(Status::BadAlignment, alignment as u32)),
    }
}

/// The empty reply.
fn nothing() -> Result<Empty, Refusal> {
    Ok(Empty {})
}
