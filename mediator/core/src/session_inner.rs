//! What a session is made of, for the operations of its clients and for other sessions.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_protocol::message::Status;
use causeway_protocol::registers::{CLIENTS, features};
use parking_lot::{Mutex, MutexGuard};

use crate::backend::{Backend, Fault, Memory};
use crate::command_buffer::{CommandBuffers, Doorbells, Rings};
use crate::fence::FenceSignal;
use crate::generation::{Generation, StatusObserver};
use crate::gpus::Gpus;
use crate::lease::Lease;
use crate::loads::Loads;
use crate::notify::Notifier;
use crate::object::{MemoryEntry, Origin};
use crate::owners::Owners;
use crate::pace::Pace;
use crate::peers::Peers;
use crate::quota::{Account, Quota};
use crate::share::{Importing, REVOCATION_PATIENCE};
use crate::shared::Shared;
use crate::state::State;
use crate::statistics::Counters;
use crate::watchdog::Watchdog;

/// How often a revocation that waits looks again.
const REVOCATION_PERIOD: Duration = Duration::from_micros(200);
/// How long work of a lost session may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Features that every session has, whatever its back end: a bitwise OR of constants in
/// [`features`].
pub const SESSION_FEATURES: u64 = features::CLIENTS
    | features::NOTIFY
    | features::APERTURE_ADDRESSES
    | features::RECTANGLES
    | features::LAUNCH_OPTIONS
    | features::WORDS
    | features::LARGE_PARAMETERS
    | features::PEERS;

/// What a session is opened on.
pub(crate) struct Device {
    pub backend: Arc<dyn Backend>,
    pub gpus: Gpus,
    /// What all sessions on the back end share.
    pub shared: Shared,
}

/// Everything that a session is made of. It outlives the VMM's [`crate::Session`] for the moment in
/// which another session revokes an import.
pub(crate) struct SessionInner {
    pub id: u64,
    pub name: String,
    pub backend: Arc<dyn Backend>,
    /// The GPUs of the run, of which the back end's is one.
    pub gpus: Gpus,
    /// The VMM and other sessions, as used by the session's own threads and by callers that pass no
    /// [`Peers`].
    pub peers: Peers,
    pub account: Arc<Account>,
    pub counters: Arc<Counters>,
    pub signal: Arc<FenceSignal>,
    /// Calls the observer of the device register `Status` when it changes.
    pub status: Arc<StatusObserver>,
    pub command_buffers: CommandBuffers,
    pub notifier: Notifier,
    /// The set of clients that own objects.
    pub owners: Arc<Owners>,
    /// Number of resets of each client so far. Changes only while the session's state is locked.
    pub epochs: [AtomicU64; CLIENTS as usize],
    /// Whether the VMM has called `interrupt`: `Wait` messages no longer sleep. Never cleared.
    pub interrupted: AtomicBool,
    /// Whether the VMM has called `halt`: no further control message is executed. Never cleared.
    pub halted: AtomicBool,
    /// Whether this session has noticed that the back end is poisoned.
    pub poisoned: AtomicBool,
    /// When the next control message may be executed.
    pub pace: Pace,
    /// Loads of modules under way in all sessions on the back end.
    pub loads: Arc<Loads>,
    pub weak: Weak<SessionInner>,
    state: Mutex<State>,
}

impl SessionInner {
    /// Creates a session that owns nothing.
    pub fn new(id: u64, name: &str, device: Device, peers: Peers, quota: Quota) -> Arc<Self> {
        let Device {
            backend,
            gpus,
            shared,
        } = device;
        let signal = Arc::<FenceSignal>::default();
        let status = Arc::<StatusObserver>::default();
        let owners = Arc::<Owners>::default();
        let counters = Arc::<Counters>::default();
        let account = Account::new(quota);
        Arc::new_cyclic(|weak| Self {
            id,
            name: name.to_owned(),
            notifier: Notifier::new(
                format!("{name:.8}/notify"),
                Arc::clone(&peers.host),
                Arc::clone(&signal),
                Arc::clone(&counters),
            ),
            command_buffers: CommandBuffers {
                id,
                name: name.to_owned(),
                counters: Arc::clone(&counters),
                signal: Arc::clone(&signal),
                doorbells: Doorbells::new(Arc::clone(&peers.host)),
                rings: Rings::default(),
                member: shared.arbiter.join(quota.compute),
                lease: Arc::<Lease>::default(),
                account: Arc::clone(&account),
                watchdog: Watchdog::new(
                    format!("{name:.8}/watch"),
                    Arc::clone(&account),
                    Arc::clone(&counters),
                ),
            },
            account,
            backend,
            gpus,
            counters,
            peers,
            epochs: std::array::from_fn(|_| AtomicU64::new(0)),
            interrupted: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            pace: Pace::default(),
            loads: shared.loads,
            weak: Weak::clone(weak),
            state: Mutex::new(State::new(
                Generation::new(Arc::clone(&signal), Arc::clone(&status)),
                Arc::clone(&owners),
            )),
            owners,
            signal,
            status,
        })
    }

    /// Locks the session's state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the current generation.
    pub fn generation(&self) -> Arc<Generation> {
        Arc::clone(&self.lock().generation)
    }

    /// Deregisters memory that the session gives up from the exchange: an import, or all exports of
    /// an allocation, as `origin` says. The caller must hold no lock.
    pub fn let_go(&self, peers: &Peers, origin: &Origin) {
        match origin {
            Origin::Own { exports } => {
                for export in exports {
                    peers.exchange.withdraw(&export.token, self.id);
                }
            }
            Origin::Import { token, import } => peers.exchange.forget(token, *import),
        }
    }

    /// Takes import number `import` away from the session and removes its mappings. Returns a weak
    /// reference to the memory, which running work may still use; `None` if `handle` does not name
    /// that import or it was already taken away.
    pub fn take_import(&self, peers: &Peers, handle: u32, import: u64) -> Option<Taken> {
        let mut state = self.lock();
        let same = |entry: &MemoryEntry| match entry.origin {
            Origin::Import { import: i, .. } => i == import,
            Origin::Own { .. } => false,
        };
        if !state.get::<MemoryEntry>(handle).is_ok_and(same) {
            return None;
        }
        // A mapping that will not go has ended this session, and kept the memory back.
        let _ = state.unmap_everywhere(&*peers.host, handle);
        let entry = state.get_mut::<MemoryEntry>(handle).ok()?;
        let memory = Arc::downgrade(&entry.memory.take()?);
        let generation = Arc::clone(&state.generation);
        Some(Taken { memory, generation })
    }
}

/// An import that was taken from a session, as far as work under way may still use it.
pub(crate) struct Taken {
    memory: Weak<dyn Memory>,
    /// The generation whose work that is.
    generation: Arc<Generation>,
}

impl Taken {
    /// Waits until no work uses the memory any more, at most `patience`. Returns whether that is so.
    pub fn is_let_go(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while self.memory.strong_count() != 0 {
            if begun.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(REVOCATION_PERIOD);
        }
        true
    }
}

impl Importing for SessionInner {
    fn revoke_import(&self, handle: u32, import: u64) {
        let Some(taken) = self.take_import(&self.peers, handle, import) else {
            return;
        };
        if taken.is_let_go(REVOCATION_PATIENCE) {
            return;
        }
        let text = "work went on using memory of another session after its export was revoked";
        taken.generation.lose(Fault::new(Status::MemoryFault, text));
        if !taken.is_let_go(STOP_PATIENCE) {
            log::error!(
                "{}: its work does not end, so it keeps memory of another session whose export was \
                 revoked",
                self.name
            );
        }
    }
}
