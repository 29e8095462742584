//! What a session is made of, for the operations of its clients and for other sessions.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};

use causeway_protocol::registers::{CLIENTS, features};
use parking_lot::{Mutex, MutexGuard};

use crate::backend::Backend;
use crate::command_buffer::{CommandBuffers, Doorbells, Rings};
use crate::fence::FenceSignal;
use crate::generation::{Generation, StatusObserver};
use crate::gpus::Gpus;
use crate::imports::Left;
use crate::lease::Lease;
use crate::loads::Loads;
use crate::notify::Notifier;
use crate::owners::Owners;
use crate::pace::Pace;
use crate::peers::Peers;
use crate::quota::{Account, Quota};
use crate::rights::Grants;
use crate::shared::Shared;
use crate::state::State;
use crate::statistics::Counters;
use crate::watchdog::Watchdog;

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
    /// What it has exported and imported so far.
    pub grants: Grants,
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
    /// Held while an array is created. No other lock is held then.
    pub array_fill: Mutex<()>,
    pub weak: Weak<SessionInner>,
    /// Imports that it has given up, while work may still use their memory. A leaf lock.
    pub left: Mutex<Left>,
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
            grants: Grants::default(),
            peers,
            epochs: std::array::from_fn(|_| AtomicU64::new(0)),
            interrupted: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            pace: Pace::default(),
            loads: shared.loads,
            array_fill: Mutex::default(),
            weak: Weak::clone(weak),
            left: Mutex::default(),
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
}
