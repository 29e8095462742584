//! The guest half of Causeway: a small typed API over the device's registers, messages and rings.
//!
//! ```text
//! Transport ── Device ─┬─ AddressSpace ─┬─ CommandBuffer
//!                      │                ├─ Module ── Kernel
//!                      │                ├─ Recorder ── Recording
//!                      │                ├─ Array, Texture
//!                      │                └─ Pool ── Piece
//!                      └─ Allocation ── GpuMapping, CpuMapping ── Fence
//! ```
//!
//! Setting things up ([`Device::call`], [`Batch`]) costs one exit per batch. Using them — loads and
//! stores through a [`CpuMapping`], packets in a [`CommandBuffer`], looking at a [`Fence`] — costs
//! none.
//!
//! The crate needs neither `std` nor an allocator. Where it runs is behind [`Transport`].
#![no_std]

#[cfg(test)]
extern crate std;

mod array;
mod barrier;
mod buffer;
mod clock;
mod command_buffer;
mod control;
mod device;
mod error;
#[cfg(test)]
mod fake;
mod fence;
mod memory;
#[cfg(test)]
mod model;
mod module;
mod object;
mod pace;
mod packets;
pub mod pci;
mod pool;
mod producer;
mod recording;
#[cfg(test)]
mod scenarios;
mod space;
mod staging;
mod transport;
mod window;

pub use array::{Array, ArrayDirection, Texture};
pub use barrier::Barrier;
pub use buffer::Buffer;
pub use causeway_protocol as protocol;
pub use causeway_protocol::Access;
pub use causeway_protocol::message::{MemoryKind, Operation, Status, operation};
pub use causeway_protocol::packet::{
    ArrayBox, CopyShape, FillShape, LaunchOptions, LaunchShape, RectSide, launch_flags,
};
pub use clock::{Clock, ticks};
pub use command_buffer::CommandBuffer;
pub use control::{Batch, Replies, Ticket};
pub use device::{
    Attributes, BusyTime, Device, DeviceFacts, ExportToken, FabricHandle, GpuNumbers, KernelFacts,
};
pub use error::{
    AllocateError, ArrayError, CommandBufferError, ExportError, FencePlaceError, FreeError,
    ImportError, KernelError, KernelIndexError, KernelName, MapError, ModuleError, OpenError,
    ParameterError, QueryError, RecordingError, Refusal, RegisterError, RemapError, SpaceError,
    SubmitError, TextureError, VariableError, WaitError,
};
pub use fence::{Fence, Patience};
pub use memory::{Allocation, CpuMapping, GpuMapping, PAGE_BYTES};
pub use module::{Kernel, Module, Parameters, RamRange, Variable};
pub use pace::Pace;
pub use pool::{
    ChunkPlace, ExportedPiece, GRANULE_BYTES, Piece, Pool, PoolError, PoolFreeError, PoolStorage,
};
pub use producer::{Producer, RingMemory, Unit};
pub use recording::{RecordError, Recorder, Recording};
pub use space::AddressSpace;
pub use staging::Staging;
pub use transport::{ControlArea, Sleeping, Transport};
pub use window::{AccessError, RingWindow, Window};
