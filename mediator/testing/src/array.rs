//! Arrays and textures of the fake back end: bytes in order, and numbers.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use causeway_mediator::backend::{
    Array, ArrayCharge, ArrayCopy, ArrayShape, Fault, Texture, TextureCharge, TextureSource,
};
use parking_lot::Mutex;

use crate::live::{Alive, Used};
use crate::memory::SpaceMemory;

/// Memory that an array takes more than its elements have.
pub(crate) const MORE_BYTES: u64 = 512;

pub(crate) struct FakeArray {
    pub shape: ArrayShape,
    pub content: Mutex<Vec<u8>>,
    pub _charge: ArrayCharge,
    pub _alive: Alive,
}

impl FakeArray {
    /// Copies a box.
    pub fn copy(&self, space: &SpaceMemory, copy: &ArrayCopy<'_>) -> Result<(), Fault> {
        let part = copy.part();
        let mut content = self.content.lock();
        for (offset, row, slice) in part.rows() {
            let [x, y, z] = part.origin.map(u64::from);
            let rows = (z + u64::from(slice)) * self.shape.rows() + y + u64::from(row);
            let from = (rows * self.shape.row_bytes() + x) as usize;
            let bytes = &mut content[from..from + part.width as usize];
            let address = part.memory.address + offset;
            match copy.is_into_array() {
                true => space.read(address, bytes)?,
                false => space.write(address, bytes)?,
            }
        }
        Ok(())
    }
}

impl Array for FakeArray {
    fn shape(&self) -> &ArrayShape {
        &self.shape
    }

    fn memory_bytes(&self) -> u64 {
        self.shape.bytes() + MORE_BYTES
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(crate) struct FakeTexture {
    object: u64,
    _array: Option<Arc<dyn Array>>,
    charge: OnceLock<TextureCharge>,
    used: Used,
    _alive: Alive,
}

impl FakeTexture {
    /// Returns a texture with a number that no other has.
    pub fn new(source: TextureSource<'_>, used: &Used, alive: Alive) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let array = match source {
            TextureSource::Array(array) | TextureSource::Surface(array) => Some(Arc::clone(array)),
            TextureSource::Linear { .. } | TextureSource::Rows { .. } => None,
        };
        Self {
            object: NEXT.fetch_add(1, Ordering::Relaxed),
            _array: array,
            charge: OnceLock::new(),
            used: Arc::clone(used),
            _alive: alive,
        }
    }
}

impl Texture for FakeTexture {
    fn object(&self) -> u64 {
        self.object
    }

    fn keep(&self, charge: TextureCharge) {
        assert!(self.charge.set(charge).is_ok(), "called once");
    }
}

impl Drop for FakeTexture {
    fn drop(&mut self) {
        if let (Some(used), Some(charge)) = (&mut *self.used.lock(), self.charge.take()) {
            used.push(charge);
        }
    }
}
