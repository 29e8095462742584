//! What messages ask for: the one table of control operations.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::body::{
    AddressReply, Allocate, AllocateReply, Attributes, BusyReply, CommandBufferReply,
    CreateCommandBuffer, CreatePriorityCommandBuffer, CreateRecording, DeviceFacts, Empty, Export,
    FabricHandle, FaultReport, GpusReply, HandleReply, HandleRequest, Header, Hello, HelloReply,
    Import, ImportFabric, MapCpu, MapGpu, Notify, NotifyReply, RegisterRam, SetAccess,
    SpaceAddress, Token, Wait,
};
use super::code::{
    EncodeTensorMap, GetKernel, GetKernelAt, GetVariable, KernelFacts, KernelNameAt,
    KernelNameReply, KernelReply, LoadModule, LoadModuleReply, OutputReply, TensorMapReply,
    VariableReply,
};
use super::texture::{ArrayReply, CreateArray, CreateTexture, TextureReply};
use crate::wire::wire_enum;

/// Associates a control operation with its opcode and the structures of its request and its reply.
pub trait Operation: Copy {
    /// Opcode of the operation's messages.
    const OPCODE: Opcode;
    /// Structure of the request.
    type Request: IntoBytes + Immutable;
    /// Structure of the reply.
    type Reply: FromBytes + IntoBytes;
}

macro_rules! opcodes {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident = $value:literal, $text:literal, $request:ident => $reply:ident;
    )*) => {
        wire_enum! {
            /// Control operations, with the numbers that stand for them in messages.
            pub enum Opcode: u16 { $($(#[doc = $doc])* $name = $value,)* }
        }

        impl Opcode {
            /// Returns the short name of the operation in reports, logs and the documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the size of the operation's request structure in bytes.
            pub const fn request_bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$request>(),)* }
            }

            /// Returns the size of the operation's reply structure in bytes.
            pub const fn reply_bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$reply>(),)* }
            }

            /// Returns the names of the operation's request and reply structures, for the
            /// documentation.
            pub const fn structures(self) -> (&'static str, &'static str) {
                match self { $(Self::$name => (stringify!($request), stringify!($reply)),)* }
            }
        }

        /// One type for each control operation, with the name of its opcode. By the trait
        /// [`Operation`], each type says which structures its request and reply have.
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
    /// First message of a session: guest and host agree on a version.
    Hello = 1, "hello", Hello => HelloReply;
    /// Return what the device is and what this session may use.
    QueryAttributes = 2, "query_attributes", Empty => Attributes;
    /// Return the fault that caused the session to be lost.
    QueryFault = 3, "query_fault", Empty => FaultReport;
    /// Create a GPU address space.
    CreateSpace = 4, "create_space", Empty => HandleReply;
    /// End an address space with its mappings, modules and command buffers.
    DestroySpace = 5, "destroy_space", HandleRequest => Empty;
    /// Allocate memory, filled with zeros.
    Allocate = 6, "allocate", Allocate => AllocateReply;
    /// Free an allocation with all its mappings in this session.
    Free = 7, "free", HandleRequest => Empty;
    /// Map an allocation, or a part of one, at a GPU virtual address.
    MapGpu = 8, "map_gpu", MapGpu => AddressReply;
    /// End a mapping at a GPU virtual address.
    UnmapGpu = 9, "unmap_gpu", SpaceAddress => Empty;
    /// Map an allocation, or a part of one, into the aperture.
    MapCpu = 10, "map_cpu", MapCpu => AddressReply;
    /// End a mapping in the aperture.
    UnmapCpu = 11, "unmap_cpu", SpaceAddress => Empty;
    /// Change the access rights of a mapping at a GPU virtual address or in the aperture.
    SetAccess = 12, "set_access", SetAccess => Empty;
    /// Create a token by which another session can import an allocation.
    Export = 13, "export", Export => Token;
    /// Get access to another session's allocation by its token.
    Import = 14, "import", Import => AllocateReply;
    /// End an export and all imports made from it.
    Revoke = 15, "revoke", Token => Empty;
    /// Load a module into an address space.
    LoadModule = 16, "load_module", LoadModule => LoadModuleReply;
    /// Unload a module.
    UnloadModule = 17, "unload_module", HandleRequest => Empty;
    /// Look a kernel up by its name, and return the layout of its parameters.
    GetKernel = 18, "get_kernel", GetKernel => KernelReply;
    /// Create a command buffer in host memory that the guest can write.
    CreateCommandBuffer = 19, "create_command_buffer", CreateCommandBuffer => CommandBufferReply;
    /// Destroy a command buffer. Packets that have not been executed are dropped.
    DestroyCommandBuffer = 20, "destroy_command_buffer", HandleRequest => Empty;
    /// Register guest RAM, so that it can be mapped for the GPU like an allocation.
    RegisterRam = 21, "register_ram", RegisterRam => AllocateReply;
    /// Sleep until a fence reaches a value.
    Wait = 22, "wait", Wait => Empty;
    /// Copy packets from guest RAM or the aperture into a recording, so that one packet can replay
    /// all of them (since 1.1). If a packet is refused, the detail is the packet's offset in bytes.
    CreateRecording = 23, "create_recording", CreateRecording => HandleReply;
    /// Destroy a recording. The device finishes replays that it has begun (since 1.1).
    DestroyRecording = 24, "destroy_recording", HandleRequest => Empty;
    /// Raise the client's interrupt, once, when a fence has reached a value (since 1.2). If the
    /// fence has already reached the value, the reply says so and no interrupt is raised. Of
    /// several requests for one fence, the smallest value counts. The interrupt is also raised when
    /// the fence's mapping or address space ends, or the session is lost. A reset of the client
    /// cancels its requests.
    Notify = 25, "notify", Notify => NotifyReply;
    /// Return what identifies the device, and its CUDA device attributes (since 1.3).
    QueryDevice = 26, "query_device", Empty => DeviceFacts;
    /// Look a variable of a module up by its name. The address can be used in packets until the
    /// module is unloaded (since 1.3).
    GetVariable = 27, "get_variable", GetVariable => VariableReply;
    /// Return the CUDA attributes of a kernel (since 1.3).
    QueryKernel = 28, "query_kernel", HandleRequest => KernelFacts;
    /// Return a part of the name of a module's kernel, which is given by its index. The kernels
    /// of a module are in the order of their names (since 1.3).
    KernelName = 29, "kernel_name", KernelNameAt => KernelNameReply;
    /// Look a kernel up by its index, whatever its name is, and return the layout of its parameters
    /// (since 1.3).
    GetKernelAt = 30, "get_kernel_at", GetKernelAt => KernelReply;
    /// Return, and forget, text that kernels of an address space have printed, or on a GPU those of
    /// the session (since 1.3).
    ReadOutput = 31, "read_output", HandleRequest => OutputReply;
    /// Describe a tensor for the GPU, as the CUDA driver does (since 1.3).
    EncodeTensorMap = 32, "encode_tensor_map", EncodeTensorMap => TensorMapReply;
    /// Return how long the session has had work under way on the GPU, for monitors (since 1.3).
    QueryBusy = 33, "query_busy", Empty => BusyReply;
    /// Create a command buffer as `create_command_buffer` does, whose work has a priority. The
    /// device begins pending blocks of more urgent kernels first; it interrupts none. The session
    /// must have the feature [`crate::registers::features::PRIORITIES`] (since 1.4).
    CreatePriorityCommandBuffer = 34, "create_priority_command_buffer",
        CreatePriorityCommandBuffer => CommandBufferReply;
    /// Return the number of the session's GPU, and how the other GPUs reach its memory (since 1.4).
    QueryGpus = 35, "query_gpus", Empty => GpusReply;
    /// Return the fabric handle of an allocation of this session that was made with
    /// [`crate::message::allocate_flags::FABRIC`]. Every process that has the handle, on any machine
    /// of the NVLink fabric, can import the memory. Neither `revoke` nor `free` takes that back. The
    /// session must have the feature [`crate::registers::features::FABRIC_EXPORT`] (since 1.4).
    ExportFabric = 36, "export_fabric", HandleRequest => FabricHandle;
    /// Get access to memory of another process or machine by its fabric handle. The memory counts
    /// as memory of this session. The session must have the feature
    /// [`crate::registers::features::FABRIC_IMPORT`] (since 1.4).
    ImportFabric = 37, "import_fabric", ImportFabric => AllocateReply;
    /// Create an array, filled with zeros: elements in an order that only the device knows. Packets
    /// copy between it and memory; kernels access it by textures and surfaces. The session must
    /// have the feature [`crate::registers::features::ARRAYS`] (since 1.5).
    CreateArray = 38, "create_array", CreateArray => ArrayReply;
    /// Destroy an array. Textures and surfaces of it stay (since 1.5).
    DestroyArray = 39, "destroy_array", HandleRequest => Empty;
    /// Make a texture or a surface, by which kernels access an array or memory. The session must
    /// have the feature [`crate::registers::features::ARRAYS`] (since 1.5).
    CreateTexture = 40, "create_texture", CreateTexture => TextureReply;
    /// Destroy a texture or a surface. Kernels that still use it fault (since 1.5).
    DestroyTexture = 41, "destroy_texture", HandleRequest => Empty;
}

/// All control operations, for tables and tests.
pub const OPCODES: &[Opcode] = Opcode::ALL;

/// Returns the length in bytes of a message with this opcode: the header, and the larger of request
/// and reply.
pub const fn message_bytes(opcode: Opcode) -> usize {
    let (request, reply) = (opcode.request_bytes(), opcode.reply_bytes());
    size_of::<Header>() + if request > reply { request } else { reply }
}
