//! Textures and surfaces of guests.

use std::sync::Arc;

use causeway_mediator::backend::{Array, BackendError, Sampling, Texture, TextureSource};
use causeway_protocol::message::Status;

use crate::array::{CudaArray, unsupported_or_failed};
use crate::driver::{ArrayObject, Resource, TextureObject};
use crate::error::refused;
use crate::space::state::SpaceState;

/// The driver's object, and the array that it is made of, as the mediator passed it: the session is
/// charged for that array until the object has ended.
struct Parts {
    /// Dropped before its array.
    _object: TextureObject,
    _array: Option<Arc<dyn Array>>,
}

/// A texture or a surface of an address space.
pub(crate) struct CudaTexture {
    /// Taken out only by `drop`.
    parts: Option<Parts>,
    number: u64,
    state: Arc<SpaceState>,
}

impl CudaTexture {
    /// Makes a texture or a surface in the address space `state`. Addresses are not looked up: the
    /// driver follows none, and the GPU's page tables confine the kernels that do.
    ///
    /// # Errors
    /// * `Unsupported`: the device has no such texture.
    /// * `NoMemory`: device or host have not enough memory.
    /// * `BadHandle`: the array is one of another address space.
    /// * `DeviceLost`, `BackEnd`: the driver failed.
    pub(crate) fn create(
        state: &Arc<SpaceState>,
        source: TextureSource<'_>,
        sampling: &Sampling,
    ) -> Result<Self, BackendError> {
        let context = &state.maker.context;
        let texture = |resource| TextureObject::texture(context, resource, sampling);
        let (made, array) = match source {
            TextureSource::Array(array) => {
                let object = object_of(state, array)?;
                (texture(Resource::Array(object)), Some(array))
            }
            TextureSource::Surface(array) => {
                let object = object_of(state, array)?;
                (TextureObject::surface(context, object), Some(array))
            }
            TextureSource::Linear {
                address,
                bytes,
                element,
            } => {
                let row = Resource::Linear {
                    address,
                    bytes,
                    element,
                };
                (texture(row), None)
            }
            TextureSource::Rows {
                address,
                width,
                height,
                pitch,
                element,
            } => {
                let rows = Resource::Rows {
                    address,
                    width,
                    height,
                    pitch,
                    element,
                };
                (texture(rows), None)
            }
        };
        let object =
            made.map_err(|e| unsupported_or_failed(format!("make a texture of {source:?}"), e))?;
        Ok(Self {
            number: object.number(),
            parts: Some(Parts {
                _object: object,
                _array: array.cloned(),
            }),
            state: Arc::clone(state),
        })
    }
}

/// Returns the driver's array of an array of the context that the address space `state` works in.
fn object_of<'a>(
    state: &SpaceState,
    array: &'a Arc<dyn Array>,
) -> Result<&'a ArrayObject, BackendError> {
    let text = "make a texture of an array of another context";
    CudaArray::object_in(array, &state.maker.context)
        .ok_or_else(|| refused(Status::BadHandle, text))
}

impl Drop for CudaTexture {
    /// The object stays until work that began before, which may use it, is done: the driver would
    /// destroy it at once.
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            self.state.deferred.defer(Box::new(parts));
        }
    }
}

impl Texture for CudaTexture {
    fn object(&self) -> u64 {
        self.number
    }
}
