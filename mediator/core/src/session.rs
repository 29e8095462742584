//! A session: one guest's state, from the VMM's side.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use causeway_protocol::message::{Opcode, Status, message_bytes};
use causeway_protocol::registers::{CLIENTS, features, status};

use crate::activity::{Activity, Rings};
use crate::backend::{Attributes, Backend, Fault, Memory};
use crate::client::{Client, ClientSession};
use crate::command_buffer::Doorbells;
use crate::counters::{Counters, SessionReport};
use crate::decode::{self, HEADER_BYTES, Previous};
use crate::fence::FenceSignal;
use crate::host::Host;
use crate::life::{Life, StatusObserver};
use crate::notify::Notifier;
use crate::object::{MemoryEntry, Origin};
use crate::operations;
use crate::owners::Owners;
use crate::quota::{Account, Quota, Resource};
use crate::refusal::Refusal;
use crate::share::{Exchange, Importing};
use crate::state::State;

/// How often a revocation that waits looks again.
const REVOCATION_PERIOD: Duration = Duration::from_micros(200);

/// What every session can do, whatever its back end, as [`features`] has it.
pub const SESSION_FEATURES: u64 =
    features::CLIENTS | features::NOTIFY | features::APERTURE_ADDRESSES;

/// One guest's session. All methods may be called from any thread at any time; two batches executed at
/// once interleave by message. Dropping it closes it.
pub struct Session {
    inner: Arc<Inner>,
}

/// What outlives the VMM's handle for the moment that another session needs to revoke an import.
pub(crate) struct Inner {
    pub id: u64,
    pub name: String,
    pub backend: Arc<dyn Backend>,
    pub host: Arc<dyn Host>,
    pub exchange: Arc<dyn Exchange>,
    pub account: Arc<Account>,
    pub counters: Arc<Counters>,
    pub signal: Arc<FenceSignal>,
    /// Told of every change of register `Status`.
    pub status: Arc<StatusObserver>,
    pub doorbells: Arc<Doorbells>,
    pub rings: Rings,
    pub notifier: Notifier,
    /// Which clients own something.
    pub owners: Arc<Owners>,
    /// How often each client was reset; changed with the state locked.
    pub epochs: [AtomicU64; CLIENTS as usize],
    /// Set for good once the VMM wants its vCPU threads back.
    pub interrupted: AtomicBool,
    /// Set for good once no message is to be executed any more.
    halted: AtomicBool,
    /// Whether the back end is known to be spent.
    pub spent: AtomicBool,
    pub weak: Weak<Inner>,
    state: Mutex<State>,
}

impl Session {
    pub(crate) fn open(
        id: u64,
        name: &str,
        backend: Arc<dyn Backend>,
        host: Arc<dyn Host>,
        exchange: Arc<dyn Exchange>,
        quota: Quota,
    ) -> Arc<Self> {
        let signal = Arc::<FenceSignal>::default();
        let status = Arc::<StatusObserver>::default();
        let owners = Arc::<Owners>::default();
        let counters = Arc::<Counters>::default();
        let inner = Arc::new_cyclic(|weak| Inner {
            id,
            name: name.to_owned(),
            backend,
            exchange,
            account: Account::new(quota),
            notifier: Notifier::new(
                format!("{name:.8}/notify"),
                Arc::clone(&host),
                Arc::clone(&signal),
                Arc::clone(&counters),
            ),
            counters,
            doorbells: Doorbells::new(Arc::clone(&host)),
            rings: Rings::default(),
            host,
            epochs: std::array::from_fn(|_| AtomicU64::new(0)),
            interrupted: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            spent: AtomicBool::new(false),
            weak: Weak::clone(weak),
            state: Mutex::new(State::new(
                Life::new(Arc::clone(&signal), Arc::clone(&status)),
                Arc::clone(&owners),
            )),
            owners,
            signal,
            status,
        });
        Arc::new(Self { inner })
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Executes a control batch of a client, that is a private copy of what the guest wrote, and puts the replies in
    /// its place. `Ok`, or why the batch as a whole was not taken; it is then unchanged.
    ///
    /// Sleeps if the batch has a `Wait` in it; [`Self::interrupt`] ends that.
    pub fn execute(&self, client: Client, batch: &mut [u8]) -> Status {
        Counters::add(&self.inner.counters.batches);
        let taken = decode::check_batch(batch);
        if taken == Status::Ok {
            let session = &*self.inner;
            ClientSession { session, client }.execute(batch);
        }
        taken
    }

    /// Ends everything the guest owns and starts afresh (register `Reset` of page 0). Returns when the consumers
    /// have stopped and nothing is left in the aperture.
    pub fn reset(&self) {
        self.inner.end_life(false);
    }

    /// Ends everything that a client owns, and nothing else. Returns when its consumers have stopped, nothing of it is left
    /// in the aperture, and no interrupt of it will be raised. A session that is lost starts afresh once no client owns
    /// anything.
    ///
    /// Work under way may go on for [`Backend::grace`] first. If it cannot be ended but at the expense of the device
    /// ([`Backend::is_spent`]), the session is lost for all others.
    pub fn reset_client(&self, client: Client) {
        self.inner.reset_client(client);
    }

    /// The clients that own something, as [`Client::bit`] has them.
    pub fn owners(&self) -> u64 {
        self.inner.owners.bits()
    }

    /// As [`Self::observe_status`], for [`Self::owners`].
    pub fn observe_owners(&self, tell: impl Fn(u64) + Send + Sync + 'static) {
        self.inner.owners.observe(Box::new(tell));
    }

    /// Content of register `Status`.
    pub fn status_bits(&self) -> u32 {
        let state = self.inner.lock();
        match (state.closed, state.life.ended()) {
            (true, _) => 0,
            (false, true) => status::LOST,
            (false, false) => status::READY,
        }
    }

    /// Makes a `Wait` that sleeps return with `TimedOut`, and every later one return at once: the VMM
    /// wants its vCPU threads back.
    pub fn interrupt(&self) {
        self.inner.interrupted.store(true, Ordering::SeqCst);
        self.inner.signal.notify();
    }

    /// Has batches end with the message they are at, as the guest is not there to read the replies: one batch can
    /// hold minutes of work. What follows has the status `NotRun`. Interrupts waits too.
    pub fn halt(&self) {
        self.inner.halted.store(true, Ordering::SeqCst);
        self.interrupt();
    }

    /// Ends the session for good, as dropping it does: consumers are stopped and joined, doorbells and
    /// aperture given back, exports revoked, memory released. A second call does nothing.
    pub fn close(&self) {
        self.inner.end_life(true);
    }

    /// Number of the session in its mediator, as logs name it.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// What its back end is.
    pub fn attributes(&self) -> Attributes {
        self.inner.backend.attributes().clone()
    }

    /// Has `tell` told what register `Status` holds, at every change from now on. Only the first caller is heard, who
    /// comes before the session does anything. `tell` is called with locks held: it stores the number and returns.
    pub fn observe_status(&self, tell: impl Fn(u32) + Send + Sync + 'static) {
        self.inner.status.observe(Box::new(tell));
    }

    /// Takes an import away, as the exchange it came from wants it (see [`Importing`]), and waits for work under way
    /// that uses it, but no longer than `patience`. False if the memory is still held then.
    #[must_use]
    pub fn revoke_import(&self, handle: u32, import: u64, patience: Duration) -> bool {
        let Some(memory) = self.inner.take_import(handle, import) else {
            return true;
        };
        let begun = Instant::now();
        while memory.strong_count() != 0 {
            if begun.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(REVOCATION_PERIOD);
        }
        true
    }

    /// What the session was lost to, if it was.
    pub fn fault(&self) -> Option<Fault> {
        self.inner.lock().life.fault()
    }

    /// Ends it as a fault in its work does, for a reason that its owner knows.
    pub fn lose(&self, fault: Fault) {
        Counters::add(&self.inner.counters.faults);
        self.inner.life().lose(fault);
    }

    /// What it is doing. Disturbs nothing that it does.
    pub fn activity(&self) -> Activity {
        self.inner.activity()
    }

    /// What it has done so far.
    pub fn report(&self) -> SessionReport {
        let inner = &self.inner;
        let counters = &inner.counters;
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        SessionReport {
            session: inner.id,
            name: inner.name.clone(),
            batches: load(&counters.batches),
            messages: counters.messages_by_name(),
            failed_messages: load(&counters.failed_messages),
            packets: counters.packets_by_name(),
            launches: counters.packet_count(causeway_protocol::packet::Opcode::Launch),
            sleeps: load(&counters.sleeps),
            doorbell_wakeups: load(&counters.wakeups),
            faults: load(&counters.faults),
            interrupts: load(&counters.interrupts),
            memory_used_bytes: inner.account.used(Resource::MemoryBytes),
            memory_peak_bytes: inner.account.peak_memory_bytes(),
            fault: self.fault().map(|fault| fault.to_string()),
            worker: None,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present life.
    pub fn life(&self) -> Arc<Life> {
        Arc::clone(&self.lock().life)
    }

    /// Ends an import's registration, or the exports of memory of this session. Called with no lock held.
    pub fn let_go(&self, origin: &Origin) {
        match origin {
            Origin::Own { exports } => {
                for export in exports {
                    self.exchange.withdraw(&export.token, self.id);
                }
            }
            Origin::Import { token, import } => self.exchange.forget(token, *import),
        }
    }

    /// Ends an import with its mappings. Gives the memory, which work under way may still hold; none if there was no such
    /// import, or it was taken before.
    fn take_import(&self, handle: u32, import: u64) -> Option<Weak<dyn Memory>> {
        let mut state = self.lock();
        let same = |entry: &MemoryEntry| matches!(entry.origin, Origin::Import { import: i, .. } if i == import);
        if !state.get::<MemoryEntry>(handle).is_ok_and(same) {
            return None;
        }
        // A mapping that will not go has ended this session, and kept the memory back.
        let _ = state.unmap_everywhere(&*self.host, handle);
        let entry = state.get_mut::<MemoryEntry>(handle).ok()?;
        entry.memory.take().map(|memory| Arc::downgrade(&memory))
    }
}

impl ClientSession<'_> {
    fn execute(&self, batch: &mut [u8]) {
        let mut previous = Previous::default();
        let mut failed = None;
        let mut at = 0;
        for index in 0u32.. {
            let Some(rest) = batch.get_mut(at..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let framed = decode::framed_bytes(rest);
            if self.halted.load(Ordering::SeqCst) {
                failed.get_or_insert(index);
            }
            if let Some(first) = failed {
                decode::write_status(rest, Status::NotRun, first);
            } else {
                match self.message(rest, &mut previous) {
                    Ok(()) => decode::write_status(rest, Status::Ok, 0),
                    Err(refusal) => {
                        Counters::add(&self.counters.failed_messages);
                        decode::write_status(rest, refusal.status, refusal.detail);
                        failed = Some(index);
                    }
                }
            }
            let Some(bytes) = framed else { break };
            at += bytes;
        }
    }

    /// Executes the message at the beginning of `rest`.
    fn message(&self, rest: &mut [u8], previous: &mut Previous) -> Result<(), Refusal> {
        let opcode = decode::check_message(rest)?;
        self.counters.message(opcode);
        self.admit(opcode)?;
        let body = &mut rest[HEADER_BYTES..message_bytes(opcode)];
        let outcome = operations::dispatch(self, opcode, body, previous);
        if let Err(refusal) = &outcome {
            log::debug!(
                "session {} ({}) client {}: {}: {refusal}",
                self.id,
                self.name,
                self.client.number(),
                opcode.name()
            );
        }
        outcome
    }

    /// Whether the session is in a state in which it may do `opcode`.
    fn admit(&self, opcode: Opcode) -> Result<(), Refusal> {
        let state = self.lock();
        let after_loss = matches!(opcode, Opcode::Hello | Opcode::QueryFault);
        if state.closed || (state.life.ended() && !after_loss) {
            return Err(Refusal::new(Status::DeviceLost));
        }
        let greeted = state.greeted & self.client.bit() != 0;
        if !greeted && opcode != Opcode::Hello && !state.life.ended() {
            return Err(Refusal::new(Status::NoHello));
        }
        Ok(())
    }
}

impl Importing for Inner {
    fn revoke_import(&self, handle: u32, import: u64) {
        self.take_import(handle, import);
    }
}
