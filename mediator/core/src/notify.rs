//! Interrupts for clients that sleep until a fence has reached a value.
//!
//! A thread per session watches the fences that are waited for. It sleeps while there are none, looks when a consumer
//! says that fences may have changed, and now and then by itself: a GPU, other sessions and guest CPUs tell nobody.

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
use crate::refusal::Refusal;
use crate::shared_space::SharedSpace;
use crate::statistics::Counters;

/// Longest time between two looks at fences that nobody announces.
const PERIOD_MAX: Duration = Duration::from_millis(4);
/// The thread's sleep is one long wait in pieces.
const PIECE: Duration = Duration::from_secs(3600);

/// A fence that a client waits for.
pub(crate) struct Watch {
    pub client: Client,
    pub generation: Arc<Generation>,
    pub space: Arc<SharedSpace>,
    /// GPU virtual address.
    pub address: u64,
    pub value: u64,
}

impl Watch {
    fn same_fence(&self, other: &Self) -> bool {
        self.client == other.client
            && self.address == other.address
            && Arc::ptr_eq(&self.space, &other.space)
    }

    /// Whether the fence is where the client waits for it; nothing if there is no fence any more.
    pub fn reached(&self) -> Option<bool> {
        let value = self.space.backend.load_u64(self.address)?;
        Some(value >= self.value)
    }

    /// Whether it is worth a closer look: reached, gone, or never to be reached.
    fn is_due(&self) -> bool {
        self.generation.ended() || self.reached().unwrap_or(true)
    }
}

/// What is watched for the clients of one session.
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
    /// Tells the thread that there is something to watch.
    wake: Condvar,
    /// Counts what was armed, for a look without the lock.
    changes: AtomicUsize,
}

#[derive(Default)]
struct Armed {
    watches: Vec<Watch>,
    closed: bool,
}

impl Notifier {
    /// Watches nothing, and has no thread before it does. `name` is the thread's.
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

    /// Watches a fence until its client's interrupt is raised. Of several values for one fence the smallest counts. Called
    /// with the session's state locked, in which client and space were found.
    pub fn arm(&self, watch: Watch) -> Result<(), Refusal> {
        self.start()?;
        let mut armed = self.shared.armed.lock();
        if armed.closed {
            return Err(Refusal::new(Status::DeviceLost));
        }
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

    /// Forgets what a client waits for: when this returns, its interrupt will not be raised.
    pub fn forget(&self, client: Client) {
        self.shared
            .armed
            .lock()
            .watches
            .retain(|w| w.client != client);
    }

    /// Raises what is waited for in a space that ends, and holds on to it no longer.
    pub fn end_space(&self, space: &Arc<SharedSpace>) {
        self.shared
            .raise_if(|watch| Arc::ptr_eq(&watch.space, space));
    }

    /// Forgets all clients.
    pub fn clear(&self) {
        self.shared.armed.lock().watches.clear();
    }

    /// Ends the thread, for good.
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
            log::error!("the thread {} panicked", self.name);
        }
    }

    /// Starts the thread, unless it runs.
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

    /// Sleeps while nothing is watched. False once nothing ever will be.
    fn wait_for_work(&self) -> bool {
        let mut armed = self.armed.lock();
        while armed.watches.is_empty() && !armed.closed {
            self.wake.wait(&mut armed);
        }
        !armed.closed
    }

    /// Whether there is something to do but look again.
    fn is_due(&self, changes: usize) -> bool {
        // What is new is looked at often at first.
        if self.changes.load(Ordering::Acquire) != changes {
            return true;
        }
        let armed = self.armed.lock();
        armed.watches.is_empty() || armed.watches.iter().any(Watch::is_due)
    }

    /// Raises the interrupts of those who wait for what `due` says. With the lock held, so that whoever forgets a client
    /// knows that nothing more will be raised for it.
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
