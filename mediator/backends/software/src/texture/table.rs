//! The textures and surfaces of an address space, by their numbers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use causeway_mediator::backend::{AddressMode, Array, Sampling, Texture, TextureCharge};
use causeway_protocol::message::texture_flags;
use parking_lot::RwLock;

use super::axis::Axis;
use super::format::Format;
use super::image::Image;

/// Number of the first object of an address space. It is no number that programs count to, so that
/// they do not take another number for an object unnoticed.
const FIRST: u64 = 0x7e00_0000_0001;

/// How kernels sample a texture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    modes: [AddressMode; 3],
    /// Whether elements are filtered.
    pub(crate) is_linear: bool,
    /// Whether coordinates go from 0 to 1.
    pub(crate) is_normalized: bool,
    /// Whether what is beside a face of a cube is another face, not what the address modes say.
    is_seamless: bool,
    /// How elements are read.
    pub(crate) format: Format,
    /// The bits of the channels outside.
    pub(crate) border: [u32; 4],
}

impl Sampled {
    /// Returns how `image` is sampled by `sampling`.
    pub(crate) fn new(image: &Image, sampling: &Sampling) -> Self {
        let format = Format::new(image.element, sampling.flags);
        Self {
            modes: sampling.address_modes,
            is_linear: sampling.is_linear,
            is_normalized: sampling.flags & texture_flags::NORMALIZED != 0,
            is_seamless: sampling.flags & texture_flags::SEAMLESS != 0,
            format,
            border: format.border(sampling.border),
        }
    }

    /// Returns dimension number `index`, which has `size` elements.
    pub(crate) fn axis(&self, index: usize, size: u64) -> Axis {
        Axis {
            size,
            mode: self.modes[index],
            is_normalized: self.is_normalized,
        }
    }

    /// Returns dimension number `index` of a face of a cube, which has `size` elements. What is
    /// beyond the edge of a seamless cube is taken for the edge: filters that reach over it read
    /// other weights than on devices, which read the next face.
    pub(crate) fn face_axis(&self, index: usize, size: u64) -> Axis {
        Axis {
            size,
            mode: match self.is_seamless {
                true => AddressMode::Clamp,
                false => self.modes[index],
            },
            is_normalized: true,
        }
    }
}

/// A texture or a surface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// What it is made of.
    pub(crate) image: Image,
    /// How it is sampled; `None` if it is a surface.
    pub(crate) sampled: Option<Sampled>,
}

/// An entry with what the session is charged for it, in all tables that have it.
struct Charged {
    entry: Entry,
    charge: OnceLock<TextureCharge>,
}

causeway_memory::debug_fields!(Charged { entry });

/// A snapshot of the textures and surfaces of an address space. A launch keeps entries that have
/// ended since it began. The session is charged for these, too, so its quota of objects bounds
/// them: by default 8,192 entries, of about 200 bytes each. No quota counts the tables themselves.
/// A command buffer runs one launch at a time, and a table takes about 32 bytes for each entry, so
/// each command buffer can hold up to 256 KiB.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextureTable {
    entries: BTreeMap<u64, Arc<Charged>>,
}

impl TextureTable {
    /// Returns the texture or surface with the number `object`; `None` if there is none.
    pub(crate) fn get(&self, object: u64) -> Option<&Entry> {
        self.entries.get(&object).map(|charged| &charged.entry)
    }
}

/// The textures and surfaces of an address space.
#[derive(Debug)]
pub(crate) struct Textures {
    /// Copied before a change only if a launch has a snapshot of it.
    table: RwLock<Arc<TextureTable>>,
    next: AtomicU64,
}

impl Default for Textures {
    fn default() -> Self {
        Self {
            table: RwLock::default(),
            next: AtomicU64::new(FIRST),
        }
    }
}

impl Textures {
    /// Returns a snapshot, which later changes do not affect.
    pub(crate) fn table(&self) -> Arc<TextureTable> {
        Arc::clone(&self.table.read())
    }

    /// Adds a texture or a surface of `array`, or of memory, until the result is dropped.
    pub(crate) fn add(
        self: &Arc<Self>,
        entry: Entry,
        array: Option<Arc<dyn Array>>,
    ) -> SoftwareTexture {
        // Numbers are not used again: 2^63 calls would be needed.
        let object = self.next.fetch_add(1, Ordering::Relaxed);
        let charged = Arc::new(Charged {
            entry,
            charge: OnceLock::new(),
        });
        let mut table = self.table.write();
        let entries = &mut Arc::make_mut(&mut table).entries;
        entries.insert(object, Arc::clone(&charged));
        drop(table);
        SoftwareTexture {
            textures: Arc::clone(self),
            object,
            charged,
            _array: array,
        }
    }
}

/// A texture or a surface of an address space of this back end. Launches that have begun keep it.
pub(crate) struct SoftwareTexture {
    textures: Arc<Textures>,
    object: u64,
    charged: Arc<Charged>,
    /// The memory stays mapped as long as kernels may be launched that use it.
    _array: Option<Arc<dyn Array>>,
}

impl Texture for SoftwareTexture {
    fn object(&self) -> u64 {
        self.object
    }

    fn keep(&self, charge: TextureCharge) {
        self.charged.charge.get_or_init(|| charge);
    }
}

impl Drop for SoftwareTexture {
    fn drop(&mut self) {
        let mut table = self.textures.table.write();
        Arc::make_mut(&mut table).entries.remove(&self.object);
    }
}

#[cfg(test)]
mod tests {
    use causeway_mediator::backend::{Element, ElementFormat};

    use super::super::image::Kind;
    use super::*;

    fn entry() -> Entry {
        let image = Image {
            address: 0x1000,
            kind: Kind::Linear,
            size: [4, 1, 1],
            pitch: 16,
            element: Element {
                format: ElementFormat::Float,
                channels: 1,
            },
        };
        Entry {
            image,
            sampled: None,
        }
    }

    #[test]
    fn an_object_ends_with_its_texture_but_not_in_snapshots() {
        let textures = Arc::new(Textures::default());
        let first = textures.add(entry(), None);
        let before = textures.table();
        let second = textures.add(entry(), None);
        let (first_object, second_object) = (first.object(), second.object());
        assert_ne!(first_object, second_object);
        assert!(before.get(second_object).is_none());
        drop(first);
        assert!(before.get(first_object).is_some());
        let after = textures.table();
        assert!(after.get(first_object).is_none() && after.get(second_object).is_some());
        let third = textures.add(entry(), None);
        assert_ne!(third.object(), first_object, "numbers are not used again");
        assert!(after.get(0).is_none() && after.get(u64::MAX).is_none());
    }

    #[test]
    fn a_texture_is_charged_for_until_no_snapshot_has_it() {
        let textures = Arc::new(Textures::default());
        let texture = textures.add(entry(), None);
        let charge: TextureCharge = Arc::new(());
        let left = Arc::downgrade(&charge);
        texture.keep(charge);
        let snapshot = textures.table();
        drop(texture);
        assert!(left.upgrade().is_some(), "a launch has it");
        drop(snapshot);
        assert!(left.upgrade().is_none());
    }

    #[test]
    fn a_table_that_no_launch_sees_is_not_copied() {
        let textures = Arc::new(Textures::default());
        let _first = textures.add(entry(), None);
        let at = Arc::as_ptr(&textures.table());
        let _second = textures.add(entry(), None);
        assert_eq!(Arc::as_ptr(&textures.table()), at);
    }
}
