//! Address spaces of a back end.

use std::sync::Arc;

use causeway_protocol::Access;
use causeway_protocol::message::{EncodeTensorMap, Status, TENSOR_MAP_BYTES};

use super::{
    Array, ArrayCharge, ArrayShape, BackendError, Memory, Module, ModuleError, Queue, Recorded,
    Recording, Reservation, Sampling, Texture, TextureSource,
};

/// A GPU address space with its mappings, modules and queues. Any thread may call any method at any
/// time.
///
/// An implementation chooses the addresses of mappings itself. If its device lets it choose any
/// address, it can use [`crate::va::VaAllocator`] for that.
pub trait Space: Send + Sync {
    /// Maps `bytes` bytes of `memory`, from its byte `offset`, with the rights `access`: at GPU
    /// address `wanted`, or at any free address if `wanted` is `None`. Returns the address. The
    /// caller has checked that all numbers are multiples of 4 KiB, that the range is within the
    /// memory, and that `wanted - offset` is a multiple of the granularity.
    ///
    /// Of memory that is apart ([`Place::Apart`](super::Place::Apart)), only copies outside of
    /// recordings use the mapping. To all other work, and to [`Self::load_u64`], the addresses are
    /// not mapped.
    ///
    /// # Errors
    /// * `AddressInUse` if `wanted` is not free.
    /// * `Unsupported` if the memory cannot have these rights.
    /// * `NoMemory` if the space has no free addresses.
    /// * `BackEnd` if the driver fails.
    fn map(
        &self,
        wanted: Option<u64>,
        memory: &Arc<dyn Memory>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, BackendError>;

    /// Removes the mapping that begins at GPU address `va`. Work that began before may still access
    /// the memory; later work cannot.
    ///
    /// # Errors
    /// `BackEnd` if the driver fails; the mapping may then still exist.
    fn unmap(&self, va: u64) -> Result<(), BackendError>;

    /// Changes the access rights of the mapping that begins at GPU address `va` to `access`. Work
    /// that began before may still use the old rights.
    ///
    /// # Errors
    /// `Unsupported` if the memory cannot have these rights; the mapping then keeps its rights.
    /// `BackEnd` if the driver fails.
    fn set_access(&self, va: u64, access: Access) -> Result<(), BackendError>;

    /// Loads the GPU code in `image`, a private copy that the guest cannot change any more. Before
    /// the back end takes memory that the module keeps, it reserves that memory in `reservation`,
    /// as far as it knows the amount.
    ///
    /// # Errors
    /// [`ModuleError`], for the guest's log, if the image is not valid or needs more than the
    /// device or the session has.
    fn load_module(
        &self,
        image: &[u8],
        reservation: &mut Reservation,
    ) -> Result<Arc<dyn Module>, ModuleError>;

    /// Creates a queue that executes work in this address space, with a priority from
    /// [`Backend::greatest_priority`](super::Backend::greatest_priority) to 0, the least urgent.
    /// A back end without `features::PRIORITIES` gets 0.
    ///
    /// # Errors
    /// `NoMemory` if device or host have not enough memory, `BackEnd` if the driver fails.
    fn create_queue(&self, priority: i32) -> Result<Box<dyn Queue>, BackendError>;

    /// Creates a recording of `work`, which may be empty. Each
    /// [`Work::Replay`](super::Work::Replay) of the recording then submits the whole sequence at
    /// once. The recording keeps the `Arc`s of its kernels.
    /// Called only if the back end has `features::RECORDING`.
    ///
    /// # Errors
    /// * `BadLaunch` or `BadParameters` if the device cannot launch a kernel in this way.
    /// * `MemoryFault` if an address is not mapped now.
    /// * `NoMemory` if device or host have not enough memory.
    /// * `BackEnd` if the driver fails.
    fn record(&self, work: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError>;

    /// Reads the 64-bit fence at GPU address `va`; `None` if the address is not mapped for reading.
    fn load_u64(&self, va: u64) -> Option<u64>;

    /// Reads as [`Self::load_u64`] does, also where the CPU does not reach the memory. That takes
    /// some microseconds, or longer while the device is busy. Returns `None` also if `gives_up`
    /// returns true meanwhile; an implementation that waits asks it at least every millisecond. The
    /// default implementation suits back ends whose memory the CPU reaches.
    fn fetch_u64(&self, va: u64, gives_up: &dyn Fn() -> bool) -> Option<u64> {
        let _ = gives_up;
        self.load_u64(va)
    }

    /// Returns, and forgets, the oldest text that kernels in this address space have printed: at
    /// most `max` bytes. The back end keeps a bounded amount of text. The default implementation
    /// returns nothing: it suits back ends whose kernels cannot print.
    fn take_output(&self, max: usize) -> Vec<u8> {
        let _ = max;
        Vec::new()
    }

    /// Describes a tensor for the GPU. The kind of `request` is valid, and it has at most
    /// [`causeway_protocol::message::TENSOR_RANK_MAX`] dimensions. The default implementation suits
    /// back ends that are no GPU.
    ///
    /// # Errors
    /// `Unsupported` if the device does not read such descriptions, `MemoryFault` if the tensor's
    /// address is not zero and not mapped, `BackEnd` if the driver fails.
    fn encode_tensor_map(
        &self,
        request: &EncodeTensorMap,
    ) -> Result<TensorMapAnswer, BackendError> {
        let _ = request;
        Err(BackendError::new(
            Status::Unsupported,
            "describe a tensor for a device that copies no tensors",
        ))
    }

    /// Returns how many bytes of memory an array of this shape takes, which the session is charged
    /// for before it is created: not less than [`Array::memory_bytes`] will say. The default
    /// implementation suits back ends that keep elements without gaps.
    fn array_bytes(&self, shape: &ArrayShape) -> u64 {
        shape.bytes()
    }

    /// Drops what it can of arrays that the back end keeps after their end, and that sessions are
    /// charged for. Called before another array is charged for. Does nothing by default.
    fn reclaim_arrays(&self) {}

    /// Creates an array, filled with zeros, for which the session pays by `charge`. Called only if
    /// the back end has `features::ARRAYS`. The default implementation suits back ends without it.
    ///
    /// # Errors
    /// * `NoMemory` if device or host have not enough memory.
    /// * `Unsupported` if the device has no such array.
    /// * `BackEnd` if the driver fails.
    fn create_array(
        &self,
        shape: &ArrayShape,
        charge: ArrayCharge,
    ) -> Result<Arc<dyn Array>, BackendError> {
        let _ = (shape, charge);
        Err(no_arrays())
    }

    /// Makes a texture or a surface; `sampling` does not count for a surface. The array is one of
    /// this address space. Its addresses are those of memory that need not be mapped yet: a kernel
    /// that reads what is not mapped faults. Called only if the back end has `features::ARRAYS`.
    /// The default implementation suits back ends without it.
    ///
    /// # Errors
    /// * `Unsupported` if the device has no such texture.
    /// * `NoMemory` if device or host have not enough memory.
    /// * `BackEnd` if the driver fails.
    fn create_texture(
        &self,
        source: TextureSource<'_>,
        sampling: &Sampling,
    ) -> Result<Box<dyn Texture>, BackendError> {
        let _ = (source, sampling);
        Err(no_arrays())
    }
}

fn no_arrays() -> BackendError {
    let context = "create an array or a texture on a device that has none";
    BackendError::new(Status::Unsupported, context)
}

/// What the CUDA driver answers when it is asked to describe a tensor: a `CUresult`, and the
/// description, which is valid if the result is 0.
pub type TensorMapAnswer = (u32, [u8; TENSOR_MAP_BYTES]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Element, ElementFormat};

    /// A space that says no more than it must, and that has a word at one address.
    struct Plain;

    const ADDRESS: u64 = 0x1000;
    const WORD: u64 = 7;

    fn nothing<T>() -> Result<T, BackendError> {
        Err(BackendError::new(Status::Unsupported, "there is none"))
    }

    impl Space for Plain {
        fn map(
            &self,
            _: Option<u64>,
            _: &Arc<dyn Memory>,
            _: u64,
            _: u64,
            _: Access,
        ) -> Result<u64, BackendError> {
            nothing()
        }

        fn unmap(&self, _: u64) -> Result<(), BackendError> {
            nothing()
        }

        fn set_access(&self, _: u64, _: Access) -> Result<(), BackendError> {
            nothing()
        }

        fn load_module(
            &self,
            _: &[u8],
            _: &mut Reservation,
        ) -> Result<Arc<dyn Module>, ModuleError> {
            Err(ModuleError::new(0, "there is none"))
        }

        fn create_queue(&self, _: i32) -> Result<Box<dyn Queue>, BackendError> {
            nothing()
        }

        fn record(&self, _: &[Recorded]) -> Result<Arc<dyn Recording>, BackendError> {
            nothing()
        }

        fn load_u64(&self, va: u64) -> Option<u64> {
            (va == ADDRESS).then_some(WORD)
        }
    }

    #[test]
    fn what_a_space_does_not_say_is_what_suits_most() {
        // Its fences are those that the CPU reaches.
        assert_eq!(Plain.fetch_u64(ADDRESS, &|| false), Some(WORD));
        assert_eq!(Plain.fetch_u64(2 * ADDRESS, &|| false), None);
        let element = Element {
            format: ElementFormat::Unsigned16,
            channels: 2,
        };
        let shape = ArrayShape::new([8, 4, 0], element, 0).unwrap();
        assert_eq!(Plain.array_bytes(&shape), 8 * 4 * 4, "without gaps");
    }
}
