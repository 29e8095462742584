//! Imports that a session no longer has, and work under way that may still use their memory.
//!
//! The exchange knows an import until no work uses its memory any more, whether the session has
//! freed it, was reset, or had it taken away. So a revocation always finds those that it must wait
//! for.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_memory::Backing;
use causeway_protocol::message::Status;

use crate::backend::{BackendError, Exported, Fault, Memory};
use crate::generation::Generation;
use crate::object::{MemoryEntry, Object, Origin};
use crate::peers::Peers;
use crate::refusal::warn_at_first;
use crate::session_inner::SessionInner;
use crate::share::{Importing, TokenBytes};

/// How often a revocation that waits looks again.
const PERIOD: Duration = Duration::from_micros(200);

/// An import that a session no longer has, as far as work under way may still use its memory.
#[derive(Clone)]
pub struct Taken {
    memory: Weak<dyn Memory>,
    /// The generation whose work that is.
    generation: Arc<Generation>,
}

causeway_memory::debug_fields!(Taken {});

impl Taken {
    /// An import whose memory work under way may still use.
    #[cfg(test)]
    pub(crate) fn of(memory: &Arc<dyn Memory>) -> Self {
        let memory = Arc::downgrade(memory);
        let generation = Generation::new(Arc::default(), Arc::default());
        Self { memory, generation }
    }

    /// Waits until no work uses the memory any more, or until `deadline`. Returns whether no work
    /// does.
    pub fn is_let_go_by(&self, deadline: Instant) -> bool {
        while self.memory.strong_count() != 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(PERIOD);
        }
        true
    }
}

/// Imports that a session has given up by itself, by their numbers.
pub(crate) type Left = HashMap<u64, (TokenBytes, Taken)>;

impl SessionInner {
    /// Takes import number `import` away from the session and removes its mappings. Returns `None`
    /// if the session has no such import, and no work that may use its memory.
    pub fn take_import(&self, peers: &Peers, handle: u32, import: u64) -> Option<Taken> {
        let mut state = self.lock();
        let same = |entry: &MemoryEntry| match entry.origin {
            Origin::Import { import: i, .. } => i == import,
            Origin::Own { .. } | Origin::Fabric => false,
        };
        if !state.get::<MemoryEntry>(handle).is_ok_and(same) {
            let left = self.left.lock();
            return left.get(&import).map(|(_, taken)| taken.clone());
        }
        // A mapping that will not go has ended this session, and kept the memory back.
        let _ = state.unmap_everywhere(&*peers.host, handle);
        let entry = state.get_mut::<MemoryEntry>(handle).ok()?;
        let memory = Arc::downgrade(&entry.memory.take()?);
        let generation = Arc::clone(&state.generation);
        Some(Taken { memory, generation })
    }

    /// Notes that the session gives up memory, which is work of `generation` if it is an import. The
    /// caller holds the lock of the session's state under which the memory leaves it.
    pub fn leave(
        &self,
        generation: &Arc<Generation>,
        origin: &Origin,
        memory: Option<&Arc<dyn Memory>>,
    ) {
        let Origin::Import { token, import } = origin else {
            return;
        };
        let none: Weak<dyn Memory> = Weak::<Nothing>::new();
        let taken = Taken {
            memory: memory.map_or(none, Arc::downgrade),
            generation: Arc::clone(generation),
        };
        self.left.lock().insert(*import, (*token, taken));
    }

    /// As [`Self::leave`], for all imports among `objects`.
    pub fn leave_all(&self, generation: &Arc<Generation>, objects: &[Object]) {
        for object in objects {
            if let Object::Memory(entry) = object {
                self.leave(generation, &entry.origin, entry.memory.as_ref());
            }
        }
    }

    /// Ends the exports of memory that the session gives up. The caller must hold no lock.
    pub fn withdraw_all(&self, peers: &Peers, origin: &Origin) {
        if let Origin::Own { exports } = origin {
            for export in exports {
                peers.exchange.withdraw(&export.token, self.id);
            }
        }
    }

    /// Deregisters the imports that the session has given up and that no work uses any more. The
    /// caller must hold no lock.
    pub fn forget_left(&self, peers: &Peers) {
        let is_used = |taken: &Taken| taken.memory.strong_count() != 0;
        let mut gone = Vec::new();
        self.left.lock().retain(|import, (token, taken)| {
            let stays = is_used(taken);
            if !stays {
                gone.push((*token, *import));
            }
            stays
        });
        for (token, import) in gone {
            peers.exchange.forget(&token, import);
        }
    }
}

impl Importing for SessionInner {
    fn take(&self, handle: u32, import: u64) -> Option<Taken> {
        self.take_import(&self.peers, handle, import)
    }

    fn lose(&self, taken: &Taken) {
        let text = "work that began before the revocation of an export went on where the memory was \
                    mapped";
        let lost = taken.generation.lose(Fault::new(Status::MemoryFault, text));
        if lost {
            let level = warn_at_first(&self.counters.counted.faults);
            log::log!(
                level,
                "{}: {text}: the guest must reset the device",
                self.name
            );
        }
    }
}

/// Memory that there is not, for weak references to none.
enum Nothing {}

impl Memory for Nothing {
    fn bytes(&self) -> u64 {
        match *self {}
    }

    fn backing(&self) -> Option<Backing> {
        match *self {}
    }

    fn export(&self) -> Result<Exported, BackendError> {
        match *self {}
    }

    fn as_any(&self) -> &dyn Any {
        match *self {}
    }
}
