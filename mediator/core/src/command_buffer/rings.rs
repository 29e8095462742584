//! The rings of a session, and how full they are.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::ring::Ring;

/// How full rings are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    pub queued_units: u64,
    pub units: u64,
}

/// The rings of a session. A leaf lock, taken when a command buffer is created and by monitors.
#[derive(Default)]
pub(crate) struct Rings(Mutex<Vec<Weak<Ring>>>);

impl Rings {
    /// Adds `ring` to the list, and removes rings whose command buffers have been destroyed.
    pub fn add(&self, ring: &Arc<Ring>) {
        let mut rings = self.0.lock();
        rings.retain(|ring| ring.strong_count() != 0);
        rings.push(Arc::downgrade(ring));
    }

    /// Returns the total size of all rings of the session, and how many of their units wait to be
    /// consumed.
    pub fn depth(&self) -> Depth {
        // Upgraded before the sum: this thread may become the last holder of a ring, and unmapping
        // the ring under the lock would hold up others.
        let rings: Vec<Arc<Ring>> = {
            let rings = self.0.lock();
            rings.iter().filter_map(Weak::upgrade).collect()
        };
        let add = |sum: Depth, ring: &Arc<Ring>| Depth {
            queued_units: sum.queued_units + ring.queued_units(),
            units: sum.units + ring.units(),
        };
        rings.iter().fold(Depth::default(), add)
    }
}
