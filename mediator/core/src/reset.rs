//! Resets: the end of a generation of a session, and of a client's epoch in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use causeway_protocol::message::Status;
use causeway_protocol::registers::status;

use crate::backend::Fault;
use crate::client::Client;
use crate::command_buffer::CommandBuffer;
use crate::generation::Generation;
use crate::object::{CommandBufferEntry, Object, Origin};
use crate::peers::Peers;
use crate::session_inner::SessionInner;
use crate::state::State;
use crate::statistics::Counters;

impl SessionInner {
    /// Destroys all objects of the session, which ends the current generation, and begins the next
    /// one. If `closed`, the session accepts no work afterwards. Reaches the VMM and other sessions
    /// through `peers`.
    pub fn end_generation(&self, peers: &Peers, closed: bool) {
        let (remains, generation) = {
            let mut state = self.lock();
            // First, because the notifier raises interrupts when a generation ends, and no client
            // may get one for this end.
            self.notifier.clear();
            state.generation.end();
            let handles = state.handles(None);
            let remains = state.evict(&*peers.host, &handles);
            self.leave_all(&state.generation, &remains);
            (remains, self.begin_generation(&mut state, closed))
        };
        self.release(peers, remains);
        // No client is left that could lose anything. The flag is set for later resets.
        self.is_newly_poisoned();
        drop(generation);
        self.forget_left(peers);
        if closed {
            self.notifier.close();
        }
    }

    /// Replaces a state that owns nothing with a fresh one. Returns the generation that has ended.
    fn begin_generation(&self, state: &mut State, closed: bool) -> Arc<Generation> {
        self.notifier.clear();
        let generation = Generation::new(Arc::clone(&self.signal), Arc::clone(&self.status));
        let mut fresh = State::new(generation, Arc::clone(&self.owners));
        fresh.closed = closed || state.closed;
        if fresh.closed {
            // An operation that another thread began before this creates nothing.
            fresh.generation.end();
        }
        // The old generation has ended and reports no loss any more.
        self.status
            .tell(if fresh.closed { 0 } else { status::READY });
        std::mem::replace(state, fresh).generation
    }

    /// Makes the session lost because of `fault`, and immediately removes all its device memory and
    /// the mappings of that memory, because the host is taking the device away. The session keeps
    /// its other objects until its next reset.
    ///
    /// Uses the session's own peers. In a worker these cannot withdraw exports, so only a back end
    /// that lives in the VMM's process may report the loss of its device.
    pub fn lose_device(&self, fault: &Fault) {
        let taken = {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            Counters::add(&self.counters.counted.faults);
            state.generation.lose(fault.clone());
            let taken = state.take_device_memory(&*self.peers.host);
            for (origin, memory) in &taken {
                self.leave(&state.generation, origin, Some(memory));
            }
            taken
        };
        // As in `release`.
        let (own, imported): (Vec<_>, Vec<_>) = taken
            .into_iter()
            .partition(|(origin, _)| matches!(origin, Origin::Own { .. }));
        drop(imported);
        for (origin, _) in &own {
            self.withdraw_all(&self.peers, origin);
        }
        drop(own);
        self.forget_left(&self.peers);
    }

    /// Destroys all objects that `client` owns. If the session is lost and no client owns an object
    /// any more, begins a new generation. Reaches the VMM and other sessions through `peers`.
    pub fn reset_client(&self, peers: &Peers, client: Client) {
        self.let_work_end(client);
        let remains = {
            let mut state = self.lock();
            // Ends the epoch: operations under way leave nothing behind, and waits return.
            self.epochs[client.index()].fetch_add(1, Ordering::SeqCst);
            state.greeted &= !client.bit();
            self.notifier.forget(client);
            let handles = state.handles(Some(client));
            let remains = state.evict(&*peers.host, &handles);
            self.leave_all(&state.generation, &remains);
            remains
        };
        self.signal.notify();
        self.release(peers, remains);
        let generation = {
            let mut state = self.lock();
            if self.is_newly_poisoned() && self.owners.bits() != 0 {
                state.generation.lose(poisoned());
            }
            let over = state.generation.ended() && !state.closed && self.owners.bits() == 0;
            over.then(|| self.begin_generation(&mut state, false))
        };
        drop(generation);
        self.forget_left(peers);
    }

    /// Gives a client's work under way the grace that the back end asks for, before the work loses
    /// its memory and is stopped: either can cost all clients the device.
    fn let_work_end(&self, client: Client) {
        let grace = self.backend.grace();
        if grace.is_zero() {
            return;
        }
        let buffers: Vec<Arc<CommandBuffer>> = {
            let state = self.lock();
            let handles = state.handles(Some(client)).into_iter();
            handles
                .filter_map(|handle| state.get::<CommandBufferEntry>(handle).ok())
                .map(|entry| Arc::clone(&entry.buffer))
                .collect()
        };
        // All at once: no buffer begins another packet during the wait for one.
        buffers.iter().for_each(|buffer| buffer.stop());
        let deadline = Instant::now() + grace;
        for buffer in buffers {
            let left = deadline.saturating_duration_since(Instant::now());
            if !buffer.stop_within(&self.signal, left, &self.interrupted) {
                return;
            }
        }
    }

    /// Joins the consumers of evicted objects, drops the objects, and ends the exports of evicted
    /// memory. Called with no lock held.
    fn release(&self, peers: &Peers, remains: Vec<Object>) {
        for object in &remains {
            if let Object::CommandBuffer(CommandBufferEntry { buffer, .. }) = object {
                buffer.join();
            }
        }
        let is_own = |object: &Object| match object {
            Object::Memory(entry) => matches!(entry.origin, Origin::Own { .. }),
            _ => false,
        };
        let (own, others): (Vec<_>, Vec<_>) = remains.into_iter().partition(is_own);
        // First: the end of an export waits for its imports, and those may be among these, or belong
        // to a session that ends at the same time and waits for these.
        drop(others);
        for object in &own {
            if let Object::Memory(entry) = object {
                self.withdraw_all(peers, &entry.origin);
            }
        }
    }

    /// Whether the back end is poisoned and was not at the last call.
    fn is_newly_poisoned(&self) -> bool {
        self.backend.is_poisoned() && !self.poisoned.swap(true, Ordering::SeqCst)
    }
}

fn poisoned() -> Fault {
    Fault::new(
        Status::DeviceLost,
        "work of a client that was reset did not end, or its end poisoned the device: \
               all clients must reset",
    )
}
