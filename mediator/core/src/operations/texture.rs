//! Arrays, textures and surfaces.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_protocol::message::{
    ArrayReply, CreateArray, CreateTexture, Empty, HandleRequest, Status, TextureReply,
    TextureSource as Kind, array_flags, texture_flags,
};
use causeway_protocol::packet::PITCH_MAX;
use causeway_protocol::registers::features;
use parking_lot::MutexGuard;

use super::nothing;
use crate::backend::{
    AddressMode, Array, ArrayCharge, ArrayShape, Element, Sampling, TextureCharge, TextureSource,
};
use crate::client_session::{ClientSession, OpenSpace};
use crate::object::{ArrayEntry, Object, SpaceEntry, TextureEntry};
use crate::quota::Resource;
use crate::refusal::{Refusal, refuse_if};

/// Most elements of a texture of one row of memory (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
const LINEAR_ELEMENTS_MAX: u64 = 1 << 28;
/// Most elements in a row, and most rows, of a texture of rows of memory (as above).
const ROWS_SIZE_MAX: [u64; 2] = [131_072, 65_000];
/// How long a wait for the turn to create an array goes on between two looks at whether it is
/// over.
const TURN_LOOK: Duration = Duration::from_millis(20);
/// Largest anisotropy of a texture.
const ANISOTROPY_MAX: u32 = 16;

impl ClientSession<'_> {
    /// Creates without the session's lock: filling a large array with zeros takes long.
    pub(super) fn create_array(&self, request: CreateArray) -> Result<ArrayReply, Refusal> {
        self.require(features::ARRAYS)?;
        let space = self.open_space(request.space)?;
        let size = [request.width, request.height, request.depth];
        let shape = Element::from_wire(request.format, request.channels)
            .and_then(|element| ArrayShape::new(size, element, request.flags))
            .ok_or(Refusal::new(Status::BadRange))?;
        let bytes = space.shared.backend.array_bytes(&shape);
        space.shared.backend.reclaim_arrays();
        // Before anything is taken: an array that is filled with zeros may exist for long.
        let charge: ArrayCharge = Arc::new([
            self.account.charge(Resource::Objects, 1)?,
            self.account.charge(Resource::Allocations, 1)?,
            self.account.charge(Resource::MemoryBytes, bytes)?,
        ]);
        let array = {
            let _turn = self.turn_to_fill(&space)?;
            space.shared.backend.create_array(&shape, charge)?
        };
        let mut state = self.lock_with(&space)?;
        let handle = state.insert(Object::Array(ArrayEntry {
            space: request.space,
        }))?;
        space.shared.arrays.add(handle, array);
        Ok(ArrayReply {
            handle,
            reserved: 0,
            bytes,
        })
    }

    /// Waits for the turn to create an array. A back end may fill it from memory that no quota
    /// counts: one at a time, so that this does not multiply with the session's clients.
    fn turn_to_fill(&self, space: &OpenSpace) -> Result<MutexGuard<'_, ()>, Refusal> {
        loop {
            let turn = self.array_fill.try_lock_for(TURN_LOOK);
            // The fill of another may take as long as a kernel that fills the device.
            refuse_if(self.is_over(&space.epoch), Status::DeviceLost)?;
            if let Some(turn) = turn {
                return Ok(turn);
            }
            refuse_if(self.interrupted.load(Ordering::SeqCst), Status::DeviceLost)?;
        }
    }

    /// Copies under way and textures hold the array and its charges until they end.
    pub(super) fn destroy_array(&self, request: HandleRequest) -> Result<Empty, Refusal> {
        let array = {
            let mut state = self.lock();
            let entry = state.get::<ArrayEntry>(request.handle)?;
            let space = Arc::clone(&state.get::<SpaceEntry>(entry.space)?.shared);
            state.remove(request.handle);
            space.arrays.remove(request.handle)
        };
        // This may be the last reference.
        drop(array);
        nothing()
    }

    pub(super) fn create_texture(&self, request: CreateTexture) -> Result<TextureReply, Refusal> {
        self.require(features::ARRAYS)?;
        let space = self.open_space(request.space)?;
        let array = match request.array {
            0 => None,
            handle => {
                // Arrays of other clients are theirs.
                self.lock().get::<ArrayEntry>(handle)?;
                let array = space.shared.arrays.get(handle);
                Some(array.ok_or(Refusal::bad_handle(handle))?)
            }
        };
        let bad_range = Refusal::new(Status::BadRange);
        let source = source(&request, array.as_ref()).ok_or(bad_range)?;
        let sampling = sampling(&request).ok_or(bad_range)?;
        let is_surface = matches!(source, TextureSource::Surface(_));
        refuse_if(
            is_surface && sampling != Sampling::plain(),
            Status::BadRange,
        )?;
        let charge: TextureCharge = Arc::new(self.account.charge(Resource::Objects, 1)?);
        let texture = space.shared.backend.create_texture(source, &sampling)?;
        texture.keep(Arc::clone(&charge));
        let object = texture.object();
        let mut state = self.lock_with(&space)?;
        let handle = state.insert(Object::Texture(TextureEntry {
            space: request.space,
            _texture: texture,
            _charge: charge,
        }))?;
        Ok(TextureReply {
            handle,
            reserved: 0,
            object,
        })
    }

    pub(super) fn destroy_texture(&self, request: HandleRequest) -> Result<Empty, Refusal> {
        let texture = {
            let mut state = self.lock();
            state.get::<TextureEntry>(request.handle)?;
            state.remove(request.handle)
        };
        drop(texture);
        nothing()
    }
}

impl Sampling {
    /// What a surface has, which is not sampled.
    fn plain() -> Self {
        Self {
            address_modes: [AddressMode::Wrap; 3],
            ..Self::default()
        }
    }
}

/// Returns what a texture is to be made of; `None` if CUDA has no such texture.
fn source<'a>(
    request: &CreateTexture,
    array: Option<&'a Arc<dyn Array>>,
) -> Option<TextureSource<'a>> {
    let CreateTexture {
        address,
        width,
        height,
        pitch,
        format,
        channels,
        ..
    } = *request;
    let kind = Kind::from_wire(request.source)?;
    let is_of_array = matches!(kind, Kind::Array | Kind::Surface);
    if is_of_array != array.is_some() {
        return None;
    }
    if let Some(array) = array {
        let has_memory = [address, width, height, pitch].iter().any(|n| *n != 0);
        let can_be_surface = array.shape().flags() & array_flags::SURFACE != 0;
        return match kind {
            _ if has_memory || format != 0 || channels != 0 => None,
            Kind::Surface => can_be_surface.then_some(TextureSource::Surface(array)),
            _ => Some(TextureSource::Array(array)),
        };
    }
    let element = Element::from_wire(format, channels)?;
    let bytes = u64::from(element.bytes());
    let is_whole = |number: u64| number != 0 && number.is_multiple_of(bytes);
    if !address.is_multiple_of(bytes) {
        return None;
    }
    if kind == Kind::Linear {
        let fits = is_whole(width) && width / bytes <= LINEAR_ELEMENTS_MAX;
        let is_one_row = height == 0 && pitch == 0;
        let ends = address.checked_add(width).is_some();
        return (fits && is_one_row && ends).then_some(TextureSource::Linear {
            address,
            bytes: width,
            element,
        });
    }
    let fits = (1..=ROWS_SIZE_MAX[0]).contains(&width)
        && (1..=ROWS_SIZE_MAX[1]).contains(&height)
        && is_whole(pitch)
        && pitch <= u64::from(PITCH_MAX);
    // Both products are small where all of that is so.
    let is_apart = || pitch >= width * bytes && address.checked_add(height * pitch).is_some();
    (fits && is_apart()).then_some(TextureSource::Rows {
        address,
        width,
        height,
        pitch,
        element,
    })
}

/// Returns how a texture is to be sampled; `None` if CUDA has no such way.
fn sampling(request: &CreateTexture) -> Option<Sampling> {
    let mode = |wire| {
        Some(match wire {
            0 => AddressMode::Wrap,
            1 => AddressMode::Clamp,
            2 => AddressMode::Mirror,
            3 => AddressMode::Border,
            _ => return None,
        })
    };
    let [x, y, z] = request.address_modes;
    let is_right = request.filter <= 1
        && request.flags & !texture_flags::ALL == 0
        && request.anisotropy <= ANISOTROPY_MAX;
    let border = request.border.map(f32::from_bits);
    is_right.then_some(Sampling {
        address_modes: [mode(x)?, mode(y)?, mode(z)?],
        is_linear: request.filter == 1,
        flags: request.flags,
        anisotropy: request.anisotropy,
        border,
    })
}
