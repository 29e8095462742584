//! Arrays: memory of the device, mapped where no allocation of a guest is.

use std::any::Any;
use std::sync::Arc;

use causeway_cpu_queue::{Entry, HostMemory};
use causeway_mediator::backend::{
    Array, ArrayCharge, ArrayShape, BackendError, Sampling, TextureSource,
};
use causeway_memory::{PAGE_BYTES, PageSize};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::space_state::SpaceState;
use crate::texture::{self, Image, Kind, Sampled, SoftwareTexture};

/// An array of an address space: its rows and slices follow each other in memory without gaps. It
/// is mapped until it is dropped; launches that have begun keep the memory.
#[derive(Debug)]
pub(crate) struct SoftwareArray {
    shape: ArrayShape,
    state: Arc<SpaceState>,
    /// GPU virtual address of the first element.
    address: u64,
    /// Bytes of memory and of addresses.
    bytes: u64,
}

impl SoftwareArray {
    /// Creates an array, filled with zeros.
    ///
    /// # Errors
    /// `NoMemory` if the device has too little memory left, or if the host has.
    pub(crate) fn new(
        state: &Arc<SpaceState>,
        shape: &ArrayShape,
        charge: ArrayCharge,
    ) -> Result<Self, BackendError> {
        let bytes = memory_bytes(shape);
        let pool = &state.device.pool;
        let of_device = pool.charge(bytes).ok_or_else(|| {
            let free = pool.free();
            let context =
                format!("create an array of {bytes} bytes: the device has {free} bytes left");
            BackendError::new(Status::NoMemory, context)
        })?;
        // Small pages are taken when they are first accessed: a guest that asks for much and uses
        // little does not exhaust the host.
        let memory = HostMemory::allocate(bytes, PageSize::Small).map_err(|e| {
            let context = format!("create an array of {bytes} bytes");
            BackendError::new(Status::NoMemory, context).because(e)
        })?;
        let memory = Arc::new(memory.charged((of_device, charge)));
        let address = state.arrays.lock().place(None, bytes)?;
        let array = Self {
            shape: *shape,
            state: Arc::clone(state),
            address,
            bytes,
        };
        let entry = Entry::new(address, memory, 0, bytes, Access::ReadWrite);
        let mapped = entry.is_some_and(|entry| state.mappings.change(|table| table.with(entry)));
        match mapped {
            true => Ok(array),
            false => Err(BackendError::new(
                Status::BackEnd,
                "map an array: its addresses are taken",
            )),
        }
    }

    /// Returns the array of this back end behind `array`, if it is one of the address space
    /// `state`.
    pub(crate) fn of<'a>(array: &'a Arc<dyn Array>, state: &Arc<SpaceState>) -> Option<&'a Self> {
        let array = array.as_any().downcast_ref::<Self>()?;
        Arc::ptr_eq(&array.state, state).then_some(array)
    }

    /// Returns the GPU virtual address of the first element.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for SoftwareArray {
    fn drop(&mut self) {
        let (state, address) = (&self.state, self.address);
        state.mappings.change(|table| table.without(address));
        state.arrays.lock().give(address, self.bytes);
    }
}

impl Array for SoftwareArray {
    fn shape(&self) -> &ArrayShape {
        &self.shape
    }

    fn memory_bytes(&self) -> u64 {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the memory that an array takes, in bytes: whole pages, at most 2^46 bytes.
pub(crate) fn memory_bytes(shape: &ArrayShape) -> u64 {
    shape.bytes().next_multiple_of(PAGE_BYTES)
}

/// Makes a texture or a surface.
///
/// # Errors
/// `BackEnd` if the array is not one of the address space.
pub(crate) fn create_texture(
    state: &Arc<SpaceState>,
    source: TextureSource<'_>,
    sampling: &Sampling,
) -> Result<SoftwareTexture, BackendError> {
    let image_of = |array| {
        let array = SoftwareArray::of(array, state).ok_or_else(|| {
            BackendError::new(Status::BackEnd, "use an array of another address space")
        })?;
        Ok(Image::of_array(&array.shape, array.address))
    };
    let (image, array) = match source {
        TextureSource::Array(array) | TextureSource::Surface(array) => {
            (image_of(array)?, Some(Arc::clone(array)))
        }
        TextureSource::Linear {
            address,
            bytes,
            element,
        } => {
            let count = bytes / u64::from(element.bytes());
            let image = Image {
                address,
                kind: Kind::Linear,
                size: [count.max(1), 1, 1],
                pitch: bytes,
                element,
            };
            (image, None)
        }
        TextureSource::Rows {
            address,
            width,
            height,
            pitch,
            element,
        } => {
            let image = Image {
                address,
                kind: Kind::Flat,
                size: [width.max(1), height.max(1), 1],
                pitch,
                element,
            };
            (image, None)
        }
    };
    let is_surface = matches!(source, TextureSource::Surface(_));
    let sampled = (!is_surface).then(|| Sampled::new(&image, sampling));
    let entry = texture::Entry { image, sampled };
    Ok(state.textures.add(entry, array))
}
