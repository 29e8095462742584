//! Clients: the processes of one guest, as its session tells them apart.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use causeway_protocol::message::Status;
use causeway_protocol::registers::CLIENTS;

use crate::host::Host;
use crate::life::Life;
use crate::object::{Kind, Object};
use crate::refusal::Refusal;
use crate::session::Inner;
use crate::state::State;

/// A client of a session, by the number of its page of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(u8);

const _: () = assert!(CLIENTS <= u64::BITS, "clients are bits of a word");

impl Client {
    /// The client of page 0: a guest that is one program.
    pub const FIRST: Self = Self(0);

    /// The client of a page; none for a page that does not exist.
    pub const fn new(number: u32) -> Option<Self> {
        if number < CLIENTS {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Number of its page.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Its bit in a set of clients.
    pub const fn bit(self) -> u64 {
        1 << self.0
    }

    /// Its place in a table of all clients.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All that there may be.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..CLIENTS as u8).map(Self)
    }
}

/// A session, as one of its clients sees it: what the others own is not there.
pub(crate) struct ClientSession<'a> {
    pub session: &'a Inner,
    pub client: Client,
}

/// The present life of the session, and the client's part of it: from one reset to the next.
pub(crate) struct Tenure {
    pub life: Arc<Life>,
    epoch: u64,
}

impl ClientSession<'_> {
    /// The session's state.
    pub fn lock(&self) -> ClientState<'_> {
        ClientState {
            state: self.session.lock(),
            client: self.client,
        }
    }

    /// What an operation belongs to that works without the lock in between.
    pub fn tenure(&self) -> Tenure {
        let state = self.session.lock();
        Tenure {
            life: Arc::clone(&state.life),
            epoch: self.epoch(),
        }
    }

    /// The lock, if session and client still are what they were.
    pub fn lock_within(&self, tenure: &Tenure) -> Result<ClientState<'_>, Refusal> {
        let state = self.lock();
        if Arc::ptr_eq(&state.life, &tenure.life) && !self.over(tenure) {
            Ok(state)
        } else {
            Err(Refusal::new(Status::DeviceLost))
        }
    }

    /// Whether session or client have ended. For good only with the lock held.
    pub fn over(&self, tenure: &Tenure) -> bool {
        tenure.life.ended() || self.epoch() != tenure.epoch
    }

    fn epoch(&self) -> u64 {
        self.session.epochs[self.client.index()].load(Ordering::SeqCst)
    }
}

impl Deref for ClientSession<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        self.session
    }
}

/// The locked state of a session, in which a client finds its own objects and no others. What is asked of the
/// [`State`] by name of this type is checked; what only the state can do is for those who know whose it is.
pub(crate) struct ClientState<'a> {
    state: MutexGuard<'a, State>,
    client: Client,
}

impl ClientState<'_> {
    /// The object behind `handle`, if it is a `T` of this client.
    pub fn get<T: Kind>(&self, handle: u32) -> Result<&T, Refusal> {
        self.check(handle)?;
        self.state.get(handle)
    }

    /// The same, to be changed.
    pub fn get_mut<T: Kind>(&mut self, handle: u32) -> Result<&mut T, Refusal> {
        self.check(handle)?;
        self.state.get_mut(handle)
    }

    /// A handle for a new object of this client.
    pub fn insert(&mut self, object: Object) -> Result<u32, Refusal> {
        self.state.insert(self.client, object)
    }

    /// Takes an object of this client away.
    pub fn remove(&mut self, handle: u32) -> Option<Object> {
        self.check(handle).ok()?;
        self.state.remove(handle)
    }

    /// Ends the GPU mapping at `address` of a space of this client.
    pub fn unmap_gpu(&mut self, space: u32, address: u64) -> Result<(), Refusal> {
        self.check(space)?;
        self.state.unmap_gpu(space, address)
    }

    /// Ends the aperture mapping at `offset`, if it is of this client's memory.
    pub fn unmap_cpu(&mut self, host: &dyn Host, offset: u64) -> Result<(), Refusal> {
        let mapping = self.state.aperture.get(&offset);
        match mapping {
            Some(mapping) if self.owns(mapping.memory) => self.state.unmap_cpu(host, offset),
            _ => Err(Refusal::new(Status::BadRange)),
        }
    }

    /// Ends every mapping of memory of this client.
    pub fn unmap_everywhere(&mut self, host: &dyn Host, handle: u32) -> Result<(), Refusal> {
        self.check(handle)?;
        self.state.unmap_everywhere(host, handle)
    }

    /// Whether `handle` stands for something of this client.
    pub fn owns(&self, handle: u32) -> bool {
        self.state.owner(handle) == Some(self.client)
    }

    fn check(&self, handle: u32) -> Result<(), Refusal> {
        match self.owns(handle) {
            true => Ok(()),
            false => Err(Refusal::bad_handle(handle)),
        }
    }
}

impl Deref for ClientState<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for ClientState<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
