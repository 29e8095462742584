//! What messages ask for: the one table of control operations.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::body::{
    AddressReply, Allocate, AllocateReply, Attributes, CommandBufferReply, CreateCommandBuffer,
    CreateRecording, Empty, Export, FaultReport, FunctionReply, GetFunction, HandleReply,
    HandleRequest, Header, Hello, HelloReply, Import, LoadModule, LoadModuleReply, MapCpu, MapGpu,
    Notify, NotifyReply, RegisterRam, SetAccess, SpaceAddress, Token, Wait,
};
use crate::wire::wire_enum;

/// A control operation as a type: its opcode, and the bodies of its request and its reply.
pub trait Operation {
    /// Opcode.
    const OPCODE: Opcode;
    /// Body of the request.
    type Request: IntoBytes + Immutable;
    /// Body of the reply.
    type Reply: FromBytes + IntoBytes;
}

macro_rules! opcodes {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal, $request:ident => $reply:ident;)*) => {
        wire_enum! {
            /// What a message asks for.
            pub enum Opcode: u16 { $($(#[doc = $doc])* $name = $value,)* }
        }

        impl Opcode {
            /// Short name, as reports, logs and the documentation print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Bytes of a request body.
            pub const fn request_bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$request>(),)* }
            }

            /// Bytes of a reply body.
            pub const fn reply_bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$reply>(),)* }
            }

            /// Names of the request and reply structures, for the documentation.
            pub const fn structures(self) -> (&'static str, &'static str) {
                match self { $(Self::$name => (stringify!($request), stringify!($reply)),)* }
            }
        }

        /// The control operations as types. Each has the name of its opcode.
        pub mod operation {
            use super::{Opcode, Operation};

            $(
                $(#[doc = $doc])*
                #[derive(Clone, Copy, Debug)]
                pub enum $name {}

                impl Operation for $name {
                    const OPCODE: Opcode = Opcode::$name;
                    type Request = super::$request;
                    type Reply = super::$reply;
                }
            )*
        }

        $(const _: () = {
            assert!(size_of::<$request>().is_multiple_of(8));
            assert!(size_of::<$reply>().is_multiple_of(8));
        };)*
    };
}

opcodes! {
    /// First message of a session: agree on a version.
    Hello = 1, "hello", Hello => HelloReply;
    /// What the device is, and what this session may use.
    QueryAttributes = 2, "query_attributes", Empty => Attributes;
    /// What ended the session.
    QueryFault = 3, "query_fault", Empty => FaultReport;
    /// New GPU address space.
    CreateSpace = 4, "create_space", Empty => HandleReply;
    /// End an address space, its mappings, modules and command buffers.
    DestroySpace = 5, "destroy_space", HandleRequest => Empty;
    /// New allocation, zeroed.
    Allocate = 6, "allocate", Allocate => AllocateReply;
    /// Give an allocation up, with every mapping of it in this session.
    Free = 7, "free", HandleRequest => Empty;
    /// Map (a part of) an allocation at a GPU virtual address.
    MapGpu = 8, "map_gpu", MapGpu => AddressReply;
    /// End a GPU mapping.
    UnmapGpu = 9, "unmap_gpu", SpaceAddress => Empty;
    /// Map (a part of) an allocation into the aperture.
    MapCpu = 10, "map_cpu", MapCpu => AddressReply;
    /// End an aperture mapping.
    UnmapCpu = 11, "unmap_cpu", SpaceAddress => Empty;
    /// Change the access rights of a GPU or an aperture mapping.
    SetAccess = 12, "set_access", SetAccess => Empty;
    /// Make a token with which another session can import an allocation.
    Export = 13, "export", Export => Token;
    /// Allocation of another session, by token.
    Import = 14, "import", Import => AllocateReply;
    /// Take an export back, with every import made from it.
    Revoke = 15, "revoke", Token => Empty;
    /// Load a module into an address space.
    LoadModule = 16, "load_module", LoadModule => LoadModuleReply;
    /// Unload a module.
    UnloadModule = 17, "unload_module", HandleRequest => Empty;
    /// Look a kernel up by name; gives its parameter layout.
    GetFunction = 18, "get_function", GetFunction => FunctionReply;
    /// Make a command buffer out of host memory that the guest can write.
    CreateCommandBuffer = 19, "create_command_buffer", CreateCommandBuffer => CommandBufferReply;
    /// End a command buffer; packets not yet executed are dropped.
    DestroyCommandBuffer = 20, "destroy_command_buffer", HandleRequest => Empty;
    /// Register guest RAM, so that it can be mapped for the GPU like an allocation.
    RegisterRam = 21, "register_ram", RegisterRam => AllocateReply;
    /// Sleep until a fence reaches a value.
    Wait = 22, "wait", Wait => Empty;
    /// Copy packets out of guest RAM, so that they can be replayed as one (since 1.1). If a packet
    /// is refused, the detail is its offset in bytes.
    CreateRecording = 23, "create_recording", CreateRecording => HandleReply;
    /// End a recording; replays under way are finished (since 1.1).
    DestroyRecording = 24, "destroy_recording", HandleRequest => Empty;
    /// Raise the client's interrupt once a fence has reached a value (since 1.2). It is raised
    /// once; a fence that is there already raises none, as the reply says. Of several values of one
    /// fence the smallest counts. The wish is forgotten with the client. The end of the fence's
    /// mapping or space, or the loss of the session, raises it.
    Notify = 25, "notify", Notify => NotifyReply;
}

/// Every opcode, for tables and tests.
pub const OPCODES: &[Opcode] = Opcode::ALL;

/// Returns the length of a whole message with this opcode: header and body, in bytes.
pub const fn message_bytes(opcode: Opcode) -> usize {
    let (request, reply) = (opcode.request_bytes(), opcode.reply_bytes());
    size_of::<Header>() + if request > reply { request } else { reply }
}
