//! The CUDA driver library, in three levels: [`table`] has the entry points as they are; [`Driver`]
//! checks their results; the other modules own the objects that the driver creates, and wrap each
//! call so that no argument can break memory safety.
#![allow(
    unsafe_code,
    reason = "calls a C library; the rest of the crate uses only these wrappers"
)]

mod array;
mod chain;
mod context;
mod device;
mod error;
mod event;
mod graph;
mod green;
mod host;
mod library;
mod link;
mod module;
mod native;
mod nvml;
mod object;
mod physical;
mod range;
mod stream;
mod table;
mod tensor_map;
mod texture;
mod view;

pub(crate) use array::ArrayObject;
pub(crate) use chain::LaunchChain;
pub(crate) use context::Context;
pub(crate) use device::Device;
pub use error::CudaError;
pub(crate) use error::code;
pub(crate) use event::{Event, WaitOutcome};
pub(crate) use graph::ExecutableGraph;
pub(crate) use green::{GreenContext, Groups};
pub(crate) use host::Registration;
pub(crate) use library::Driver;
pub use library::LoadError;
pub(crate) use link::{LinkInput, LinkOptions, link};
pub(crate) use module::{JitFailure, KernelHandle, LoadedModule};
pub use native::{Native, NativeError, NativePeers, PairTrial, Speed, TrialError, try_pairs};
use object::Owned;
pub(crate) use physical::{Physical, PhysicalOptions};
pub(crate) use range::{MappedRange, Reservation};
pub(crate) use stream::{Launch, Stream, StreamMaker};
pub(crate) use tensor_map::encode as encode_tensor_map;
pub(crate) use texture::{Resource, TextureObject};
pub(crate) use view::DeviceView;
