//! A session as one of its clients sees it: only the objects that the client owns exist.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_protocol::message::Status;
use parking_lot::MutexGuard;

use crate::client::Client;
use crate::generation::Generation;
use crate::host::Host;
use crate::object::{Kind, Object, SpaceEntry};
use crate::peers::Peers;
use crate::refusal::{Refusal, refuse_if};
use crate::session_inner::SessionInner;
use crate::shared_space::SharedSpace;
use crate::state::State;

/// A session, as one of its clients sees it. The objects of other clients do not exist for it.
pub(crate) struct ClientSession<'a> {
    pub session: &'a SessionInner,
    pub peers: &'a Peers,
    pub client: Client,
}

/// A client's epoch in a generation of its session. An operation that releases the lock in between
/// remembers the epoch, and leaves nothing behind if the epoch has ended when it locks again.
pub(crate) struct Epoch {
    pub generation: Arc<Generation>,
    number: u64,
}

/// An address space that an operation uses without the lock, and the epoch in which it looked it
/// up.
pub(crate) struct OpenSpace {
    pub epoch: Epoch,
    pub handle: u32,
    pub shared: Arc<SharedSpace>,
}

impl ClientSession<'_> {
    /// Locks the session's state and returns it, restricted to the objects of this client.
    pub fn lock(&self) -> ClientState<'_> {
        ClientState {
            state: self.session.lock(),
            client: self.client,
        }
    }

    /// Returns the client's present epoch, which ends with its next reset or with the generation.
    pub fn epoch(&self) -> Epoch {
        let state = self.session.lock();
        Epoch {
            generation: Arc::clone(&state.generation),
            number: self.epoch_number(),
        }
    }

    /// Locks the session's state as [`Self::lock`] does, but fails if `epoch` has ended.
    ///
    /// # Errors
    /// `DeviceLost` if the session is lost, or if the session or the client has been reset since
    /// `epoch` was current.
    pub fn lock_within(&self, epoch: &Epoch) -> Result<ClientState<'_>, Refusal> {
        let state = self.lock();
        let present = Arc::ptr_eq(&state.generation, &epoch.generation);
        refuse_if(!present || self.is_over(epoch), Status::DeviceLost)?;
        Ok(state)
    }

    /// Returns the address space of this client behind `handle`, so that the caller can use it
    /// without holding the lock on the session's state.
    ///
    /// # Errors
    /// `BadHandle` if `handle` does not name an address space of this client.
    pub fn open_space(&self, handle: u32) -> Result<OpenSpace, Refusal> {
        let epoch = self.epoch();
        let shared = Arc::clone(&self.lock().get::<SpaceEntry>(handle)?.shared);
        Ok(OpenSpace {
            epoch,
            handle,
            shared,
        })
    }

    /// Locks the session's state as [`Self::lock`] does, but fails if the address space has been
    /// destroyed since [`Self::open_space`] returned `space`. The check is needed because a handle
    /// can be reused for a later object.
    ///
    /// # Errors
    /// `DeviceLost` if the session is lost, or if the session or the client has been reset since
    /// then; `BadHandle` if the handle no longer names this address space.
    pub fn lock_with(&self, space: &OpenSpace) -> Result<ClientState<'_>, Refusal> {
        let state = self.lock_within(&space.epoch)?;
        let present = &state.get::<SpaceEntry>(space.handle)?.shared;
        match Arc::ptr_eq(present, &space.shared) {
            true => Ok(state),
            false => Err(Refusal::bad_handle(space.handle)),
        }
    }

    /// Returns whether `epoch` has ended. Unless the caller holds the lock on the session's state,
    /// the epoch may end right after this returns false.
    pub fn is_over(&self, epoch: &Epoch) -> bool {
        epoch.generation.ended() || self.epoch_number() != epoch.number
    }

    /// Refuses with `Unsupported` if the back end does not have the feature.
    pub fn require(&self, feature: u64) -> Result<(), Refusal> {
        refuse_if(
            self.backend.attributes().features & feature == 0,
            Status::Unsupported,
        )
    }

    fn epoch_number(&self) -> u64 {
        self.session.epochs[self.client.index()].load(Ordering::SeqCst)
    }
}

impl Deref for ClientSession<'_> {
    type Target = SessionInner;

    fn deref(&self) -> &SessionInner {
        self.session
    }
}

/// The locked state of a session, in which a client finds its own objects and no others. The
/// methods of this type check the owner. Methods that only [`State`] has do not: their callers know
/// the owner.
pub(crate) struct ClientState<'a> {
    state: MutexGuard<'a, State>,
    client: Client,
}

impl ClientState<'_> {
    /// Returns the object behind `handle`; fails with `BadHandle` unless it is a `T` that this
    /// client owns.
    pub fn get<T: Kind>(&self, handle: u32) -> Result<&T, Refusal> {
        self.check(handle)?;
        self.state.get(handle)
    }

    /// Returns the object behind `handle`, to be modified; fails with `BadHandle` unless it is a
    /// `T` that this client owns.
    pub fn get_mut<T: Kind>(&mut self, handle: u32) -> Result<&mut T, Refusal> {
        self.check(handle)?;
        self.state.get_mut(handle)
    }

    /// Stores `object` as an object of this client and returns its new handle; fails with
    /// `QuotaObjects` if all handles are taken.
    pub fn insert(&mut self, object: Object) -> Result<u32, Refusal> {
        self.state.insert(self.client, object)
    }

    /// Removes the object behind `handle` and returns it; returns `None` if this client owns no
    /// such object.
    pub fn remove(&mut self, handle: u32) -> Option<Object> {
        self.check(handle).ok()?;
        self.state.remove(handle)
    }

    /// Removes the GPU mapping that begins at `address` of the address space with handle `space`,
    /// which this client must own.
    pub fn unmap_gpu(&mut self, space: u32, address: u64) -> Result<(), Refusal> {
        self.check(space)?;
        self.state.unmap_gpu(space, address)
    }

    /// Removes the mapping that begins at `offset` of the aperture. The mapped memory must belong
    /// to this client.
    pub fn unmap_cpu(&mut self, host: &dyn Host, offset: u64) -> Result<(), Refusal> {
        let mapping = self.state.aperture.get(&offset);
        match mapping {
            Some(mapping) if self.owns(mapping.memory) => self.state.unmap_cpu(host, offset),
            _ => Err(Refusal::new(Status::BadRange)),
        }
    }

    /// Removes every GPU and aperture mapping of the memory behind `handle`, which this client must
    /// own.
    pub fn unmap_everywhere(&mut self, host: &dyn Host, handle: u32) -> Result<(), Refusal> {
        self.check(handle)?;
        self.state.unmap_everywhere(host, handle)
    }

    /// Returns whether the object behind `handle` belongs to this client.
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
