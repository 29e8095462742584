//! Interrupts for clients that sleep until a fence has reached a value.
//!
//! A thread of each session watches the fences for which clients wait. It sleeps while there are
//! none. It looks when a consumer signals that fences may have changed, and now and then on its
//! own: a GPU, other sessions and guest CPUs do not signal their stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_protocol::message::{NOTIFIES_MAX, Status};
use parking_lot::{Condvar, Mutex};

use crate::client::Client;
use crate::fence::FenceSignal;
use crate::generation::Generation;
use crate::host::Host;
use crate::refusal::{Refusal, refuse_if};
use crate::shared_space::SharedSpace;
use crate::statistics::Counters;

/// Longest time between two looks at fences.
const PERIOD_MAX: Duration = Duration::from_millis(4);
/// The thread sleeps without a limit, in pieces of this length.
const PIECE: Duration = Duration::from_secs(3600);

/// A fence that a client waits for.
pub(crate) struct Watch {
    pub client: Client,
    pub generation: Arc<Generation>,
    pub space: Arc<SharedSpace>,
    /// GPU virtual address of the fence.
    pub address: u64,
    pub value: u64,
}

impl Watch {
    fn same_fence(&self, other: &Self) -> bool {
        self.client == other.client
            && self.address == other.address
            && Arc::ptr_eq(&self.space, &other.space)
    }

    /// Returns whether the fence in memory has reached the value that the client waits for; `None`
    /// if the address of the fence is no longer mapped.
    pub fn reached(&self) -> Option<bool> {
        let value = self.space.backend.load_u64(self.address)?;
        Some(value >= self.value)
    }

    /// Whether the watch ends: its fence is reached or unmapped, or its generation has ended.
    fn is_due(&self) -> bool {
        self.generation.ended() || self.reached().unwrap_or(true)
    }
}

/// Watches fences for the clients of one session.
pub(crate) struct Notifier {
    shared: Arc<Shared>,
    name: String,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    host: Arc<dyn Host>,
    signal: Arc<FenceSignal>,
    counters: Arc<Counters>,
    armed: Mutex<Armed>,
    /// Wakes the thread when there is something to watch.
    wake: Condvar,
    /// Number of calls that armed a watch, readable without the lock.
    changes: AtomicUsize,
}

#[derive(Default)]
struct Armed {
    watches: Vec<Watch>,
    closed: bool,
}

impl Notifier {
    /// Creates a notifier that watches no fence. Its thread, which gets the name `name`, is started
    /// when [`Self::arm`] is first called.
    pub fn new(
        name: String,
        host: Arc<dyn Host>,
        signal: Arc<FenceSignal>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                host,
                signal,
                counters,
                armed: Mutex::default(),
                wake: Condvar::new(),
                changes: AtomicUsize::new(0),
            }),
            name,
            thread: Mutex::default(),
        }
    }

    /// Begins to watch the fence that `watch` describes. When the fence reaches its value, the
    /// client's interrupt is raised and the watch ends. If the client already watches this fence,
    /// the smaller of both values applies. The caller must hold the lock on the session's state.
    pub fn arm(&self, watch: Watch) -> Result<(), Refusal> {
        self.start()?;
        let mut armed = self.shared.armed.lock();
        refuse_if(armed.closed, Status::DeviceLost)?;
        if let Some(known) = armed.watches.iter_mut().find(|w| w.same_fence(&watch)) {
            known.value = known.value.min(watch.value);
        } else if armed.watches.len() < NOTIFIES_MAX as usize {
            armed.watches.push(watch);
        } else {
            return Err(Refusal::with(Status::QuotaObjects, NOTIFIES_MAX));
        }
        self.shared.changes.fetch_add(1, Ordering::Release);
        self.shared.wake.notify_one();
        drop(armed);
        self.shared.signal.notify();
        Ok(())
    }

    /// Ends all watches of `client`. After this returns, none of them raises the client's
    /// interrupt.
    pub fn forget(&self, client: Client) {
        let mut armed = self.shared.armed.lock();
        armed.watches.retain(|watch| watch.client != client);
    }

    /// Ends all watches of fences in `space`, an address space that is being destroyed, and raises
    /// the interrupts of the clients that waited for them.
    pub fn end_space(&self, space: &Arc<SharedSpace>) {
        self.shared
            .raise_if(|watch| Arc::ptr_eq(&watch.space, space));
    }

    /// Ends the watches of all clients.
    pub fn clear(&self) {
        self.shared.armed.lock().watches.clear();
    }

    /// Ends all watches and the thread for good.
    pub fn close(&self) {
        let mut armed = self.shared.armed.lock();
        armed.closed = true;
        armed.watches.clear();
        self.shared.wake.notify_one();
        drop(armed);
        self.shared.signal.notify();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            log::error!(
                "the thread {name}, which watches the fences that a guest's clients wait for, \
                 panicked, so clients may wait for fences that have reached \
                 their values; this is a bug in Causeway",
                name = self.name
            );
        }
    }

    /// Starts the thread, unless it runs already.
    fn start(&self) -> Result<(), Refusal> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new()
                .name(self.name.clone())
                .spawn(move || shared.run());
            *thread = Some(started.map_err(|e| {
                log::debug!("cannot start the thread {}: {e}", self.name);
                Refusal::new(Status::NoMemory)
            })?);
        }
        Ok(())
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self) {
        while self.wait_for_work() {
            let changes = self.changes.load(Ordering::Acquire);
            let look = || self.is_due(changes).then_some(());
            let deadline = Instant::now() + PIECE;
            self.signal.wait_looking(deadline, PERIOD_MAX, look);
            self.raise_if(Watch::is_due);
        }
    }

    /// Sleeps while there are no watches. False once the notifier is closed.
    fn wait_for_work(&self) -> bool {
        let mut armed = self.armed.lock();
        while armed.watches.is_empty() && !armed.closed {
            self.wake.wait(&mut armed);
        }
        !armed.closed
    }

    /// Whether the thread has more to do than to look again.
    fn is_due(&self, changes: usize) -> bool {
        // A new watch restarts the short periods between looks.
        if self.changes.load(Ordering::Acquire) != changes {
            return true;
        }
        let armed = self.armed.lock();
        armed.watches.is_empty() || armed.watches.iter().any(Watch::is_due)
    }

    /// Raises the interrupts of the watches that are `due`. It holds the lock, so that no interrupt
    /// of a client is raised after [`Notifier::forget`].
    fn raise_if(&self, due: impl Fn(&Watch) -> bool) {
        let mut armed = self.armed.lock();
        let mut raised = 0;
        armed.watches.retain(|watch| {
            let due = due(watch);
            if due {
                raised |= watch.client.bit();
            }
            !due
        });
        for client in Client::all().filter(|client| raised & client.bit() != 0) {
            Counters::add(&self.counters.counted.interrupts);
            self.host.raise(client);
        }
    }
}
