//! How the life of a session ends, and what a client has in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use causeway_protocol::message::Status;
use causeway_protocol::registers::status;

use crate::backend::Fault;
use crate::client::Client;
use crate::command_buffer::CommandBuffer;
use crate::counters::Counters;
use crate::life::Life;
use crate::object::{CommandBufferEntry, Object};
use crate::session::Inner;
use crate::state::State;

impl Inner {
    /// Ends the present life with everything it owns, and begins the next.
    pub fn end_life(&self, closed: bool) {
        let (remains, life) = {
            let mut state = self.lock();
            // First: who watches fences raises interrupts when a life ends, and nobody is to hear of this end.
            self.notifier.clear();
            state.life.end();
            let handles = state.handles(None);
            let remains = state.evict(&*self.host, &handles);
            (remains, self.begin_life(&mut state, closed))
        };
        self.release(&remains);
        // Nobody is left who could lose anything by it.
        self.is_newly_spent();
        drop((remains, life));
        if closed {
            self.notifier.close();
        }
    }

    /// Puts a fresh state in place of one that owns nothing any more. Gives the life that is over.
    fn begin_life(&self, state: &mut State, closed: bool) -> Arc<Life> {
        self.notifier.clear();
        let life = Life::new(Arc::clone(&self.signal), Arc::clone(&self.status));
        let mut fresh = State::new(life, Arc::clone(&self.owners));
        fresh.closed = closed || state.closed;
        if fresh.closed {
            // An operation that another thread began before this finds no life to create anything in.
            fresh.life.end();
        }
        // The old life has ended, and will not say that it is lost any more.
        self.status
            .tell(if fresh.closed { 0 } else { status::READY });
        std::mem::replace(state, fresh).life
    }

    /// Loses the device as by a fault, and takes its memory away with every mapping, wherever the guest has it: it would stay
    /// until the guest begins anew, and others want the device. What it owned otherwise stays its own until then.
    pub fn lose_device(&self, fault: &Fault) {
        let taken = {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            Counters::add(&self.counters.faults);
            state.life.lose(fault.clone());
            state.take_device_memory(&*self.host)
        };
        for (origin, _) in &taken {
            self.let_go(origin);
        }
        drop(taken);
    }

    /// Ends what a client owns, and the life with it if that was lost and nobody owns anything any more.
    pub fn reset_client(&self, client: Client) {
        self.let_work_end(client);
        let remains = {
            let mut state = self.lock();
            // Operations under way will not leave anything behind, and waits end.
            self.epochs[client.index()].fetch_add(1, Ordering::SeqCst);
            state.greeted &= !client.bit();
            self.notifier.forget(client);
            let handles = state.handles(Some(client));
            state.evict(&*self.host, &handles)
        };
        self.signal.notify();
        self.release(&remains);
        let life = {
            let mut state = self.lock();
            if self.is_newly_spent() && self.owners.bits() != 0 {
                state.life.lose(spent());
            }
            let over = state.life.ended() && !state.closed && self.owners.bits() == 0;
            over.then(|| self.begin_life(&mut state, false))
        };
        drop((remains, life));
    }

    /// Gives work under way of a client the time that the back end wants it to have, before memory is taken from it and
    /// it is stopped: either may cost all clients the device.
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
        // All at once: none begins another packet while one is waited for.
        buffers.iter().for_each(|buffer| buffer.stop());
        let deadline = Instant::now() + grace;
        for buffer in buffers {
            let left = deadline.saturating_duration_since(Instant::now());
            if !buffer.stop_within(&self.signal, left, &self.interrupted) {
                return;
            }
        }
    }

    /// Waits for the consumers of objects that were evicted, and ends what others have of them. Called with no lock held.
    fn release(&self, remains: &[Object]) {
        for object in remains {
            if let Object::CommandBuffer(CommandBufferEntry { buffer, .. }) = object {
                buffer.join();
            }
        }
        for object in remains {
            if let Object::Memory(entry) = object {
                self.let_go(&entry.origin);
            }
        }
    }

    /// Whether the back end is spent and was not when this was asked before.
    fn is_newly_spent(&self) -> bool {
        self.backend.is_spent() && !self.spent.swap(true, Ordering::SeqCst)
    }
}

fn spent() -> Fault {
    Fault {
        status: Status::DeviceLost,
        text:
            "work of a client that was reset did not end, or ended at the expense of the device: \
               all clients must begin anew"
                .to_owned(),
    }
}
