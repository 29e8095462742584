//! Counts of the live objects of a fake back end, and what work goes on using.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

/// Numbers of live objects of a back end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Bytes of allocations.
    pub bytes: u64,
    /// Allocations and registered ranges.
    pub memories: u64,
    /// Address spaces.
    pub spaces: u64,
    /// Modules.
    pub modules: u64,
    /// Queues.
    pub queues: u64,
    /// Recordings.
    pub recordings: u64,
    /// Arrays.
    pub arrays: u64,
    /// Textures and surfaces.
    pub textures: u64,
}

impl Live {
    fn change(&mut self, by: &Self, change: impl Fn(u64, u64) -> u64) {
        *self = Self {
            bytes: change(self.bytes, by.bytes),
            memories: change(self.memories, by.memories),
            spaces: change(self.spaces, by.spaces),
            modules: change(self.modules, by.modules),
            queues: change(self.queues, by.queues),
            recordings: change(self.recordings, by.recordings),
            arrays: change(self.arrays, by.arrays),
            textures: change(self.textures, by.textures),
        };
    }
}

/// Memory that work goes on using after its mappings have ended, and the charges of textures that
/// it goes on using; `None` if no work does.
pub(crate) type Used = Arc<Mutex<Option<Vec<Arc<dyn Any + Send + Sync>>>>>;

/// The counts of one back end, which its objects change.
pub(crate) type Counts = Arc<Mutex<Live>>;

/// An object in the counts: added when created, subtracted when dropped.
pub(crate) struct Alive {
    counts: Counts,
    object: Live,
}

impl Alive {
    /// Adds `object` to the counts until the result is dropped.
    pub fn new(counts: &Counts, object: Live) -> Self {
        counts.lock().change(&object, |count, by| count + by);
        Self {
            counts: Arc::clone(counts),
            object,
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.counts
            .lock()
            .change(&self.object, |count, by| count - by);
    }
}
