//! What messages ask for.

use super::body::{
    AddressReply, Allocate, AllocateReply, Attributes, CommandBufferReply, CreateCommandBuffer,
    CreateRecording, Empty, Export, FaultReport, FunctionReply, GetFunction, HandleReply,
    HandleRequest, Header, Hello, HelloReply, Import, LoadModule, LoadModuleReply, MapCpu, MapGpu,
    Notify, NotifyReply, RegisterRam, SetAccess, SpaceAddress, Token, Wait,
};
use crate::wire::Value;

macro_rules! opcodes {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal, $request:ident => $reply:ident;)*) => {
        /// What a message asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Opcode { $($(#[doc = $doc])* $name = $value,)* }

        /// Every opcode, for tables and tests.
        pub const OPCODES: &[Opcode] = &[$(Opcode::$name,)*];

        /// The opcodes with their meaning, for the documentation.
        pub const OPCODE_VALUES: &[Value] =
            &[$(Value { name: stringify!($name), doc: concat!($($doc,)*), value: $value },)*];

        impl Opcode {
            /// Decodes the wire value.
            pub const fn from_wire(value: u16) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }

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
    /// Copy packets out of guest RAM, so that they can be replayed as one (since 1.1). If a packet is refused, the detail
    /// is its offset in bytes.
    CreateRecording = 23, "create_recording", CreateRecording => HandleReply;
    /// End a recording; replays under way are finished (since 1.1).
    DestroyRecording = 24, "destroy_recording", HandleRequest => Empty;
    /// Raise the client's interrupt once a fence has reached a value (since 1.2). It is raised once; a fence that is there
    /// already raises none, as the reply says. Of several values of one fence the smallest counts. The wish is forgotten
    /// with the client. The end of the fence's mapping or space, or the loss of the session, raises it.
    Notify = 25, "notify", Notify => NotifyReply;
}

/// Bytes of a whole message of this opcode: head and body.
pub const fn message_bytes(opcode: Opcode) -> usize {
    let (request, reply) = (opcode.request_bytes(), opcode.reply_bytes());
    size_of::<Header>() + if request > reply { request } else { reply }
}
